//! How a source is: in sync or not, failing or not. These are two questions: a source that fails keeps what it knew.

use std::sync::Arc;
use std::time::SystemTime;

/// A failure that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it began.
    pub since: SystemTime,
    /// Why, as the newest attempt has it.
    pub reason: Arc<str>,
}

/// The state of a source. Its methods say whether the state changed, which is when to log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    synced: bool,
    failure: Option<Failure>,
}

impl Health {
    /// In sync, nothing fails.
    #[must_use]
    pub const fn in_sync() -> Self {
        Self { synced: true, failure: None }
    }

    /// Both together: in sync when both are; the failure that began first.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let failure = match (self.failure, other.failure) {
            (Some(a), Some(b)) => Some(if b.since < a.since { b } else { a }),
            (a, b) => a.or(b),
        };
        Self { synced: self.synced && other.synced, failure }
    }

    /// Everything that was there at the start is known. Says whether that is new.
    pub fn synced(&mut self) -> bool {
        !std::mem::replace(&mut self.synced, true)
    }

    /// An attempt failed. Says whether that begins a failure: of one that lasts the beginning stays and the reason is replaced.
    pub fn failed(&mut self, reason: impl Into<Arc<str>>, now: SystemTime) -> bool {
        let begins = self.failure.is_none();
        let since = self.failure.as_ref().map_or(now, |failure| failure.since);
        self.failure = Some(Failure { since, reason: reason.into() });
        begins
    }

    /// An attempt succeeded. Returns the failure that this ends.
    pub fn recovered(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Whether everything that was there at the start is known.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Whether the last attempt failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failure.is_some()
    }

    /// What fails now.
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
