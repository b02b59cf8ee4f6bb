//! Time that passes only while we run.

use std::time::{Duration, Instant};

/// A clock that does not count our own pauses.
///
/// A server that is stopped for a minute (SIGSTOP, a debugger, a frozen VM) receives no heartbeat in that minute, through no fault of
/// its clients. A step beyond [`RunningClock::LONGEST_STEP`] counts as that long: a late wake-up. One beyond [`RunningClock::PAUSE`]
/// does not count at all: the process did not run for an unknown part of it, and time must not pass too fast.
#[derive(Clone, Debug)]
pub struct RunningClock {
    last: Instant,
    running: Duration,
}

impl RunningClock {
    /// Interval at which the clock has to be advanced, by a thread or task that does nothing slow.
    pub const CADENCE: Duration = Duration::from_millis(50);
    /// The longest step that counts in full.
    pub const LONGEST_STEP: Duration = Duration::from_millis(100);
    /// A longer step is a pause of the process.
    pub const PAUSE: Duration = Duration::from_millis(200);

    /// A clock at zero.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { last: now, running: Duration::ZERO }
    }

    /// Moves the clock on. Returns the time that we have been running.
    pub fn advance(&mut self, now: Instant) -> Duration {
        let step = now.saturating_duration_since(self.last);
        if step <= Self::PAUSE {
            self.running += step.min(Self::LONGEST_STEP);
        }
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
