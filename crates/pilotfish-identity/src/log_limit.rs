//! A limit on log lines that clients can cause.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How many lines are written in one [`SPAN`], where nothing else is said.
const LINES: u32 = 10;
const SPAN: Duration = Duration::from_secs(10);

/// Allows ten lines in ten seconds, or another number of them, and counts the others.
#[derive(Debug)]
pub struct LogLimit {
    lines: u32,
    state: Mutex<State>,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::of(LINES)
    }
}

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// So many lines in ten seconds.
    #[must_use]
    pub fn of(lines: u32) -> Self {
        Self { lines, state: Mutex::default() }
    }

    /// How many lines were left out since the last one, if a line may be written now.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= SPAN) {
            state.since = Some(now);
            state.lines = 0;
        }
        if state.lines >= self.lines {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_up_to_the_limit_and_the_others_counted() {
        let limit = LogLimit::default();
        let start = Instant::now();
        let allowed: Vec<_> = (0..LINES + 3).map(|_| limit.allow(start)).collect();
        assert_eq!(allowed.iter().flatten().count(), LINES as usize);
        assert_eq!(limit.allow(start + SPAN), Some(3), "the next line has the number of those left out");
        assert_eq!(limit.allow(start + SPAN), Some(0));
    }
}
