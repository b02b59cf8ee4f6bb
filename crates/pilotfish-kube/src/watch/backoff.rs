//! How long to wait before something is tried again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(15);

/// Doubles from 0.2 s to 15 s, with jitter, so that a thousand clients of a server that comes back do not come at once.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It worked: the next failure is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// How often it failed since it worked.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The wait after a further failure; at least `least`, which a busy server may name.
    pub fn next(&mut self, least: Duration) -> Duration {
        self.next_with(least, random())
    }

    /// The same with the jitter given, from 0 to 1.
    fn next_with(&mut self, least: Duration, jitter: f64) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0)).max(least)
    }
}

/// A number from 0 to 1 that differs from call to call and from process to process.
pub(crate) fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
    let number = bits as f64 / (1u64 << 53) as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_ceiling() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..9).map(|_| backoff.next_with(Duration::ZERO, 1.0).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000]);
        assert_eq!(backoff.next_with(Duration::from_secs(40), 0.0), Duration::from_secs(40));
        backoff.reset();
        assert_eq!(backoff.next_with(Duration::ZERO, 0.0), Duration::from_millis(100));
    }
}
