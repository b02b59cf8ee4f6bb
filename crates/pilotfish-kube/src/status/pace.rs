//! How fast writes may come: a limit for good days, and rest for an API server that cannot keep up or is away.

use crate::watch::Backoff;
use std::time::Duration;
use tokio::time::Instant;

/// Writes that may come at once, and how soon there may be another one after that: 100 in a second, as istiod has it.
pub(super) const BURST: u32 = 500;
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// When the next write may be sent.
pub(super) struct Pace {
    allowance: Allowance,
    backoff: Backoff,
    rests_until: Option<Instant>,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { allowance: Allowance::new(now), backoff: Backoff::default(), rests_until: None }
    }

    /// Whether a write may be sent now.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| until <= now) && self.allowance.has(now)
    }

    /// A write is sent.
    pub(super) fn sent(&mut self) {
        self.allowance.take();
    }

    /// When there may be another write, if there may be none now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let rest = self.rests_until.filter(|until| *until > now);
        rest.max(self.allowance.refill())
    }

    /// The API server answered as it should, be it yes or no.
    pub(super) fn answered(&mut self) {
        self.backoff.reset();
    }

    /// It did not, and wants to be left alone for that long: all writes rest, longer each time.
    pub(super) fn troubled(&mut self, now: Instant, after: Duration) {
        // Writes that were sent together fail together, which is one trouble.
        if self.rests_until.is_none_or(|until| until <= now) {
            self.rests_until = Some(now + self.backoff.next(after));
        }
    }
}

/// How many writes there may be: a burst, and then one after each pause.
pub(super) struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    pub(super) fn has(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.since).as_millis() / PAUSE.as_millis().max(1);
        let more = u32::try_from(more).unwrap_or(BURST).min(BURST - self.left.min(BURST));
        self.left += more;
        self.since = if self.left >= BURST { now } else { self.since + PAUSE * more };
        self.left > 0
    }

    pub(super) fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// When there is one again, if there is none.
    pub(super) fn refill(&self) -> Option<Instant> {
        (self.left == 0).then(|| self.since + PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        let mut now = begin;
        let mut writes = 0;
        while now < begin + Duration::from_secs(10) {
            if pace.allows(now) {
                pace.sent();
                writes += 1;
            } else {
                now = pace.next(now).expect("there is none");
            }
        }
        let steady = u32::try_from(Duration::from_secs(10).as_millis() / PAUSE.as_millis()).unwrap();
        assert!((steady..=steady + BURST + 1).contains(&writes), "{writes}");
    }

    #[test]
    fn a_server_in_trouble_is_left_alone_ever_longer_and_as_long_as_it_asks() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        let mut rests = Vec::new();
        for _ in 0..8 {
            pace.troubled(now, Duration::ZERO);
            // The others that were under way fail as well.
            pace.troubled(now, Duration::ZERO);
            assert!(!pace.allows(now));
            let until = pace.next(now).expect("it rests");
            rests.push(until - now);
            now = until;
            assert!(pace.allows(now));
        }
        assert!(rests[0] <= Duration::from_millis(200), "{rests:?}");
        assert!(rests[7] >= Duration::from_secs(7) && rests[7] <= Duration::from_secs(15), "{rests:?}");
        pace.answered();
        pace.troubled(now, Duration::from_secs(5));
        assert_eq!(pace.next(now), Some(now + Duration::from_secs(5)));
    }
}
