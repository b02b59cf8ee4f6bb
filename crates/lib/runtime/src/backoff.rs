//! Retry delays with exponential backoff and jitter.

use crate::Jitter;
use std::time::Duration;

/// Parameters of a backoff: delays double with each failure up to a ceiling. By default half of each delay is
/// random, so that a thousand clients of a restarted server do not reconnect at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffPolicy {
    /// Delay after the first failure.
    first: Duration,
    ceiling: Duration,
    /// Random share of each delay, from 0 to 1.
    jitter: f64,
}

impl BackoffPolicy {
    /// Doubles from `first` to `ceiling`; half of each delay is random.
    #[must_use]
    pub const fn new(first: Duration, ceiling: Duration) -> Self {
        Self { first, ceiling, jitter: 0.5 }
    }

    /// Sets the random share of each delay: 0 for none, 1 for delays from zero up.
    #[must_use]
    pub const fn with_jitter(self, share: f64) -> Self {
        Self { jitter: share.clamp(0.0, 1.0), ..self }
    }

    /// Returns the delay after this number of failures, starting at 1. `random` is from 0 to 1: 1 gives the
    /// longest delay.
    ///
    /// For state machines that count failures themselves; others keep a [`Backoff`].
    #[must_use]
    pub fn wait(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let whole = self.first.saturating_mul(1 << doublings).min(self.ceiling);
        whole.mul_f64(1.0 - self.jitter * (1.0 - random.clamp(0.0, 1.0)))
    }
}

/// Counts consecutive failures and computes the delay after each.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: BackoffPolicy,
    jitter: Jitter,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff without failures.
    #[must_use]
    pub const fn new(policy: BackoffPolicy, jitter: Jitter) -> Self {
        Self { policy, jitter, failures: 0 }
    }

    /// Records a success: the next failure counts as the first.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Number of failures since the last success.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Counts a failure and returns the delay.
    pub fn wait(&mut self) -> Duration {
        self.wait_at_least(Duration::ZERO)
    }

    /// Counts a failure and returns the delay: at least `floor`, which a busy server may have sent
    /// (`Retry-After`), even if it exceeds the ceiling.
    pub fn wait_at_least(&mut self, floor: Duration) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.policy.wait(self.failures, self.jitter.fraction()).max(floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(15));

    fn backoff(policy: BackoffPolicy) -> Backoff {
        Backoff::new(policy, Jitter::seeded(0))
    }

    #[test]
    fn waits_double_up_to_the_ceiling() {
        let waits: Vec<_> = (0..10).map(|failures| POLICY.wait(failures, 1.0).as_millis()).collect();
        assert_eq!(waits, [200, 200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000]);
        assert_eq!(POLICY.wait(u32::MAX, 1.0), Duration::from_secs(15));
    }

    #[test]
    fn jitter_takes_its_share_of_the_wait() {
        let cases = [(0.0, 0.0, 400), (0.5, 0.0, 200), (0.5, 0.5, 300), (0.5, 1.0, 400), (1.0, 0.25, 100)];
        for (share, random, millis) in cases {
            let wait = POLICY.with_jitter(share).wait(2, random);
            assert_eq!(wait, Duration::from_millis(millis), "{share} {random}");
        }
    }

    #[test]
    fn a_success_resets_the_backoff() {
        let mut backoff = backoff(POLICY.with_jitter(0.0));
        assert_eq!([backoff.wait(), backoff.wait()].map(|wait| wait.as_millis()), [200, 400]);
        assert_eq!(backoff.failures(), 2);
        backoff.reset();
        assert_eq!((backoff.failures(), backoff.wait().as_millis()), (0, 200));
    }

    #[test]
    fn a_floor_lengthens_a_wait_even_over_the_ceiling() {
        let mut backoff = backoff(POLICY);
        assert_eq!(backoff.wait_at_least(Duration::from_secs(40)), Duration::from_secs(40));
        assert!(backoff.wait_at_least(Duration::from_millis(1)) >= Duration::from_millis(200));
    }

    #[test]
    fn a_seed_repeats_the_waits() {
        let waits = |seed| {
            let mut backoff = Backoff::new(POLICY, Jitter::seeded(seed));
            (0..8).map(|_| backoff.wait()).collect::<Vec<_>>()
        };
        assert_eq!(waits(3), waits(3));
        assert_ne!(waits(3), waits(4));
    }

    proptest! {
        #[test]
        fn a_wait_stays_between_its_share_and_the_ceiling(
            failures in any::<u32>(), random in -1.0f64..2.0, share in 0.0f64..1.0,
        ) {
            let policy = POLICY.with_jitter(share);
            let (wait, longest) = (policy.wait(failures, random), policy.wait(failures, 1.0));
            prop_assert!(wait <= longest && longest <= Duration::from_secs(15));
            prop_assert!(wait >= longest.mul_f64((1.0 - share) * 0.999));
        }
    }
}
