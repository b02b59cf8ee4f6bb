//! One line of the log for each change, and one for many where they come faster than anybody reads.

use super::{Change, Outcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Limit on the lines for single changes in one [`SPAN`].
const LINES: u32 = 20;
const SPAN: Duration = Duration::from_secs(10);

/// Log line that is due.
pub enum Line {
    /// Line of one change.
    One(Arc<Change>),
    /// Line of several changes.
    Many(Many),
}

/// Summary of changes that share a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Many {
    /// Oldest and newest revision.
    pub revisions: (u64, u64),
    /// Number of changes, each counted once.
    pub changes: u64,
    /// Number of changes with configuration.
    pub configuration: u64,
    /// Number of changes by clients that register themselves.
    pub registrations: u64,
    /// Longest time until a change was in force, among those that are.
    pub slowest: Duration,
    /// Number of changes that were not in force everywhere.
    pub late: u64,
    /// Number of changes that some client refused.
    pub refused: u64,
    /// Summary of the newest change.
    pub newest: String,
}

/// Rate limit of the change log. Changes with configuration get their own line, up to twenty in ten seconds.
/// Other changes, and those by self-registering clients, share one line at the end of that time.
#[derive(Default)]
pub struct ChangeLog {
    since: Option<Instant>,
    lines: u32,
    many: Option<Many>,
}

impl ChangeLog {
    /// Adds a change with a known outcome.
    pub fn add(&mut self, change: &Arc<Change>, now: Instant) -> Option<Line> {
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
        // A late change already had a line, and gets another one when it is in force.
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
        // A late change was counted before.
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

    /// Returns the shared line of several changes, once it is due.
    pub fn due(&mut self, now: Instant) -> Option<Line> {
        let since = self.since?;
        if self.many.is_none() || now.saturating_duration_since(since) < SPAN {
            return None;
        }
        (self.since, self.lines) = (None, 0);
        self.many.take().map(Line::Many)
    }

    /// True if a line will be due.
    pub fn is_waiting(&self) -> bool {
        self.many.is_some()
    }
}
