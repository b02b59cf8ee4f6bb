//! Metrics of changes on their way to proxies.

use crate::catalogue::Catalogue;
use prometheus::{Histogram, IntCounter, IntGauge};
use std::time::Duration;

pub struct ChangeMetrics {
    revision: IntGauge,
    acknowledged: IntGauge,
    seconds: Histogram,
    late: IntCounter,
}

impl ChangeMetrics {
    pub(crate) fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        Ok(Self {
            revision: r.gauge("pilotfish_revision", "The revision of the newest change")?,
            acknowledged: r.gauge(
                "pilotfish_revision_acknowledged",
                "The newest revision that all proxies which it concerns have acknowledged, and all before it",
            )?,
            seconds: r.seconds(
                "pilotfish_change_seconds",
                "Seconds from a change to the last acknowledgement of those whom it concerns",
            )?,
            late: r.counter(
                "pilotfish_changes_late",
                "Changes that some proxy had not acknowledged after 5 s",
            )?,
        })
    }

    /// Records the revision of the newest published change.
    pub fn published(&self, revision: u64) {
        self.revision.set(i64::try_from(revision).unwrap_or(i64::MAX));
    }

    /// Records the revision up to which all changes are acknowledged.
    pub fn acknowledged(&self, revision: u64) {
        self.acknowledged.set(i64::try_from(revision).unwrap_or(i64::MAX));
    }

    /// Records a change in force, `after` its publication.
    pub fn in_force(&self, after: Duration) {
        self.seconds.observe(after.as_secs_f64());
    }

    /// Counts a change that is not in force everywhere before its deadline.
    pub fn late(&self) {
        self.late.inc();
    }
}
