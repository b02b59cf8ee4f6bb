//! One line of the log for each change, and one for many where they come faster than anybody reads.

use super::{Change, Outcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Lines of single changes in one [`SPAN`].
const LINES: u32 = 20;
const SPAN: Duration = Duration::from_secs(10);

/// A line that is due.
pub(crate) enum Line {
    /// Of one change.
    One(Arc<Change>),
    /// Of several.
    Many(Many),
}

/// Changes that share a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Many {
    /// The oldest revision and the newest.
    pub(crate) revisions: (u64, u64),
    /// How many changes.
    pub(crate) changes: u64,
    /// How many of them have configuration.
    pub(crate) configuration: u64,
    /// Number of changes by clients that register themselves.
    pub(crate) registrations: u64,
    /// How long the slowest of those took that are in force.
    pub(crate) slowest: Duration,
    /// How many were not in force everywhere.
    pub(crate) late: u64,
    /// Number of changes that some client refused.
    pub(crate) refused: u64,
    /// What the newest one changed.
    pub(crate) newest: String,
}

/// Decides which changes get a line of their own: those with configuration, twenty in ten seconds. The others, and what clients register,
/// share one at the end of that time.
#[derive(Default)]
pub(crate) struct ChangeLog {
    since: Option<Instant>,
    lines: u32,
    many: Option<Many>,
}

impl ChangeLog {
    /// Takes in a change of which it is known what became of it.
    pub(crate) fn add(&mut self, change: &Arc<Change>, now: Instant) -> Option<Line> {
        if change.is_first {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= SPAN && self.many.is_none() {
            (self.since, self.lines) = (Some(now), 0);
        }
        let outcome = change.outcome.lock().clone();
        let is_late = matches!(outcome, Some(Outcome::Late { .. }));
        let is_refused = matches!(outcome, Some(Outcome::Refused { .. }));
        // It has had a line, and gets another one when it is in force.
        let was_late = !is_late && change.was_late.load(Ordering::Relaxed);
        let is_registration = change.is_registration();
        let is_configuration = change.is_configuration() && !is_registration;
        if (is_configuration || is_late || was_late || is_refused) && self.lines < LINES {
            self.lines += 1;
            return Some(Line::One(change.clone()));
        }
        let revision = change.revision;
        let many =
            self.many.get_or_insert_with(|| Many { revisions: (revision, revision), ..Many::default() });
        many.revisions = (many.revisions.0.min(revision), many.revisions.1.max(revision));
        // Each counts once.
        many.changes += u64::from(!was_late);
        many.configuration += u64::from(is_configuration && !was_late);
        many.registrations += u64::from(is_registration && !was_late);
        many.late += u64::from(is_late);
        many.refused += u64::from(is_refused);
        if let Some(Outcome::InForce(after)) = outcome {
            many.slowest = many.slowest.max(after);
        }
        if many.revisions.1 == revision {
            many.newest = change.summary();
        }
        None
    }

    /// The line that many changes share, once it is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Line> {
        let since = self.since?;
        if self.many.is_none() || now.saturating_duration_since(since) < SPAN {
            return None;
        }
        (self.since, self.lines) = (None, 0);
        self.many.take().map(Line::Many)
    }

    /// Whether a line will be due.
    pub(crate) fn is_waiting(&self) -> bool {
        self.many.is_some()
    }
}
