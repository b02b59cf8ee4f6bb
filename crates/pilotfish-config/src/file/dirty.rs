//! What the watcher noticed and nobody looked at yet. Bounded: beyond a number of paths everything counts as noticed.

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Paths that are remembered one by one.
const MOST: usize = 8_192;

/// How a file was left when it was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    /// Somebody closed it after writing, or put it in place by rename: it is complete.
    Complete,
    /// Somebody writes to it.
    Writing,
}

/// What was noticed since the last look.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) paths: HashMap<PathBuf, Noticed>,
    /// Look at everything: events were lost, or there were too many.
    pub(super) everything: bool,
    pub(super) stop: bool,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.everything && !self.stop
    }
}

/// Shared by the watcher's thread and the source's.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    changes: Mutex<Changes>,
    noticed: Condvar,
}

impl Dirty {
    fn lock(&self) -> MutexGuard<'_, Changes> {
        // The content is valid after a panic too: each change of it is a single step.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the watcher says.
    pub(super) fn note(&self, event: notify::Result<Event>) {
        let Some(noticed) = event.as_ref().map_or(Some(Noticed::Complete), |event| noticed(&event.kind))
        else {
            return;
        };
        let mut changes = self.lock();
        match event {
            Ok(event) if !event.need_rescan() => {
                for path in event.paths {
                    if changes.paths.len() >= MOST && !changes.paths.contains_key(&path) {
                        changes.everything = true;
                        break;
                    }
                    changes.paths.insert(path, noticed);
                }
            }
            _ => changes.everything = true,
        }
        self.noticed.notify_all();
    }

    /// Asks the source's thread to end.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.noticed.notify_all();
    }

    /// Waits a little for a request to end; tells whether there is one.
    pub(super) fn stopped_within(&self, time: Duration) -> bool {
        let waiting = |changes: &mut Changes| !changes.stop;
        let result = self.noticed.wait_timeout_while(self.lock(), time, waiting);
        result.unwrap_or_else(PoisonError::into_inner).0.stop
    }

    /// Waits for changes until `deadline`; collects a burst until it pauses for `quiet`, at most for `ceiling`.
    pub(super) fn wait(&self, deadline: Instant, quiet: Duration, ceiling: Duration) -> Changes {
        let mut changes = self.lock();
        while changes.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Changes::default();
            }
            changes = self.noticed.wait_timeout(changes, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let end = Instant::now() + ceiling;
        while !changes.stop {
            let left = end.saturating_duration_since(Instant::now()).min(quiet);
            let (guard, result) =
                self.noticed.wait_timeout(changes, left).unwrap_or_else(PoisonError::into_inner);
            changes = guard;
            if result.timed_out() {
                break;
            }
        }
        std::mem::take(&mut changes)
    }
}

/// What an event says about the file; `None` when it says nothing about content.
fn noticed(kind: &EventKind) -> Option<Noticed> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Noticed::Complete),
        EventKind::Access(_) => None,
        EventKind::Create(_) | EventKind::Modify(ModifyKind::Data(_)) => Some(Noticed::Writing),
        _ => Some(Noticed::Complete),
    }
}
