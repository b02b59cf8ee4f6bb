//! The task that runs due probes, a bounded number at a time.

use crate::probe::probe;
use crate::{CheckReport, Outcome, Schedule, Ticket, Verdict};
use parking_lot::Mutex;
use pilotfish_registration::{InstanceKey, Record};
use pilotfish_runtime::CoalescingReceiver;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

/// Interval of updates of the report.
const REPORT: Duration = Duration::from_secs(1);

/// Maximum number of failures in a report.
const REPORTED: usize = 20;

/// Runs checks until it is dropped; probes in flight end with it.
pub struct CheckRunner {
    schedule: Schedule,
    instances: CoalescingReceiver<InstanceKey, Option<Arc<Record>>>,
    running: JoinSet<(Ticket, Outcome)>,
    report: Arc<Mutex<CheckReport>>,
}

impl CheckRunner {
    pub(crate) fn new(
        schedule: Schedule,
        instances: CoalescingReceiver<InstanceKey, Option<Arc<Record>>>,
        report: Arc<Mutex<CheckReport>>,
    ) -> Self {
        Self { schedule, instances, running: JoinSet::new(), report }
    }

    /// Runs checks and calls `tell` with each verdict that changes: instance fails, instance has recovered.
    /// Nothing is published for removed instances. Returns when no handle is left.
    pub async fn run(mut self, mut tell: impl FnMut(Verdict) + Send) {
        let mut counts = interval(REPORT);
        loop {
            let next = self.schedule.next();
            let due = async { sleep_until(next.unwrap_or_else(Instant::now)).await };
            tokio::select! {
                there = self.instances.wait() => match there {
                    true => self.take_instances(&mut tell),
                    false => return,
                },
                Some(done) = self.running.join_next() => match done {
                    Ok((ticket, outcome)) => self.finish(ticket, outcome, &mut tell),
                    // Probes do not panic and are not aborted. If one were, its check would not run again and
                    // its slot would stay taken.
                    Err(error) => tracing::error!(%error, "a health check ended early"),
                },
                () = due, if next.is_some() => self.start(),
                _ = counts.tick() => self.count(),
            }
        }
    }

    fn take_instances(&mut self, tell: &mut impl FnMut(Verdict)) {
        let now = Instant::now();
        for (key, record) in self.instances.take() {
            match record {
                Some(record) => self.schedule.set(record, now).into_iter().for_each(&mut *tell),
                None => self.schedule.remove(&key, now),
            }
        }
    }

    fn start(&mut self) {
        while let Some(due) = self.schedule.start(Instant::now()) {
            self.running.spawn(async move {
                let outcome = probe(due.target, &due.check).await;
                (due.ticket, outcome)
            });
        }
    }

    fn finish(&mut self, ticket: Ticket, outcome: Outcome, tell: &mut impl FnMut(Verdict)) {
        {
            let mut report = self.report.lock();
            let count = if outcome.is_ok() { &mut report.passed } else { &mut report.failed };
            *count += 1;
        }
        self.schedule.finish(ticket, outcome, Instant::now()).into_iter().for_each(tell);
    }

    fn count(&self) {
        let mut refused = BTreeMap::new();
        for (_, refusal) in self.schedule.refused() {
            *refused.entry(refusal).or_default() += 1;
        }
        let failures = self.schedule.failures().take(REPORTED).collect();
        let mut report = self.report.lock();
        report.failures = failures;
        report.checks = self.schedule.checks();
        report.running = self.schedule.running();
        report.failing = self.schedule.failing();
        report.refused = refused;
    }
}
