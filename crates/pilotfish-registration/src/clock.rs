//! Time that passes only while we run.

use std::time::{Duration, Instant};

/// A clock that does not count our own pauses.
///
/// Who holds leases and is stopped for a minute (a debugger, a frozen VM, a disk that hangs) has heard no heartbeat in that minute, which is
/// nobody's fault but its own. A step longer than [`RunningClock::LONGEST_STEP`] counts as that long.
#[derive(Clone, Debug)]
pub struct RunningClock {
    last: Instant,
    running: Duration,
}

impl RunningClock {
    /// The longest step that counts in full. The clock must be advanced more often.
    pub const LONGEST_STEP: Duration = Duration::from_secs(1);

    /// A clock at zero.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { last: now, running: Duration::ZERO }
    }

    /// Moves the clock on. Returns the time that we have been running.
    pub fn advance(&mut self, now: Instant) -> Duration {
        self.running += now.saturating_duration_since(self.last).min(Self::LONGEST_STEP);
        self.last = self.last.max(now);
        self.running
    }

    /// Leaves out the time until now.
    pub fn skip(&mut self, now: Instant) {
        self.last = self.last.max(now);
    }

    /// The time at the last step.
    #[must_use]
    pub fn running(&self) -> Duration {
        self.running
    }
}
