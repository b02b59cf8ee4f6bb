//! Rate limit of log lines that clients can cause.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Default number of lines in one [`SPAN`].
const LINES: u32 = 10;
const SPAN: Duration = Duration::from_secs(10);
/// Number of lines per [`SPAN_OF_LIMITS`] for exceeded limits, which metrics count, too.
const LINES_OF_LIMITS: u32 = 6;
const SPAN_OF_LIMITS: Duration = Duration::from_secs(60);

/// Allows ten lines in ten seconds by default, and counts suppressed ones.
#[derive(Debug)]
pub struct LogLimit {
    lines: u32,
    span: Duration,
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
    /// At most `lines` lines in ten seconds.
    #[must_use]
    pub fn of(lines: u32) -> Self {
        Self { lines, span: SPAN, state: Mutex::default() }
    }

    /// Six lines in a minute, for limits that clients exceed.
    #[must_use]
    pub fn of_limits() -> Self {
        Self { lines: LINES_OF_LIMITS, span: SPAN_OF_LIMITS, state: Mutex::default() }
    }

    /// Returns the number of lines suppressed since the last one; `None` if no line may be written now.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= self.span) {
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

    #[test]
    fn limits_that_are_reached_are_few_lines_a_minute() {
        let (limit, start) = (LogLimit::of_limits(), Instant::now());
        let lines =
            (0..6_000).filter(|n| limit.allow(start + Duration::from_millis(10 * n)).is_some()).count();
        assert_eq!(lines, LINES_OF_LIMITS as usize);
        assert_eq!(limit.allow(start + SPAN_OF_LIMITS), Some(6_000 - u64::from(LINES_OF_LIMITS)));
    }
}
