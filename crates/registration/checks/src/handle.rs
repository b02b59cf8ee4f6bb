//! Input and output of checks: records in, verdicts out.

use crate::{CheckRunner, CheckSettings, Refusal, Schedule};
use parking_lot::Mutex;
use pilotfish_registration::{InstanceKey, Record};
use pilotfish_runtime::{CoalescingSender, Jitter, coalescer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Health of an instance according to its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub key: InstanceKey,
    /// The revision of the record that was checked.
    pub revision: u64,
    /// Reason for being unhealthy, in one line; `None` if healthy again.
    pub failure: Option<Arc<str>>,
}

/// Counts, for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub checks: usize,
    /// Number of probes in flight.
    pub running: usize,
    /// Number of failing instances.
    pub failing: usize,
    /// The first failing instances.
    pub failures: Vec<Verdict>,
    /// Number of unchecked instances, by reason.
    pub refused: BTreeMap<Refusal, usize>,
    /// Probes that passed, since the start.
    pub passed: u64,
    /// Probes that failed, since the start.
    pub failed: u64,
}

/// Input of checked records. Sending never waits, and pending updates are merged by instance. Cheap to clone.
#[derive(Clone)]
pub struct CheckHandle {
    input: CoalescingSender<InstanceKey, Option<Arc<Record>>>,
    report: Arc<Mutex<CheckReport>>,
}

/// Returns a handle and its runner.
#[must_use]
pub fn checks(settings: CheckSettings) -> (CheckHandle, CheckRunner) {
    let (input, instances) = coalescer();
    let report = Arc::new(Mutex::new(CheckReport::default()));
    let runner = CheckRunner::new(Schedule::new(settings, Jitter::default()), instances, report.clone());
    (CheckHandle { input, report }, runner)
}

impl CheckHandle {
    /// Sets a record. One without checks, or that drains, is not checked.
    pub fn set(&self, record: Arc<Record>) {
        self.input.update(record.instance.key.clone(), |_| Some(Some(record)));
    }

    /// Ends the check of a record.
    pub fn remove(&self, key: &InstanceKey) {
        self.input.update(key.clone(), |_| Some(None));
    }

    /// Counts, at most a second old.
    #[must_use]
    pub fn report(&self) -> CheckReport {
        self.report.lock().clone()
    }
}
