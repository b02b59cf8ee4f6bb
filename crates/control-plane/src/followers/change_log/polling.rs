//! Schedule for polling clients for acknowledgements of the newest changes.

use std::time::{Duration, Instant};

/// Pause between a change and the first poll, addition to it for each concerned client, and maximum pause. A
/// thousand clients need about 30 ms, so earlier polls would be useless.
const SOON: Duration = Duration::from_millis(10);
const LATER_FOR_EACH: Duration = Duration::from_micros(50);
const SELDOM: Duration = Duration::from_millis(500);
/// Inverse of the share of a processor's time that polling may use.
const PART: u32 = 50;

/// Schedule of the polls.
pub(super) struct PollSchedule {
    next: Instant,
    pause: Duration,
    /// Earliest time of the next poll, by the duration of the last one.
    rests_until: Instant,
}

impl PollSchedule {
    /// Returns a schedule without polls so far.
    pub(super) fn new(now: Instant) -> Self {
        Self { next: now, pause: SOON, rests_until: now }
    }

    /// Returns the time of the next poll.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Notes a change that concerns that many clients. `waits` is true if earlier changes are still tracked.
    pub(super) fn changed(&mut self, now: Instant, concerned: usize, waits: bool) {
        let concerned = u32::try_from(concerned).unwrap_or(u32::MAX);
        self.pause = SOON.saturating_add(LATER_FOR_EACH.saturating_mul(concerned)).min(SELDOM);
        let next = now + self.pause;
        // Further changes must not postpone the poll that is due after the first.
        self.next = if waits { next.min(self.next) } else { next }.max(self.rests_until);
    }

    /// Notes the end of a poll.
    pub(super) fn polled(&mut self, began: Instant, now: Instant) {
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
    fn polls_come_late_for_many_and_seldom_at_last() {
        let start = Instant::now();
        let mut schedule = PollSchedule::new(start);
        let mut after = |concerned| {
            schedule.changed(start, concerned, false);
            schedule.next() - start
        };
        assert_eq!([after(0), after(1_000), after(1_000_000)], [10 * MS, 60 * MS, 500 * MS]);
        schedule.changed(start, 1_000, false);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            let now = schedule.next();
            schedule.polled(now, now);
            pauses.push(schedule.next() - now);
        }
        assert_eq!(pauses, [120 * MS, 240 * MS, 480 * MS, 500 * MS, 500 * MS]);
    }

    #[test]
    fn changes_without_end_do_not_postpone_a_poll() {
        let start = Instant::now();
        let mut schedule = PollSchedule::new(start);
        schedule.changed(start, 1_000, false);
        for n in 1..100 {
            schedule.changed(start + n * MS, 1_000, true);
        }
        assert_eq!(schedule.next() - start, 60 * MS);
        // One who is late is looked at seldom: a change that comes meanwhile brings the next look forward.
        let mut now = start;
        for _ in 0..9 {
            now = schedule.next();
            schedule.polled(now, now);
        }
        schedule.changed(now, 0, true);
        assert_eq!(schedule.next() - now, 10 * MS);
    }

    #[test]
    fn polls_take_a_small_part_of_the_time() {
        let start = Instant::now();
        let mut schedule = PollSchedule::new(start);
        schedule.changed(start, 10, false);
        schedule.polled(start, start + 20 * MS);
        assert_eq!(schedule.next() - start, 1_020 * MS);
        schedule.changed(start + 30 * MS, 0, true);
        assert_eq!(schedule.next() - start, 1_020 * MS, "also after a change");
    }
}
