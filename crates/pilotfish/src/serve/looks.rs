//! When clients are looked at, to see who has acknowledged the newest changes.

use std::time::{Duration, Instant};

/// How soon after a change clients are looked at, how much later for each that it concerns, and how seldom at last. A thousand have it after 30 ms:
/// until then looking at them is for nothing.
const SOON: Duration = Duration::from_millis(10);
const LATER_FOR_EACH: Duration = Duration::from_micros(50);
const SELDOM: Duration = Duration::from_millis(500);
/// Looking at clients is to take one part in so many of a processor's time.
const PART: u32 = 50;

/// See the module.
pub(super) struct Looks {
    next: Instant,
    pause: Duration,
    /// No look is due before: the longer the last one took, the later.
    rests_until: Instant,
}

impl Looks {
    /// Nobody was looked at so far.
    pub(super) fn new(now: Instant) -> Self {
        Self { next: now, pause: SOON, rests_until: now }
    }

    /// When the next look is due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// A change concerns so many. `waits`: clients were waited for already.
    pub(super) fn changed(&mut self, now: Instant, concerned: usize, waits: bool) {
        let concerned = u32::try_from(concerned).unwrap_or(u32::MAX);
        self.pause = SOON.saturating_add(LATER_FOR_EACH.saturating_mul(concerned)).min(SELDOM);
        let next = now + self.pause;
        // However many changes come, the look after the first of them is not put off.
        self.next = if waits { next.min(self.next) } else { next }.max(self.rests_until);
    }

    /// Clients were looked at.
    pub(super) fn looked(&mut self, began: Instant, now: Instant) {
        self.pause = (2 * self.pause).min(SELDOM);
        self.rests_until = now + PART * (now - began);
        self.next = (now + self.pause).max(self.rests_until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn looks_come_late_for_many_and_seldom_at_last() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        let mut after = |concerned| {
            looks.changed(start, concerned, false);
            looks.next() - start
        };
        assert_eq!([after(0), after(1_000), after(1_000_000)], [10 * MS, 60 * MS, 500 * MS]);
        looks.changed(start, 1_000, false);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            let now = looks.next();
            looks.looked(now, now);
            pauses.push(looks.next() - now);
        }
        assert_eq!(pauses, [120 * MS, 240 * MS, 480 * MS, 500 * MS, 500 * MS]);
    }

    #[test]
    fn changes_without_end_do_not_put_a_look_off() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        looks.changed(start, 1_000, false);
        for n in 1..100 {
            looks.changed(start + n * MS, 1_000, true);
        }
        assert_eq!(looks.next() - start, 60 * MS);
        // One who is late is looked at seldom: a change that comes meanwhile brings the next look forward.
        let mut now = start;
        for _ in 0..9 {
            now = looks.next();
            looks.looked(now, now);
        }
        looks.changed(now, 0, true);
        assert_eq!(looks.next() - now, 10 * MS);
    }

    #[test]
    fn looks_take_a_small_part_of_the_time() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        looks.changed(start, 10, false);
        looks.looked(start, start + 20 * MS);
        assert_eq!(looks.next() - start, 1_020 * MS);
        looks.changed(start + 30 * MS, 0, true);
        assert_eq!(looks.next() - start, 1_020 * MS, "also after a change");
    }
}
