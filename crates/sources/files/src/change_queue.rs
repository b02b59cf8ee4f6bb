//! Paths that changed according to the watcher and that the scanner has not read yet. The queue is bounded:
//! beyond a number of paths, everything counts as changed.

use crate::scanner::Walked;
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode};
use notify::{Event, EventKind};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Maximum number of paths that are tracked one by one.
const MOST: usize = 8_192;

/// Write progress of a changed file, from the watcher's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteState {
    /// Closed after writing, or put in place by rename.
    Complete,
    /// Written to, and not closed yet.
    Writing,
    /// Created and not opened yet: a link, as a rule.
    Created,
    /// Deleted or moved away.
    Removed,
    /// Only the attributes of the file changed.
    Touched,
}

impl WriteState {
    /// State of a path after an event; `None` if the event is irrelevant.
    fn after(before: Option<Self>, kind: &EventKind) -> Option<Self> {
        match kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Self::Complete),
            // A file is created and opened for writing by one call.
            EventKind::Access(AccessKind::Open(_)) if before == Some(Self::Created) => Some(Self::Writing),
            EventKind::Access(_) => None,
            EventKind::Create(CreateKind::Folder) => Some(Self::Complete),
            EventKind::Create(_) => Some(Self::Created),
            EventKind::Modify(ModifyKind::Data(_)) => Some(Self::Writing),
            EventKind::Modify(ModifyKind::Metadata(_)) => before.is_none().then_some(Self::Touched),
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
                Some(Self::Removed)
            }
            // A rename with both paths follows those with one.
            EventKind::Modify(ModifyKind::Name(RenameMode::Both)) if before == Some(Self::Removed) => before,
            _ => Some(Self::Complete),
        }
    }
}

/// Changes since the scanner last took them from the queue.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) paths: HashMap<PathBuf, WriteState>,
    /// Any path may have changed: events were lost, or there were too many.
    pub(super) everything: bool,
    /// Result of a rescan on another thread, if it succeeded.
    pub(super) walked: Option<Walked>,
    /// True if a rescan on another thread ended, with or without a result.
    pub(super) walk_ended: bool,
    pub(super) stop: bool,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.everything && !self.walk_ended && !self.stop
    }
}

/// Shared by the watcher's thread and the source's.
#[derive(Debug, Default)]
pub(super) struct ChangeQueue {
    changes: Mutex<Changes>,
    arrived: Condvar,
    stopping: Notify,
}

impl ChangeQueue {
    fn lock(&self) -> MutexGuard<'_, Changes> {
        // The content is valid after a panic too: each change of it is a single step.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event of the watcher.
    pub(super) fn record(&self, event: notify::Result<Event>) {
        let mut changes = self.lock();
        match event {
            Ok(event) if !event.need_rescan() => {
                for path in event.paths {
                    let before = changes.paths.get(&path).copied();
                    let Some(state) = WriteState::after(before, &event.kind) else { return };
                    if changes.paths.len() >= MOST && !changes.paths.contains_key(&path) {
                        changes.everything = true;
                        break;
                    }
                    changes.paths.insert(path, state);
                }
            }
            _ => changes.everything = true,
        }
        self.arrived.notify_all();
    }

    /// Stores the result of a walk. `None` if it failed, so that any path may have changed.
    pub(super) fn walked(&self, walked: Option<Walked>) {
        let mut changes = self.lock();
        changes.everything |= walked.is_none();
        changes.walk_ended = true;
        changes.walked = walked;
        drop(changes);
        self.arrived.notify_all();
    }

