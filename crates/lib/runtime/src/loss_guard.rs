//! The guard against mass loss: a read that succeeds but lacks most of what there was takes effect once a
//! second read confirms it.
//!
//! A source that restarted with an empty store, was restored from a backup or lost its mount answers without
//! an error. The guard compares the number of things in force with the number of those that a read keeps:
//! what it brings instead makes up for nothing, as the backup of another cluster may have as many. A loss
//! above its floor and its share, at once or in steps within one wait, is held back. A full read after the
//! wait that still lacks them confirms it; one that has them again ends it.
//!
//! Losses count from a baseline: the most things in force within the last wait. A source need not judge reads
//! that take nothing away, since each judgement is given what is in force.
//!
//! One state machine for all sources, without IO and clocks:
//!
//! ```text
//! read ─ before, kept ──▶ LossGuard::judge ─┬─ Believe: apply it
//!                                           └─ Hold(until): keep the last state, read again at `until`
//! ```

use std::time::{Duration, Instant};

/// Smaller losses are always accepted.
pub const LOSS_FLOOR: usize = 3;

/// The thresholds of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    /// Percentage of things whose loss is accepted at once; `None` accepts every loss.
    pub share: Option<u8>,
    /// Losses of fewer things than this are always accepted.
    pub floor: usize,
    /// Time between the read that lost things and the one that confirms it. Losses within this time count
    /// together.
    pub wait: Duration,
}

impl GuardSettings {
    /// Accepted values of a share, for help and error messages.
    pub const SHARE: &'static str = "PERCENT|off";

    /// Settings of a guard that accepts every loss.
    #[must_use]
    pub fn off() -> Self {
        Self { share: None, ..Self::default() }
    }

    /// Parses a share: `50`, `50%`, or `off` for none.
    ///
    /// # Errors
    /// When it is neither, in words.
    pub fn parse_share(text: &str) -> Result<Option<u8>, String> {
        match (text, text.strip_suffix('%').unwrap_or(text).parse()) {
            ("off", _) => Ok(None),
            (_, Ok(share @ 1..=99)) => Ok(Some(share)),
            _ => Err("not a share in percent from 1 to 99, nor off".to_owned()),
        }
    }
}

impl Default for GuardSettings {
    /// 50 %, [`LOSS_FLOOR`] and 10 s.
    fn default() -> Self {
        Self { share: Some(50), floor: LOSS_FLOOR, wait: Duration::from_secs(10) }
    }
}

/// A loss that waits for confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLoss {
    /// Earliest time of a full read that confirms the loss.
    pub until: Instant,
    /// Number of things in force.
    pub before: usize,
    /// Number of those that the read keeps.
    pub after: usize,
}

/// The decision on a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossVerdict {
    /// The read takes effect.
    Believe,
    /// Everything that the read lacks stays in force.
    Hold(HeldLoss),
}

/// The extent of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadExtent {
    /// A full read: it can confirm or end a loss.
    Full,
    /// A read of some things only.
    Partial,
}

/// The guard against mass loss; see the module's description.
#[derive(Clone, Debug)]
pub struct LossGuard {
    settings: GuardSettings,
    /// Number of things from which losses count, and the time of the count.
    baseline: Option<(usize, Instant)>,
    held: Option<HeldLoss>,
}

impl LossGuard {
    /// A guard without a held loss.
    #[must_use]
    pub const fn new(settings: GuardSettings) -> Self {
        Self { settings, baseline: None, held: None }
    }

    /// Returns the held loss.
    #[must_use]
    pub const fn held(&self) -> Option<HeldLoss> {
        self.held
    }

    /// Judges a read that keeps `after` of the `before` things in force. A read that is believed takes effect
    /// at once.
    pub fn judge(&mut self, before: usize, after: usize, now: Instant, extent: ReadExtent) -> LossVerdict {
        let baseline = self.baseline(before, now);
        // New things since the loss was held do not make up for it.
        let (baseline, kept) = match self.held {
            Some(held) => (held.before, held.before.saturating_sub(before.saturating_sub(after))),
            None => (baseline, after),
        };
        let is_loss = after < before && self.loses(baseline, kept);
        let is_full = extent == ReadExtent::Full;
        let new = HeldLoss { until: now + self.settings.wait, before, after };
        let held = match self.held {
            None if !is_loss => return LossVerdict::Believe,
            None => new,
            // Only a full read shows that the loss is over.
            Some(_) if is_full && !is_loss => return self.believe(after, now),
            Some(held) if is_full && now >= held.until => {
                if !self.loses(held.after, kept) {
                    return self.believe(after, now);
                }
                // Most of what the first read still had is missing, too: this is the first read of another
                // loss.
                new
            }
            Some(_) if !is_full && after >= before => return LossVerdict::Believe,
            Some(held) => HeldLoss { after: if is_full { kept } else { held.after.min(kept) }, ..held },
        };
        self.held = Some(held);
        LossVerdict::Hold(held)
    }

