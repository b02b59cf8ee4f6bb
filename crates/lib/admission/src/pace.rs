//! Read rate of the requests of a stream, or of the frames of a connection.
//!
//! A client above its rate is read more slowly, and flow control slows it down. It is not refused, because
//! the burst after a reconnect looks the same for a while.

use std::time::{Duration, Instant};

/// Maximum burst, in seconds of the rate.
const BURST: u32 = 10;

/// Remaining budget of a client.
#[derive(Debug)]
pub struct Pace {
    per_second: u32,
    /// Time at which the cost so far is paid at the rate. It may be ahead of now by a burst.
    paid: Instant,
    until: Option<Instant>,
}

impl Pace {
    /// Creates a full budget that regains `per_second` each second.
    #[must_use]
    pub fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second: per_second.max(1), paid: now, until: None }
    }

    /// Charges a cost. Returns true if the client has to wait now and did not before.
    pub fn spend(&mut self, cost: usize, now: Instant) -> bool {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        let time = Duration::from_secs(1).saturating_mul(cost) / self.per_second;
        self.paid = self.paid.max(now) + time;
        let burst = Duration::from_secs(BURST.into());
        let waits = self.paid.saturating_duration_since(now) > burst;
        let had_to = self.until.is_some();
        self.until = waits.then(|| self.paid.checked_sub(burst).unwrap_or(now));
        waits && !had_to
    }

    /// True if the client has to wait.
    pub fn is_over(&mut self, now: Instant) -> bool {
        self.until = self.until.filter(|until| now < *until);
        self.until.is_some()
    }

    /// End of the wait; `None` if the client need not wait.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_the_rest_comes_at_its_rate() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(100, start);
        for _ in 0..1_000 {
            assert!(!pace.spend(1, start));
        }
        assert!(!pace.is_over(start), "ten seconds' worth at once");
        assert!(pace.spend(1, start), "the first one beyond is told");
        assert!(pace.is_over(start) && !pace.is_over(at(10)));
        assert!(pace.spend(50, at(10)) && pace.until() == Some(at(510)));
        assert!(!pace.spend(1, at(400)), "it is told once");
        assert!(!pace.is_over(at(520)));
    }

    #[test]
    fn whatever_a_request_costs_it_is_paid_for() {
        let start = Instant::now();
        let mut pace = Pace::new(1, start);
        assert!(pace.spend(usize::MAX, start));
        assert!(pace.is_over(start + Duration::from_secs(3_600)));
    }
}
