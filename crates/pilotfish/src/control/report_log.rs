//! Lines of the log about configuration: users write objects as often as they like, and each may have a hundred mistakes.

use std::time::{Duration, Instant};

/// Lines in one [`SPAN`] about one source. A first start with many mistakes names this many of them.
const LINES: u32 = 50;
const SPAN: Duration = Duration::from_secs(60);

/// Which lines about one source are written.
#[derive(Debug, Default)]
pub(crate) struct ReportLog {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// What is to be written for one more line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// The line; so many were left out before it.
    Line(u64),
    /// In its place, that no more are written for a while.
    Enough,
    /// Nothing.
    Nothing,
}

impl ReportLog {
    /// One more line.
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

    /// Writes a line about a source, if it may be written.
    pub(crate) fn write(&mut self, source: &str, now: Instant, line: impl FnOnce()) {
        match self.next(now) {
            Say::Line(left_out) => {
                if left_out > 0 {
                    tracing::info!(source, left_out, "lines about this source were left out");
                }
                line();
            }
            Say::Enough => tracing::warn!(
                source,
                "more lines about this source are left out for up to a minute; `pilotfish problems` lists what is wrong"
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
