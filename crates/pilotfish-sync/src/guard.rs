//! Holds back a deletion of very much until it is confirmed.
//!
//! A cluster that looks empty is more often one that was read wrongly than one that is empty: another kubeconfig, rights that were taken
//! away, an API server that was restored from a backup. So when a pass would take away more than a share of what is ours, the deletions
//! wait, while everything else goes on. They are confirmed when the cluster was read again from the start and still wants them gone.

use crate::InstanceKey;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// What is too much at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardSettings {
    /// The share of our instances, from 0 to 1.
    pub share: f64,
    /// Deletions of no more than this are never held.
    pub minimum: usize,
    /// How long they wait at least; and losses within this time count together.
    pub wait: Duration,
}

impl Default for GuardSettings {
    /// More than half and more than 10 within 30 s.
    fn default() -> Self {
        Self { share: 0.5, minimum: 10, wait: Duration::from_secs(30) }
    }
}

/// What becomes of deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They may be called.
    Allowed,
    /// They wait, at least until then; then the cluster has to be read from the start, and [`Guard::confirm`] told.
    Held {
        /// The earliest time of a confirmation.
        until: Instant,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Guard {
    settings: GuardSettings,
    held: Option<Held>,
    /// What was lost lately, on balance.
    losses: VecDeque<(Instant, usize)>,
}

#[derive(Clone, Debug)]
struct Held {
    keys: BTreeSet<InstanceKey>,
    until: Instant,
    confirmed: bool,
}

impl Guard {
    /// Nothing is held.
    #[must_use]
    pub fn new(settings: GuardSettings) -> Self {
        Self { settings, held: None, losses: VecDeque::new() }
    }

    /// Decides on the deletions of a pass, where `owned` are ours before it. `replaced` of them come back at another place, as in a rolling
    /// restart; a pass over everything passes 0, because a wrong cluster brings instances, too.
    pub fn decide(
        &mut self,
        deletions: &BTreeSet<InstanceKey>,
        owned: usize,
        replaced: usize,
        now: Instant,
    ) -> Verdict {
        let wait = self.settings.wait;
        self.losses.retain(|(at, _)| now.saturating_duration_since(*at) < wait);
        if self.held.as_ref().is_some_and(|held| held.confirmed && deletions.is_subset(&held.keys)) {
            return Verdict::Allowed;
        }
        let lately: usize = self.losses.iter().map(|(_, lost)| lost).sum();
        let lost = deletions.len().saturating_sub(replaced) + lately;
        let most = (self.settings.share * (owned + lately) as f64).max(self.settings.minimum as f64);
        if deletions.is_empty() || lost as f64 <= most {
            // What was held before is wanted no longer, at least not so much of it.
            self.held = None;
            return Verdict::Allowed;
        }
        // What is wanted beyond what was held needs another look, though not at once again and again.
        let again = now + wait / 6;
        let until = match &self.held {
            None => now + wait,
            Some(held) if deletions.is_subset(&held.keys) => held.until,
            Some(held) => held.until.max(again),
        };
        let keys = match self.held.take() {
            Some(held) => held.keys.union(deletions).cloned().collect(),
            None => deletions.clone(),
        };
        self.held = Some(Held { keys, until, confirmed: false });
        Verdict::Held { until }
    }

    /// So many instances were deleted, and not replaced.
    pub fn lost(&mut self, count: usize, now: Instant) {
        if count > 0 {
            self.losses.push_back((now, count));
        }
    }

    /// The cluster was read from the start. What was held long enough may go, if it is still wanted.
    pub fn confirm(&mut self, now: Instant) {
        if let Some(held) = self.held.as_mut().filter(|held| now >= held.until) {
            held.confirmed = true;
        }
    }

    /// How many deletions wait, and until when at least.
    #[must_use]
    pub fn held(&self) -> Option<(usize, Instant)> {
        self.held.as_ref().filter(|held| !held.confirmed).map(|held| (held.keys.len(), held.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Place, ServiceKey};

    fn keys(count: usize) -> BTreeSet<InstanceKey> {
        let key = |n| InstanceKey::new(ServiceKey::new("a", "b"), Place::new(format!("10.0.0.{n}"), 80));
        (0..count).map(key).collect()
    }

    fn guard() -> (Guard, Instant) {
        (Guard::new(GuardSettings::default()), Instant::now())
    }

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn few_are_never_held_and_half_is_not_too_much() {
        let (mut guard, now) = guard();
        assert_eq!(guard.decide(&keys(10), 10, 0, now), Verdict::Allowed);
        assert_eq!(guard.decide(&keys(50), 100, 0, now), Verdict::Allowed);
        assert_eq!(guard.decide(&keys(51), 100, 0, now), Verdict::Held { until: now + 30 * S });
    }

    #[test]
    fn a_confirmation_before_its_time_is_none() {
        let (mut guard, now) = guard();
        guard.decide(&keys(51), 100, 0, now);
        guard.confirm(now + 29 * S);
        assert_ne!(guard.decide(&keys(51), 100, 0, now + 29 * S), Verdict::Allowed);
        guard.confirm(now + 30 * S);
        assert_eq!(guard.decide(&keys(51), 100, 0, now + 30 * S), Verdict::Allowed);
    }

    #[test]
    fn a_confirmation_is_about_what_was_held() {
        let (mut guard, now) = guard();
        guard.decide(&keys(51), 100, 0, now);
        guard.confirm(now + 30 * S);
        assert_ne!(guard.decide(&keys(60), 100, 0, now + 31 * S), Verdict::Allowed);
    }

    #[test]
    fn what_is_wanted_again_is_forgotten() {
        let (mut guard, now) = guard();
        guard.decide(&keys(51), 100, 0, now);
        assert_eq!(guard.decide(&keys(0), 100, 0, now + S), Verdict::Allowed);
        assert_eq!(guard.held(), None);
        let later = now + 40 * S;
        assert_eq!(guard.decide(&keys(51), 100, 0, later), Verdict::Held { until: later + 30 * S });
    }

    #[test]
    fn losses_in_steps_count_together() {
        let (mut guard, now) = guard();
        assert_eq!(guard.decide(&keys(40), 100, 0, now), Verdict::Allowed);
        guard.lost(40, now);
        assert_ne!(guard.decide(&keys(20), 60, 0, now + S), Verdict::Allowed);
        assert_eq!(guard.decide(&keys(20), 60, 0, now + 31 * S), Verdict::Allowed);
    }

    #[test]
    fn a_rolling_restart_is_no_loss() {
        let (mut guard, now) = guard();
        assert_eq!(guard.decide(&keys(100), 100, 100, now), Verdict::Allowed);
    }
}
