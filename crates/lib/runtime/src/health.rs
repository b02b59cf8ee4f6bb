//! Health of a source: in sync or not, failing or not. The two are independent: a failing source keeps its
//! last state.

use std::sync::Arc;
use std::time::SystemTime;

/// A failure that no success has ended yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Time of the first failed attempt.
    pub since: SystemTime,
    /// Reason of the newest attempt.
    pub reason: Arc<str>,
}

/// The state of a source. Its methods return if the state changed, which is the time to log it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    synced: bool,
    failure: Option<Failure>,
}

impl Health {
    /// In sync, without failures.
    #[must_use]
    pub const fn in_sync() -> Self {
        Self { synced: true, failure: None }
    }

    /// Combines two states: in sync if both are; the older failure.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let failure = match (self.failure, other.failure) {
            (Some(a), Some(b)) => Some(if b.since < a.since { b } else { a }),
            (a, b) => a.or(b),
        };
        Self { synced: self.synced && other.synced, failure }
    }

    /// Marks the initial content as complete. Returns true if it was not before.
    pub fn synced(&mut self) -> bool {
        !std::mem::replace(&mut self.synced, true)
    }

    /// Records a failed attempt. Returns true if a failure begins; an ongoing one keeps its start and gets
    /// the new reason.
    pub fn failed(&mut self, reason: impl Into<Arc<str>>, now: SystemTime) -> bool {
        let begins = self.failure.is_none();
        let since = self.failure.as_ref().map_or(now, |failure| failure.since);
        self.failure = Some(Failure { since, reason: reason.into() });
        begins
    }

    /// Records a successful attempt. Returns the failure that it ends.
    pub fn recovered(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// True if the initial content is complete.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// True if the last attempt failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the failure that is in progress, if any.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn two_together_are_in_sync_when_both_are_and_fail_since_the_first() {
        let mut early = Health::in_sync();
        early.failed("early", at(1));
        let mut late = Health::default();
        late.failed("late", at(5));
        for both in [early.clone().and(late.clone()), late.and(early)] {
            assert!(!both.is_synced());
            assert_eq!(both.failure().map(|failure| &*failure.reason), Some("early"));
        }
        assert_eq!(Health::in_sync().and(Health::in_sync()), Health::in_sync());
    }

    #[test]
    fn a_failure_keeps_its_beginning_and_takes_the_newest_reason() {
        let mut health = Health::default();
        assert!(health.failed("refused", at(1)));
        assert!(!health.failed("timed out", at(5)));
        let failure = Failure { since: at(1), reason: "timed out".into() };
        assert_eq!(health.failure(), Some(&failure));
        assert_eq!(health.recovered(), Some(failure));
        assert_eq!((health.recovered(), health.is_failing()), (None, false));
        assert!(health.failed("refused", at(9)));
        assert_eq!(health.failure().map(|failure| failure.since), Some(at(9)));
    }

    #[test]
    fn a_failing_source_stays_in_sync() {
        let mut health = Health::default();
        assert!(!health.is_synced());
        assert!(health.synced());
        assert!(!health.synced());
        health.failed("refused", at(1));
        assert!(health.is_synced() && health.is_failing());
    }
}
