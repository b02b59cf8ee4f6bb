//! Rate limit of requests.

use std::time::Duration;
use tokio::time::Instant;

/// A token bucket: `burst` requests at once, and one more per `period`.
///
/// Its state is the time at which the bucket is full again (generic cell rate algorithm), so it needs no
/// timer. [`RateLimiter::take`] counts a request even if no token is left: later requests then wait longer.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    burst: u32,
    period: Duration,
    /// `None` before the first request.
    full_at: Option<Instant>,
}

impl RateLimiter {
    /// A full bucket. A burst of 0 counts as 1.
    #[must_use]
    pub const fn new(burst: u32, period: Duration) -> Self {
        let burst = if burst == 0 { 1 } else { burst };
        Self { burst, period, full_at: None }
    }

    /// True if a request may be sent now.
    #[must_use]
    pub fn is_ready(&self, now: Instant) -> bool {
        self.wait(now).is_zero()
    }

    /// Returns the delay before the next request: zero if it may be sent now.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        let missing = self.full_at.map(|full| full.saturating_duration_since(now)).unwrap_or_default();
        missing.saturating_sub(self.spare())
    }

    /// Returns the time of the next request, which can be in the past. `None`: at any time.
    #[must_use]
    pub fn ready_at(&self) -> Option<Instant> {
        // A clock younger than the burst cannot express the time, which is past then.
        self.full_at.and_then(|full| full.checked_sub(self.spare()))
    }

    /// Counts a request sent now.
    pub fn take(&mut self, now: Instant) {
        self.full_at = Some(self.full_at.map_or(now, |full| full.max(now)) + self.period);
    }

    pub fn reset(&mut self) {
        self.full_at = None;
    }

    /// Time from the last token to a full bucket.
    fn spare(&self) -> Duration {
        self.period.saturating_mul(self.burst - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: Duration = Duration::from_millis(100);

    /// Sends a request if it may be sent now; returns whether it may.
    fn try_take(limiter: &mut RateLimiter, now: Instant) -> bool {
        let ready = limiter.is_ready(now);
        if ready {
            limiter.take(now);
        }
        ready
    }

    /// Sends whenever it may, until `end`; how many were sent.
    fn send_all(limiter: &mut RateLimiter, mut now: Instant, end: Instant) -> u32 {
        let mut sent = 0;
        while now < end {
            if try_take(limiter, now) {
                sent += 1;
            } else {
                now += limiter.wait(now);
            }
        }
        sent
    }

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(5, PERIOD);
        assert_eq!(send_all(&mut limiter, start, start + Duration::from_nanos(1)), 5);
        assert_eq!(limiter.wait(start), PERIOD);
        assert_eq!(send_all(&mut limiter, start, start + PERIOD * 10), 9);
    }

    #[test]
    fn quiet_fills_the_bucket_and_no_more() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(3, PERIOD);
        let instantly = Duration::from_nanos(1);
        assert_eq!(send_all(&mut limiter, start, start + instantly), 3);
        let later = start + PERIOD * 2;
        assert_eq!(send_all(&mut limiter, later, later + instantly), 2);
        let much_later = start + PERIOD * 1000;
        assert_eq!(send_all(&mut limiter, much_later, much_later + instantly), 3);
    }

    #[test]
    fn what_is_sent_beyond_the_limit_is_paid_for_later() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(1, PERIOD);
        (0..4).for_each(|_| limiter.take(start));
        assert_eq!(limiter.wait(start), PERIOD * 4);
        assert_eq!(limiter.ready_at(), Some(start + PERIOD * 4));
        limiter.reset();
        assert!(limiter.is_ready(start) && limiter.ready_at().is_none());
    }

    #[test]
    fn no_burst_is_a_burst_of_one() {
        let mut limiter = RateLimiter::new(0, PERIOD);
        let now = Instant::now();
        assert!(try_take(&mut limiter, now) && !try_take(&mut limiter, now));
    }

    proptest! {
        #[test]
        fn no_span_of_time_sees_more_than_a_burst_and_its_share(
            burst in 1u32..20, steps in prop::collection::vec(0u64..500, 1..200), from in 0usize..200,
        ) {
            let mut now = Instant::now();
            let mut limiter = RateLimiter::new(burst, PERIOD);
            let mut sent = Vec::new();
            for step in steps {
                now += Duration::from_millis(step);
                if try_take(&mut limiter, now) {
                    sent.push(now);
                }
            }
            let sent = sent.get(from..).unwrap_or_default();
            for (count, at) in (1u128..).zip(sent) {
                let share = (*at - sent[0]).as_nanos() / PERIOD.as_nanos();
                prop_assert!(count <= u128::from(burst) + share);
            }
        }
    }
}
