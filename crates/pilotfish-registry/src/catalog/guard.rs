//! A guard against mass change: an answer that looks good but loses most of what there was is believed when it is given twice.
//!
//! A registry that restarted with an empty store, or that lost its agents, answers without an error. The guard compares what may
//! receive traffic before and after. Losing more than its share, at once or in steps within one wait, holds back all that loses;
//! after the wait a full read either says so again, and is believed, or shows that it was no loss.

use std::time::{Duration, Instant};

/// See the module's description.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    /// The share of usable endpoints, in percent, whose loss is believed at once. `None` believes everything.
    share: Option<u8>,
    /// How long a second answer has to come after the first.
    wait: Duration,
    /// The most endpoints within the last wait, and since when they are counted.
    peak: Option<(usize, Instant)>,
    held: Option<Held>,
}

/// What waits for a second answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// From when on a full read counts as the second answer.
    pub until: Instant,
    /// Usable endpoints in force.
    pub before: usize,
    /// Usable endpoints that the answer has.
    pub after: usize,
}

/// What the guard says about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Believe,
    Hold(Held),
}

impl Guard {
    pub(super) const fn new(share: Option<u8>, wait: Duration) -> Self {
        Self { share, wait, peak: None, held: None }
    }

    /// What waits for a second answer.
    #[must_use]
    pub(super) const fn held(&self) -> Option<Held> {
        self.held
    }

    /// Judges an answer that leaves `after` of `before` usable endpoints. `is_full` for one that names everything.
    pub(super) fn judge(&mut self, before: usize, after: usize, now: Instant, is_full: bool) -> Verdict {
        let Some(share) = self.share else { return Verdict::Believe };
        let peak = self.peak(before, now);
        let is_loss = after < before && loses_more(peak, after, share);
        match self.held {
            None if !is_loss => return Verdict::Believe,
            None => self.held = Some(Held { until: now + self.wait, before, after }),
            // Only a full read tells whether the loss is over.
            Some(_) if is_full && !is_loss => return self.believe(after, now),
            Some(held) if is_full && now >= held.until => return self.believe(after, now),
            Some(_) if !is_full && after >= before => return Verdict::Believe,
            Some(held) => {
                self.held = Some(Held { after: if is_full { after } else { held.after.min(after) }, ..held })
            }
        }
        self.held.map_or(Verdict::Believe, Verdict::Hold)
    }

    fn believe(&mut self, after: usize, now: Instant) -> Verdict {
        self.held = None;
        self.peak = Some((after, now));
        Verdict::Believe
    }

    /// The most endpoints that there were within the last wait.
    fn peak(&mut self, before: usize, now: Instant) -> usize {
        let peak = match self.peak {
            Some((peak, since)) if now.saturating_duration_since(since) <= self.wait && peak >= before => {
                (peak, since)
            }
            _ => (before, now),
        };
        self.peak = Some(peak);
        peak.0
    }
}

/// Whether more than that share, in percent, is lost.
fn loses_more(peak: usize, after: usize, share: u8) -> bool {
    (peak.saturating_sub(after)).saturating_mul(100) > peak.saturating_mul(usize::from(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    struct Sequence(Guard, Instant);

    impl Sequence {
        fn new() -> Self {
            Self(Guard::new(Some(50), WAIT), Instant::now())
        }

        fn at(&mut self, seconds: u64, before: usize, after: usize, is_full: bool) -> bool {
            let now = self.1 + Duration::from_secs(seconds);
            self.0.judge(before, after, now, is_full) == Verdict::Believe
        }
    }

    #[test]
    fn half_is_believed_more_waits_for_a_second_answer() {
        let mut guard = Sequence::new();
        assert!(guard.at(0, 0, 10, true), "the first answer");
        assert!(guard.at(20, 10, 5, true), "half");
        assert!(!guard.at(40, 5, 2, true), "more than half");
        assert!(!guard.at(45, 5, 2, true), "again, but too early");
        assert!(guard.at(50, 5, 2, true), "again, after the wait");
        assert!(!guard.at(70, 2, 0, true));
        assert!(guard.at(71, 2, 2, true), "it was no loss");
        assert!(!guard.at(90, 2, 0, true), "a loss is new after one that was none");
    }

    #[test]
    fn a_loss_in_steps_is_one_loss_within_the_wait_and_none_over_a_day() {
        let mut guard = Sequence::new();
        for (second, before) in (0..5).zip((6..=10).rev()) {
            assert!(guard.at(second, before, before - 1, false));
        }
        assert!(!guard.at(5, 5, 4, false), "the sixth of ten within ten seconds");
        assert!(!guard.at(6, 5, 4, false), "partial answers are no second answer");
        assert!(guard.at(7, 5, 6, false), "more is always believed");
        assert!(!guard.at(100, 6, 5, false), "only a full read ends it");
        assert!(guard.at(101, 6, 1, true));
        let mut slow = Sequence::new();
        for (round, before) in (1..=10).rev().enumerate() {
            let believed = slow.at(round as u64 * 60, before, before - 1, false);
            assert_eq!(believed, before > 1, "the last one is all there is: {before}");
        }
    }

    #[test]
    fn without_a_guard_all_is_believed() {
        let mut guard = Guard::new(None, WAIT);
        assert_eq!(guard.judge(100, 0, Instant::now(), false), Verdict::Believe);
    }
}
