//! How fast something is read: the requests of one stream, or the frames of a connection.
//!
//! A client that asks without end is read more slowly, and so is held back by HTTP/2. It is not refused: one that has much to ask for at
//! once, after a reconnect for example, looks the same for a while.

use std::time::{Duration, Instant};

/// Seconds' worth that may come at once.
const BURST: u32 = 10;

/// What a client may still spend.
#[derive(Debug)]
pub struct Pace {
    per_second: u32,
    /// When what was spent so far is paid for, at that rate. A burst ahead of the present is allowed.
    paid: Instant,
    until: Option<Instant>,
}

impl Pace {
    /// Nothing is spent.
    #[must_use]
    pub fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second: per_second.max(1), paid: now, until: None }
    }

    /// Counts what came by what it costs. Returns whether the client has to wait now and had not to before.
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

    /// Whether nothing is to be read now.
    pub fn is_over(&mut self, now: Instant) -> bool {
        self.until = self.until.filter(|until| now < *until);
        self.until.is_some()
    }

    /// When reading goes on; `None` while it does.
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
