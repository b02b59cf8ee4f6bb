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