    /// Requests the end of the source's thread.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.arrived.notify_all();
        self.stopping.notify_one();
    }

    fn is_stopped(&self) -> bool {
        self.lock().stop
    }

    /// Waits for a request to end. Only the source's thread may wait: a request wakes one waiter.
    pub(super) async fn stopped(&self) {
        while !self.is_stopped() {
            self.stopping.notified().await;
        }
    }

    /// Waits for changes until `deadline`, then collects a burst until no new path arrives for `quiet`, at
    /// most for `ceiling`.
    pub(super) fn wait(&self, deadline: Instant, quiet: Duration, ceiling: Duration) -> Changes {
        let mut changes = self.lock();
        while changes.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Changes::default();
            }
            changes = self.arrived.wait_timeout(changes, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let end = Instant::now() + ceiling;
        let mut pause = Instant::now() + quiet;
        let mut count = changes.paths.len();
        while !changes.stop {
            let left = end.min(pause).saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            changes = self.arrived.wait_timeout(changes, left).unwrap_or_else(PoisonError::into_inner).0;
            // Only further paths extend the burst. Repeated events of one path do not: a log file beside the
            // configuration that is written to all the time must not delay every change.
            if changes.paths.len() > count {
                count = changes.paths.len();
                pause = Instant::now() + quiet;
            }
        }
        std::mem::take(&mut changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use std::thread;

    fn written(path: &Path) -> notify::Result<Event> {
        Ok(Event::new(EventKind::Access(AccessKind::Close(AccessMode::Write))).add_path(path.to_owned()))
    }

    #[test]
    fn one_path_that_changes_without_end_does_not_prolong_a_burst() {
        let queue = Arc::new(ChangeQueue::default());
        let noise = thread::spawn({
            let queue = queue.clone();
            move || {
                let patience = Instant::now() + Duration::from_secs(30);
                while !queue.is_stopped() && Instant::now() < patience {
                    queue.record(written(Path::new("/log")));
                    thread::park_timeout(Duration::from_micros(200));
                }
                Instant::now() < patience
            }
        });
        let (hour, quiet) = (Duration::from_secs(3_600), Duration::from_millis(20));
        let changes = queue.wait(Instant::now() + hour, quiet, hour);
        queue.stop();
        assert!(noise.join().unwrap(), "the burst ends while the noise goes on");
        assert_eq!(changes.paths.len(), 1);
    }

    #[test]
    fn too_many_paths_mean_everything() {
        let queue = ChangeQueue::default();
        for n in 0..=MOST {
            queue.record(written(Path::new(&format!("/{n}"))));
        }
        let changes = queue.wait(Instant::now(), Duration::ZERO, Duration::ZERO);
        assert!(changes.everything);
        assert_eq!(changes.paths.len(), MOST);
        queue.record(Err(notify::Error::generic("lost")));
        assert!(queue.wait(Instant::now(), Duration::ZERO, Duration::ZERO).everything);
    }

    #[test]
    fn a_walk_that_failed_means_everything() {
        let queue = ChangeQueue::default();
        queue.walked(Some(Walked::default()));
        let changes = queue.wait(Instant::now(), Duration::ZERO, Duration::ZERO);
        assert!(changes.walk_ended && changes.walked.is_some() && !changes.everything);
        queue.walked(None);
        let changes = queue.wait(Instant::now(), Duration::ZERO, Duration::ZERO);
        assert!(changes.walk_ended && changes.walked.is_none() && changes.everything);
    }

    #[test]
    fn a_path_is_complete_once_it_is_closed_after_the_last_write() {
        use WriteState::{Complete, Created, Removed, Touched, Writing};
        use notify::event::{DataChange, MetadataKind, RemoveKind};
        let open = EventKind::Access(AccessKind::Open(AccessMode::Any));
        let write = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let close = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let close_read = EventKind::Access(AccessKind::Close(AccessMode::Read));
        let create = EventKind::Create(CreateKind::File);
        let attributes = EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any));
        let rename = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        let remove = EventKind::Remove(RemoveKind::File);
        let away = EventKind::Modify(ModifyKind::Name(RenameMode::From));
        let both = EventKind::Modify(ModifyKind::Name(RenameMode::Both));
        let cases: [(&[EventKind], Option<WriteState>); 16] = [
            (&[open, close_read], None),
            (&[write], Some(Writing)),
            (&[write, attributes, open, close_read], Some(Writing)),
            (&[write, close], Some(Complete)),
            (&[write, close, attributes], Some(Complete)),
            (&[write, close, write], Some(Writing)),
            (&[create], Some(Created)),
            (&[create, attributes], Some(Created)),
            (&[create, open], Some(Writing)),
            (&[create, open, close], Some(Complete)),
            (&[remove, create, open], Some(Writing)),
            (&[write, rename], Some(Complete)),
            (&[attributes], Some(Touched)),
            (&[write, close, remove], Some(Removed)),
            (&[away, both], Some(Removed)),
            (&[rename, both], Some(Complete)),
        ];
        for (events, expected) in cases {
            let (queue, path) = (ChangeQueue::default(), Path::new("/a"));
            for kind in events {
                queue.record(Ok(Event::new(*kind).add_path(path.to_owned())));
            }
            let changes = queue.wait(Instant::now(), Duration::ZERO, Duration::ZERO);
            assert_eq!(changes.paths.get(path).copied(), expected, "{events:?}");
        }
    }
}
