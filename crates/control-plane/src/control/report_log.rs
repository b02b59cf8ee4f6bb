//! Log lines on configuration, at a limited rate: users may write objects at any rate, each with a hundred
//! mistakes.

use std::time::{Duration, Instant};

/// Maximum number of lines on one source in a [`SPAN`]. A first start with many mistakes lists this many of
/// them.
const LINES: u32 = 50;
const SPAN: Duration = Duration::from_secs(60);

/// Rate limit of log lines about one source.
#[derive(Debug, Default)]
pub(crate) struct ReportLog {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// Decision on one more line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// The line is written. Holds the number of lines suppressed before it.
    Line(u64),
    /// A notice is written in its place: further lines are suppressed for a while.
    Enough,
    /// The line is suppressed.
    Nothing,
}

impl ReportLog {
    /// Counts one more line, and decides if it is written.
    pub(crate) fn next(&mut self, now: Instant) -> Say {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= SPAN) {
            (self.since, self.lines) = (Some(now), 0);
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines <= LINES {
            return Say::Line(std::mem::take(&mut self.left_out));
        }
        self.left_out += 1;
        if self.lines == LINES + 1 { Say::Enough } else { Say::Nothing }
    }

    /// Writes a line on a source, unless it is suppressed.
    pub(crate) fn write(&mut self, source: &str, now: Instant, line: impl FnOnce()) {
        match self.next(now) {
            Say::Line(left_out) => {
                if left_out > 0 {
                    tracing::info!(source, left_out, "log lines about this source were suppressed");
                }
                line();
            }
            Say::Enough => tracing::warn!(
                source,
                "suppressing log lines about this source for up to a minute; `pilotfish problems` lists all"
            ),
            Say::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_minute_are_limited_and_the_others_counted() {
        let (mut log, start) = (ReportLog::default(), Instant::now());
        let said: Vec<Say> = (0..LINES + 30).map(|_| log.next(start)).collect();
        let (lines, rest) = said.split_at(LINES as usize);
        assert!(lines.iter().all(|say| *say == Say::Line(0)));
        assert_eq!(rest[0], Say::Enough, "it is said once");
        assert!(rest[1..].iter().all(|say| *say == Say::Nothing));
        assert_eq!(log.next(start + SPAN), Say::Line(30));
        assert_eq!(log.next(start + SPAN), Say::Line(0));
    }
}
