//! Next request to a server and evaluation of its answers: everything first, then deltas, and everything
//! again if the hash does not match.
//!
//! A state machine without IO and clocks.

use crate::mapping::By;
use crate::replica::{Agreement, Replica};
use pilotfish_eureka_wire::Applications;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum age of the last answer for a delta request. A server keeps deltas for three minutes by default, so
/// an older client may have missed some.
const CHANGES_KEPT: Duration = Duration::from_secs(150);

/// A request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// All applications: request of `/apps`.
    Full,
    /// Deltas of the last minutes: `/apps/delta`.
    Delta,
}

/// Result of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// All services may have changed.
    Everything,
    /// These services changed or were removed.
    Services(BTreeSet<Arc<str>>),
    /// The hash does not match: request everything at once.
    AskForEverything,
}

/// A full answer whose hash does not match its instances.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer counts its instances as {said:?} and has {found:?}")]
pub(crate) struct Contradiction {
    said: String,
    found: String,
}

/// State of following one server.
#[derive(Debug)]
pub(crate) struct Follower {
    replica: Replica,
    /// Interval of full requests even if deltas match: the hash counts instances and does not compare them.
    full_every: Duration,
    last_full: Option<Instant>,
    last_answer: Option<Instant>,
    /// True if the server supports deltas with a hash.
    deltas: bool,
    contradicted: bool,
}

impl Follower {
    pub(crate) fn new(by: By, full_every: Duration) -> Self {
        Self {
            replica: Replica::new(by),
            full_every,
            last_full: None,
            last_answer: None,
            deltas: true,
            contradicted: false,
        }
    }

    pub(crate) const fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Returns the next request.
    pub(crate) fn next(&self, now: Instant) -> Ask {
        let is_recent =
            |at: Option<Instant>, limit| at.is_some_and(|at| now.saturating_duration_since(at) < limit);
        let knows = is_recent(self.last_full, self.full_every) && is_recent(self.last_answer, CHANGES_KEPT);
        if self.deltas && knows { Ask::Delta } else { Ask::Full }
    }

    /// Handles the answer to [`Ask::Full`].
    ///
    /// # Errors
    /// When the hash does not match for the first time. If it never matches, the server computes its hash
    /// differently: its answers are accepted, and requested in full each time.
    pub(crate) fn full(&mut self, answer: Applications, now: Instant) -> Result<News, Contradiction> {
        let said = answer.hash.clone().unwrap_or_default();
        let agreement = self.replica.replace(answer);
        if agreement == Agreement::Differs && !self.contradicted {
            self.contradicted = true;
            self.last_full = None;
            return Err(Contradiction { said, found: self.replica.hash() });
        }
        self.contradicted = agreement == Agreement::Differs;
        (self.last_full, self.last_answer) = (Some(now), Some(now));
        self.deltas = self.deltas && agreement == Agreement::Agrees;
        Ok(News::Everything)
    }

    /// Handles the answer to [`Ask::Delta`].
    pub(crate) fn delta(&mut self, answer: Applications, now: Instant) -> News {
        let (touched, agreement) = self.replica.apply(answer);
        if agreement != Agreement::Agrees {
            // The replica is in an inconsistent state that only a full answer repairs.
            self.last_full = None;
            return News::AskForEverything;
        }
        self.last_answer = Some(now);
        News::Services(touched)
    }

    /// Handles a server that is configured without deltas.
    pub(crate) fn refused_delta(&mut self) -> News {
        self.deltas = false;
        News::AskForEverything
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::info;

    const EVERY: Duration = Duration::from_secs(600);

    fn answer(hash: Option<&str>, ids: &[&str]) -> Applications {
        let instances = ids.iter().map(|id| info("A", id)).collect();
        Applications { hash: hash.map(str::to_owned), instances, unreadable: Vec::new() }
    }

    fn synced(start: Instant) -> Follower {
        let mut follower = Follower::new(By::App, EVERY);
        assert_eq!(follower.next(start), Ask::Full);
        assert_eq!(follower.full(answer(Some("UP_1_"), &["1"]), start), Ok(News::Everything));
        follower
    }

    #[test]
    fn changes_are_asked_for_after_everything() {
        let start = Instant::now();
        let mut follower = synced(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(follower.next(at(30)), Ask::Delta);
        let touched = BTreeSet::from(["A".into()]);
        assert_eq!(follower.delta(answer(Some("UP_2_"), &["2"]), at(30)), News::Services(touched));
        assert_eq!(follower.delta(answer(Some("UP_2_"), &["2"]), at(60)), News::Services(BTreeSet::new()));
    }

    #[test]
    fn everything_is_asked_for_where_changes_do_not_add_up() {
        let start = Instant::now();
        let mut follower = synced(start);
        assert_eq!(follower.delta(answer(Some("UP_3_"), &["2"]), start), News::AskForEverything);
        assert_eq!(follower.next(start), Ask::Full);
        assert_eq!(follower.full(answer(Some("UP_2_"), &["1", "3"]), start), Ok(News::Everything));
        assert_eq!(follower.next(start), Ask::Delta);
        assert_eq!(follower.delta(answer(None, &[]), start), News::AskForEverything, "nothing to check by");
    }

    #[test]
    fn everything_is_asked_for_after_a_while_and_after_silence() {
        let start = Instant::now();
        let mut follower = synced(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(follower.next(at(149)), Ask::Delta);
        assert_eq!(follower.next(at(150)), Ask::Full, "changes may have been missed");
        for seconds in (0..600).step_by(100) {
            assert_eq!(follower.next(at(seconds)), Ask::Delta, "{seconds}");
            follower.delta(answer(Some("UP_1_"), &[]), at(seconds));
        }
        assert_eq!(follower.next(at(600)), Ask::Full, "the hash only counts");
    }

    #[test]
    fn a_server_without_changes_or_without_a_hash_is_read_in_full() {
        let start = Instant::now();
        let mut follower = synced(start);
        assert_eq!(follower.refused_delta(), News::AskForEverything);
        assert_eq!(follower.full(answer(Some("UP_1_"), &["1"]), start), Ok(News::Everything));
        assert_eq!(follower.next(start), Ask::Full);

        let mut follower = Follower::new(By::App, EVERY);
        assert_eq!(follower.full(answer(None, &["1"]), start), Ok(News::Everything));
        assert_eq!(follower.next(start), Ask::Full);
    }

    #[test]
    fn an_answer_that_contradicts_itself_is_believed_when_the_next_one_does_too() {
        let start = Instant::now();
        let mut follower = Follower::new(By::App, EVERY);
        let wrong = follower.full(answer(Some("UP_2_"), &["1"]), start).map_err(|error| error.to_string());
        assert_eq!(wrong, Err("the answer counts its instances as \"UP_2_\" and has \"UP_1_\"".to_owned()));
        assert_eq!(follower.full(answer(Some("UP_2_"), &["1"]), start), Ok(News::Everything));
        assert_eq!(follower.next(start), Ask::Full, "its changes cannot be checked");
    }

    #[test]
    fn a_contradiction_that_is_over_is_forgotten() {
        let start = Instant::now();
        let mut follower = synced(start);
        assert!(follower.full(answer(Some("UP_2_"), &["1"]), start).is_err());
        assert_eq!(follower.full(answer(Some("UP_1_"), &["1"]), start), Ok(News::Everything));
        assert_eq!(follower.next(start), Ask::Delta);
        assert!(follower.full(answer(Some("UP_2_"), &["1"]), start).is_err());
    }
}