    /// Records things whose removal the source reported one by one: they are accepted, and no part of a later
    /// loss.
    pub fn named(&mut self, count: usize) {
        self.baseline = self.baseline.map(|(things, since)| (things.saturating_sub(count), since));
    }

    /// Drops the held loss: the missing things are back, or not wanted any more.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Makes the next full read confirm the loss, on the order of an operator.
    pub fn accept(&mut self, now: Instant) {
        if let Some(held) = &mut self.held {
            held.until = held.until.min(now);
        }
    }

    fn believe(&mut self, after: usize, now: Instant) -> LossVerdict {
        self.held = None;
        self.baseline = Some((after, now));
        LossVerdict::Believe
    }

    /// Returns the baseline: the maximum number of things in force within the last wait, including now.
    fn baseline(&mut self, before: usize, now: Instant) -> usize {
        let is_recent = |since| now.saturating_duration_since(since) <= self.settings.wait;
        let last = self.baseline.filter(|(things, since)| is_recent(*since) && *things >= before);
        let baseline = last.unwrap_or((before, now));
        self.baseline = Some(baseline);
        baseline.0
    }

    /// True if the step exceeds floor and share.
    fn loses(&self, from: usize, to: usize) -> bool {
        let Some(share) = self.settings.share else { return false };
        let lost = from.saturating_sub(to);
        lost >= self.settings.floor && lost.saturating_mul(100) > from.saturating_mul(usize::from(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReadExtent::{Full, Partial};
    use proptest::prelude::*;

    struct Sequence(LossGuard, Instant);

    impl Sequence {
        fn new() -> Self {
            Self(LossGuard::new(GuardSettings::default()), Instant::now())
        }

        fn at(&mut self, seconds: u64, before: usize, after: usize, extent: ReadExtent) -> bool {
            let now = self.1 + Duration::from_secs(seconds);
            self.0.judge(before, after, now, extent) == LossVerdict::Believe
        }
    }

    #[test]
    fn losses_above_floor_and_share_wait_for_a_second_read() {
        for (before, after, believed) in [
            (0, 10, true),
            (10, 5, true),
            (10, 4, false),
            (2, 0, true),
            (3, 1, true),
            (3, 0, false),
            (4, 1, false),
            (1_000, 500, true),
            (1_000, 499, false),
        ] {
            assert_eq!(Sequence::new().at(0, before, after, Full), believed, "{before} to {after}");
        }
    }

    #[test]
    fn second_full_read_after_the_wait_confirms() {
        let mut guard = Sequence::new();
        assert!(!guard.at(40, 10, 2, Full));
        assert!(!guard.at(45, 10, 2, Full), "again, but too early");
        assert!(!guard.at(50, 10, 2, Partial), "a partial read confirms nothing");
        assert!(guard.at(50, 10, 2, Full), "again, after the wait");
        assert!(guard.at(51, 2, 2, Full));
        assert_eq!(guard.0.held(), None);
    }

    #[test]
    fn every_loss_waits_also_after_growth_that_nobody_judged() {
        for (again, floor) in [(12, "at once"), (60, "later"), (3_600, "much later")] {
            let mut guard = Sequence::new();
            for start in [0, again, 2 * again] {
                assert!(!guard.at(start, 100, 0, Full), "{floor}: it was back, {start}");
                assert!(guard.at(start + 10, 100, 0, Full), "{floor}: {start}");
            }
        }
    }

    #[test]
    fn read_that_has_everything_again_ends_the_hold() {
        let mut guard = Sequence::new();
        assert!(!guard.at(0, 10, 0, Full));
        assert!(guard.at(1, 10, 10, Full));
        assert!(!guard.at(20, 10, 0, Full), "a loss is new after one that was none");
    }

    #[test]
    fn second_read_that_loses_most_of_the_first_is_another_loss() {
        let mut guard = Sequence::new();
        assert!(!guard.at(0, 100, 40, Full));
        assert!(!guard.at(10, 100, 0, Full), "it does not say the same");
        assert!(!guard.at(19, 100, 0, Full));
        assert!(guard.at(20, 100, 0, Full));
    }

    #[test]
    fn growth_while_a_loss_is_held_makes_up_for_none_of_it() {
        let mut guard = Sequence::new();
        assert!(!guard.at(0, 20, 0, Full));
        assert!(!guard.at(1, 40, 20, Full), "20 others came, the first 20 are still missing");
        assert!(!guard.at(2, 100, 80, Full));
        assert_eq!(guard.0.held().map(|held| (held.before, held.after)), Some((20, 0)));
        assert!(guard.at(10, 100, 80, Full), "the second read after the wait");
        let mut guard = Sequence::new();
        assert!(!guard.at(0, 20, 8, Full));
        assert!(!guard.at(10, 40, 20, Full), "12 were missing, now 20 are: another loss");
        assert!(guard.at(20, 40, 20, Full));
    }

    #[test]
    fn losses_in_steps_count_together_within_the_wait() {
        let mut guard = Sequence::new();
        for (second, before) in (0..5).zip((6..=10).rev()) {
            assert!(guard.at(second, before, before - 1, Partial));
        }
        assert!(!guard.at(5, 5, 4, Partial), "the sixth of ten within ten seconds");
        assert!(guard.at(7, 5, 6, Partial), "more is always believed");
        assert!(!guard.at(100, 6, 5, Partial), "only a full read ends it");
        assert!(guard.at(101, 6, 5, Full));
        let mut slow = Sequence::new();
        for (round, before) in (1..=10).rev().enumerate() {
            assert!(slow.at(round as u64 * 60, before, before - 1, Partial), "{before}");
        }
    }

    #[test]
    fn named_removals_are_no_part_of_a_later_loss() {
        let mut guard = Sequence::new();
        assert!(guard.at(0, 10, 10, Full));
        guard.0.named(8);
        assert!(guard.at(1, 2, 1, Full), "9 of 10 are gone, 8 of them by name");
    }

    #[test]
    fn accepted_loss_is_confirmed_by_the_next_full_read() {
        let mut guard = Sequence::new();
        assert!(!guard.at(0, 10, 0, Full));
        guard.0.accept(guard.1 + Duration::from_secs(1));
        assert!(guard.at(1, 10, 0, Full));
    }

    #[test]
    fn shares_are_percentages_or_off() {
        for (text, share) in [("50", Some(Some(50))), ("7%", Some(Some(7))), ("off", Some(None))] {
            assert_eq!(GuardSettings::parse_share(text).ok(), share, "{text}");
        }
        for text in ["", "0", "100", "-1", "on", "50%%", "0.5"] {
            assert!(GuardSettings::parse_share(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn off_and_below_the_floor_nothing_is_held(
            steps in prop::collection::vec((0usize..2_000, 0usize..2_000, 0u64..30, any::<bool>()), 0..40),
        ) {
            let mut off = LossGuard::new(GuardSettings::off());
            let mut now = Instant::now();
            for (before, after, seconds, is_full) in steps {
                now += Duration::from_secs(seconds);
                let extent = if is_full { Full } else { Partial };
                prop_assert_eq!(off.judge(before, after, now, extent), LossVerdict::Believe);
                let mut fresh = LossGuard::new(GuardSettings::default());
                let small = before.saturating_sub(after % LOSS_FLOOR);
                prop_assert_eq!(fresh.judge(before, small, now, extent), LossVerdict::Believe);
            }
        }

        /// A source that has settled, however it came there, is believed by its second full read after the
        /// wait at the latest.
        #[test]
        fn no_loss_is_held_for_ever(
            steps in prop::collection::vec((0usize..200, 0u64..15, any::<bool>()), 0..40), end in 0usize..200,
        ) {
            let mut guard = LossGuard::new(GuardSettings::default());
            let (mut now, mut force) = (Instant::now(), 0);
            for (after, seconds, is_full) in steps {
                now += Duration::from_secs(seconds);
                let extent = if is_full { Full } else { Partial };
                if guard.judge(force, after, now, extent) == LossVerdict::Believe {
                    force = after;
                }
            }
            for _ in 0..3 {
                now += GuardSettings::default().wait;
                if guard.judge(force, end, now, Full) == LossVerdict::Believe {
                    force = end;
                }
            }
            prop_assert_eq!((force, guard.held()), (end, None));
        }
    }
}
