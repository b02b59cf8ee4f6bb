//! Running time: a clock that stops while the process is suspended.

use std::time::{Duration, Instant};

/// A clock that does not count suspensions of the process.
///
/// A process that is suspended for a minute (SIGSTOP, a debugger, a frozen VM) receives no heartbeats in that
/// minute, through no fault of its clients. A step above [`RunningClock::LONGEST_STEP`], such as a late
/// wake-up, counts as that long. A step above [`RunningClock::PAUSE`] does not count at all: the process was
/// suspended for an unknown part of it, and time must not pass too fast.
#[derive(Clone, Debug)]
pub struct RunningClock {
    last: Instant,
    running: Duration,
}

impl RunningClock {
    /// Interval at which the clock must be advanced, by a thread or task without slow work.
    pub const CADENCE: Duration = Duration::from_millis(50);
    /// The longest step that counts in full.
    pub const LONGEST_STEP: Duration = Duration::from_millis(100);
    /// A longer step is a suspension of the process.
    pub const PAUSE: Duration = Duration::from_millis(200);

    /// A clock at zero.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { last: now, running: Duration::ZERO }
    }

    /// Advances the clock. Returns the running time.
    pub fn advance(&mut self, now: Instant) -> Duration {
        let step = now.saturating_duration_since(self.last);
        if step <= Self::PAUSE {
            self.running += step.min(Self::LONGEST_STEP);
        }
        self.last = self.last.max(now);
        self.running
    }

    /// Skips the time until now.
    pub fn skip(&mut self, now: Instant) {
        self.last = self.last.max(now);
    }

    /// Returns the running time at the last step.
    #[must_use]
    pub fn running(&self) -> Duration {
        self.running
    }
}
