//! Time of the next request: after half of a certificate's life, and after failures.

use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Delays after failures.
const RETRIES: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(60));
/// Shortest time between two certificates.
const SHORTEST: Duration = Duration::from_secs(1);
/// Random share of the time until a renewal: certificates of workloads that started together are renewed
/// apart.
const JITTER: f64 = 0.1;

/// Time of the next request, which is due at first.
#[derive(Debug)]
pub(super) struct Schedule {
    due: SystemTime,
    backoff: Backoff,
    jitter: Jitter,
}

impl Default for Schedule {
    fn default() -> Self {
        Self::with(Jitter::default())
    }
}

impl Schedule {
    fn with(jitter: Jitter) -> Self {
        Self { due: UNIX_EPOCH, backoff: Backoff::new(RETRIES, jitter.fork("retries")), jitter }
    }

    /// Returns the time of the next request.
    pub(super) fn due(&self) -> SystemTime {
        self.due
    }

    /// Plans the renewal of a certificate: at 45 % to 55 % of the time from when it was obtained to its end.
    pub(super) fn obtained(&mut self, at: SystemTime, expires: SystemTime) {
        self.backoff.reset();
        let half = expires.duration_since(at).unwrap_or_default() / 2;
        let wait = half.mul_f64(1.0 - JITTER + 2.0 * JITTER * self.jitter.fraction());
        self.due = at + wait.max(SHORTEST);
    }

    /// Plans another try, and returns the time until then.
    pub(super) fn failed(&mut self, now: SystemTime) -> Duration {
        let wait = self.backoff.wait();
        self.due = now + wait;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn renewals_are_spread_around_half_of_the_life() {
        let now = UNIX_EPOCH + HOUR * 1000;
        let waits = (0..100).map(|seed| {
            let mut schedule = Schedule::with(Jitter::seeded(seed));
            assert!(schedule.due() < now);
            schedule.obtained(now, now + HOUR * 20);
            schedule.due().duration_since(now).unwrap()
        });
        let (least, most) =
            waits.fold((HOUR * 20, Duration::ZERO), |(a, b), wait| (a.min(wait), b.max(wait)));
        assert!(least >= HOUR * 9 && least < HOUR * 10 && most > HOUR * 10 && most <= HOUR * 11);
    }

    #[test]
    fn failures_are_retried_at_growing_intervals_until_a_success() {
        let now = UNIX_EPOCH + HOUR;
        let mut schedule = Schedule::with(Jitter::seeded(1));
        let waits: Vec<_> = (0..8).map(|_| schedule.failed(now)).collect();
        assert!(waits[0] <= Duration::from_secs(1) && waits[7] >= Duration::from_secs(30), "{waits:?}");
        assert_eq!(schedule.due(), now + waits[7]);
        schedule.obtained(now, now + HOUR);
        assert!(schedule.failed(now) <= Duration::from_secs(1));
    }

    #[test]
    fn short_and_past_lives_do_not_lead_to_a_storm() {
        let now = UNIX_EPOCH + HOUR;
        for expires in [now, now - HOUR, now + Duration::from_millis(10)] {
            let mut schedule = Schedule::with(Jitter::seeded(1));
            schedule.obtained(now, expires);
            assert_eq!(schedule.due(), now + SHORTEST);
        }
    }
}
