//! The ends of checks: what is to be checked goes in, verdicts come out.

use crate::{CheckRunner, CheckSettings, Refusal, Schedule};
use parking_lot::Mutex;
use pilotfish_registration::{InstanceKey, Record};
use pilotfish_source::{CoalescingSender, Jitter, coalescer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What checks say of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Which.
    pub key: InstanceKey,
    /// The revision of the record that was checked.
    pub revision: u64,
    /// Why it is unhealthy, in one line; `None` when it is not any more.
    pub failure: Option<Arc<str>>,
}

/// Counts, for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// How many checks there are.
    pub checks: usize,
    /// How many run now.
    pub running: usize,
    /// How many instances fail.
    pub failing: usize,
    /// The first of them.
    pub failures: Vec<Verdict>,
    /// How many instances are not checked, by why.
    pub refused: BTreeMap<Refusal, usize>,
    /// Probes that passed, since the start.
    pub passed: u64,
    /// Probes that failed, since the start.
    pub failed: u64,
}

/// Says what is to be checked. Sending never waits, and what was not taken yet is merged by instance. Cheap to clone.
#[derive(Clone)]
pub struct CheckHandle {
    input: CoalescingSender<InstanceKey, Option<Arc<Record>>>,
    report: Arc<Mutex<CheckReport>>,
}

/// A handle, and the runner behind it.
#[must_use]
pub fn checks(settings: CheckSettings) -> (CheckHandle, CheckRunner) {
    let (input, instances) = coalescer();
    let report = Arc::new(Mutex::new(CheckReport::default()));
    let runner = CheckRunner::new(Schedule::new(settings, Jitter::default()), instances, report.clone());
    (CheckHandle { input, report }, runner)
}

impl CheckHandle {
    /// There is such a record now. One without checks, or that drains, is not checked.
    pub fn set(&self, record: Arc<Record>) {
        self.input.update(record.instance.key.clone(), |_| Some(Some(record)));
    }

    /// The record is gone.
    pub fn remove(&self, key: &InstanceKey) {
        self.input.update(key.clone(), |_| Some(None));
    }

    /// Counts of about now.
    #[must_use]
    pub fn report(&self) -> CheckReport {
        self.report.lock().clone()
    }
}
