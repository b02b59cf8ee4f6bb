//! Whether the control loop is alive: it says so itself, again and again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When the loop was seen last.
#[derive(Debug)]
pub(crate) struct Pulse {
    began: Instant,
    /// Milliseconds after `began`.
    seen: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { began: Instant::now(), seen: AtomicU64::new(0) }
    }
}

impl Pulse {
    /// The loop is there, at that time.
    pub(crate) fn beat(&self, now: Instant) {
        let after = now.saturating_duration_since(self.began).as_millis();
        self.seen.store(u64::try_from(after).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// For how long nothing was seen of it.
    pub(crate) fn silent_for(&self, now: Instant) -> Duration {
        let seen = Duration::from_millis(self.seen.load(Ordering::Relaxed));
        now.saturating_duration_since(self.began).saturating_sub(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_from_the_last_beat() {
        let pulse = Pulse::default();
        let at = |seconds| pulse.began + Duration::from_secs(seconds);
        assert_eq!(pulse.silent_for(at(5)), Duration::from_secs(5), "it has not begun yet");
        pulse.beat(at(7));
        assert_eq!(pulse.silent_for(at(7)), Duration::ZERO);
        assert_eq!(pulse.silent_for(at(40)), Duration::from_secs(33));
    }
}
