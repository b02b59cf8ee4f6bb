//! `/ready`: numbers for all clients, and problems for those that may see debug pages.
//!
//! ```text
//! probe ──▶ ready? waiting for? (atomics) ──▶ response
//!              └─ problems: the newest lines ◀── a blocking thread, one at a time
//! ```
//!
//! Finding problems takes locks that computations hold, so probes do not do it: it runs separately, and a
//! response waits for it for a moment only. The response is small, regardless of the number of problems.

use crate::routes::ControlPlane;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use pilotfish_api as api;
use pilotfish_api::v1::{PlaneLevel, PlaneVerdict};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum age of lines that are only counted.
const FRESH: Duration = Duration::from_millis(500);
/// Maximum wait for newer lines; then the last ones are used.
const PATIENCE: Duration = Duration::from_millis(500);
/// Maximum number of lines of one kind of problem (`ready-problems`), and of reasons for waiting.
const LINES: usize = 50;
/// Maximum bytes of a line (`ready-line-bytes`).
const LINE_BYTES: usize = 1_024;

/// Problems as lines: at most 50 of each kind, of at most 1 KiB. Further ones are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProblemLines {
    lines: Vec<String>,
    count: usize,
    verdict: Option<PlaneVerdict>,
}

impl ProblemLines {
    /// Adds problems of one kind. Only displayed lines are formatted.
    pub fn add<T: fmt::Display>(&mut self, all: impl Iterator<Item = T>) {
        let mut more = 0_usize;
        for (at, line) in all.enumerate() {
            self.count += 1;
            if at < LINES {
                self.lines.push(cut(&line));
            } else {
                more += 1;
            }
        }
        if more > 0 {
            self.lines.push(format!("and {more} more of this kind: /debug/problemz lists them"));
        }
    }

    /// Sets the verdict that was derived from the same facts.
    #[must_use]
    pub fn with_verdict(self, verdict: PlaneVerdict) -> Self {
        Self { verdict: Some(verdict), ..self }
    }

    /// Verdict for a response whose readiness may be newer.
    fn verdict(&self, ready: bool, told: bool) -> Option<PlaneVerdict> {
        let mut verdict = self.verdict.clone()?;
        if ready == (verdict.level == PlaneLevel::NotReady) {
            verdict = PlaneVerdict::new(ready, verdict.causes);
        }
        if !told {
            verdict.more += verdict.causes.len();
            verdict.causes.clear();
        }
        Some(verdict)
    }

    /// Lines of the text response, in order.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Number of problems, including those without a line.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Text of at most the size of a line.
struct Line(String);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self.0.push_str(text.get(..end).unwrap_or_default());
        self.0.push('…');
        // Ends the formatting.
        Err(fmt::Error)
    }
}

fn cut(text: &impl fmt::Display) -> String {
    let mut line = Line(String::new());
    // The only error is that of a full line.
    let _ = write!(line, "{text}");
    line.0
}

/// The newest lines, and the state of their computation.
pub(crate) struct Prepared {
    turn: Arc<Semaphore>,
    newest: Mutex<Option<(Instant, Arc<ProblemLines>)>>,
}

impl Prepared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { turn: Arc::new(Semaphore::new(1)), newest: Mutex::default() })
    }

    /// Responds with problems, or with numbers.
    pub(crate) async fn answer<C: ControlPlane>(self: &Arc<Self>, plane: &Arc<C>, told: bool) -> Response {
        let mut readiness = plane.readiness();
        let problems = self.problems(plane, told).await;
        readiness.waiting_for_count = readiness.waiting_for.len();
        readiness.problem_count = problems.count();
        readiness.verdict = problems.verdict(readiness.ready, told);
        if told {
            readiness.waiting_for.truncate(LINES);
            readiness.waiting_for.iter_mut().for_each(|text| *text = cut(text));
            readiness.problems = problems.lines().to_vec();
        } else {
            readiness.waiting_for = Vec::new();
        }
        let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, Json::<api::Readiness>(readiness)).into_response()
    }

    /// Problems found since the request, or shortly before it if only numbers are sent, or the previous ones
    /// if that takes too long. Empty before the first time.
    async fn problems<C: ControlPlane>(self: &Arc<Self>, plane: &Arc<C>, told: bool) -> Arc<ProblemLines> {
        let now = Instant::now();
        let oldest = if told { now } else { now.checked_sub(FRESH).unwrap_or(now) };
        if let Some(lines) = self.since(oldest) {
            return lines;
        }
        let made = async {
            let Ok(turn) = Arc::clone(&self.turn).acquire_owned().await else { return };
            if self.since(oldest).is_some() {
                return;
            }
            let (this, plane) = (Arc::clone(self), Arc::clone(plane));
            // Continues after its clients are gone, and releases the permit even after a panic.
            let making = tokio::task::spawn_blocking(move || {
                let began = Instant::now();
                let lines = Arc::new(plane.readiness_problems());
                *this.newest.lock() = Some((began, lines));
                drop(turn);
            });
            let _ = making.await;
        };
        // On a timeout, the previous lines are used.
        let _ = timeout(PATIENCE, made).await;
        self.newest.lock().as_ref().map(|(_, lines)| lines.clone()).unwrap_or_default()
    }

    /// The newest lines, if their computation began at `oldest` or later.
    fn since(&self, oldest: Instant) -> Option<Arc<ProblemLines>> {
        let newest = self.newest.lock();
        newest.as_ref().filter(|(began, _)| *began >= oldest).map(|(_, lines)| lines.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_agrees_with_readiness_and_names_causes_only_to_those_who_see_debug_pages() {
        use pilotfish_api::v1::{Cause, CauseKind};
        let cause = Cause::new(CauseKind::Registry, "Consul/east", "cannot be read");
        let lines = ProblemLines::default().with_verdict(PlaneVerdict::new(true, vec![cause.clone()]));
        let summary = "ready, and not all is well: 1 registry is in trouble";
        let told = lines.verdict(true, true).unwrap();
        assert_eq!((told.summary.as_str(), told.causes), (summary, vec![cause]));
        let numbers = lines.verdict(true, false).unwrap();
        assert_eq!((numbers.summary.as_str(), numbers.causes, numbers.more), (summary, vec![], 1));
        let drained = lines.verdict(false, false).unwrap();
        assert_eq!(drained.level, PlaneLevel::NotReady);
        assert!(drained.summary.starts_with("not ready"), "{drained:?}");
        assert_eq!(ProblemLines::default().verdict(true, true), None, "nothing is known yet");
    }

    #[test]
    fn lines_are_few_and_short_and_all_are_counted() {
        let mut lines = ProblemLines::default();
        lines.add((0..LINES + 7).map(|n| format!("{n}: {}", "é".repeat(LINE_BYTES))));
        lines.add(["another kind"].into_iter());
        assert_eq!((lines.count(), lines.lines().len()), (LINES + 8, LINES + 2));
        assert!(lines.lines().iter().all(|line| line.len() <= LINE_BYTES + '…'.len_utf8()));
        assert!(lines.lines()[0].ends_with('…'), "{}", lines.lines()[0]);
        assert_eq!(lines.lines()[LINES], "and 7 more of this kind: /debug/problemz lists them");
        assert_eq!(lines.lines()[LINES + 1], "another kind");
        let row = format!(
            "| Lines of each kind of trouble at `/ready`, and what it waits for | {LINES}, of {} KiB |",
            LINE_BYTES >> 10
        );
        assert!(include_str!("../../../../docs/limits.md").contains(&row), "no row {row:?}");
    }
}
