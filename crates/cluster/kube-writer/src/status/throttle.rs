//! Rate limit of status writes, and pauses for an API server that is overloaded or unavailable.

use pilotfish_admission::TokenBucket;
use pilotfish_kube::request::BACKOFF;
use pilotfish_runtime::{Backoff, Jitter};
use std::time::Duration;
use tokio::time::Instant;

/// Burst of writes, and the interval between writes after it: 100 per second, as in istiod.
pub(super) const BURST: u32 = 500;
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// Time of the next write.
pub(super) struct Throttle {
    limiter: TokenBucket,
    backoff: Backoff,
    rests_until: Option<Instant>,
}

impl Throttle {
    pub(super) fn new(jitter: Jitter) -> Self {
        let limiter = TokenBucket::new(BURST, PAUSE);
        Self { limiter, backoff: Backoff::new(BACKOFF, jitter), rests_until: None }
    }

    /// True if a write may be sent now.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.ready_at(now).is_none()
    }

    /// Counts a sent write.
    pub(super) fn take(&mut self, now: Instant) {
        self.limiter.take(now);
    }

    /// Time of the next write; `None` if it may be sent now.
    pub(super) fn ready_at(&self, now: Instant) -> Option<Instant> {
        self.rests_until.max(self.limiter.ready_at()).filter(|at| *at > now)
    }

    /// Records a response, successful or not, from a working API server.
    pub(super) fn succeeded(&mut self) {
        self.backoff.reset();
    }

    /// Records a failure: all writes pause for at least `retry_after`, longer each time.
    pub(super) fn failed(&mut self, now: Instant, retry_after: Duration) {
        // Writes that were sent together fail together, and count as one failure.
        if self.rests_until.is_none_or(|until| until <= now) {
            self.rests_until = Some(now + self.backoff.wait_at_least(retry_after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle() -> Throttle {
        Throttle::new(Jitter::seeded(0))
    }

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let begin = Instant::now();
        let mut throttle = throttle();
        let mut now = begin;
        let mut writes = 0;
        while now < begin + Duration::from_secs(10) {
            if throttle.is_ready(now) {
                throttle.take(now);
                writes += 1;
            } else {
                now = throttle.ready_at(now).expect("there is none");
            }
        }
        let steady = u32::try_from(Duration::from_secs(10).as_millis() / PAUSE.as_millis()).unwrap();
        assert!((steady..=steady + BURST + 1).contains(&writes), "{writes}");
    }

    #[test]
    fn a_failing_server_is_retried_with_backoff_and_after_its_retry_after() {
        let mut now = Instant::now();
        let mut throttle = throttle();
        let mut rests = Vec::new();
        for _ in 0..8 {
            throttle.failed(now, Duration::ZERO);
            // The others that were under way fail as well.
            throttle.failed(now, Duration::ZERO);
            assert!(!throttle.is_ready(now));
            let until = throttle.ready_at(now).expect("it rests");
            rests.push(until - now);
            now = until;
            assert!(throttle.is_ready(now));
        }
        assert!(rests[0] <= Duration::from_millis(200), "{rests:?}");
        assert!(rests[7] >= Duration::from_secs(7) && rests[7] <= Duration::from_secs(15), "{rests:?}");
        throttle.succeeded();
        throttle.failed(now, Duration::from_secs(5));
        assert_eq!(throttle.ready_at(now), Some(now + Duration::from_secs(5)));
    }
}
