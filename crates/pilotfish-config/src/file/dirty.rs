//! What the watcher noticed and nobody looked at yet. Bounded: beyond a number of paths everything counts as noticed.

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

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
    /// Wakes who awaits [`Dirty::stopped`].
    stopping: Notify,
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

    /// Waits for changes until `deadline`; collects a burst until no new path comes for `quiet`, at most for `ceiling`.
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
        let mut pause = Instant::now() + quiet;
        let mut count = changes.paths.len();
        while !changes.stop {
            let left = end.min(pause).saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            changes = self.noticed.wait_timeout(changes, left).unwrap_or_else(PoisonError::into_inner).0;
            // More paths are more of the burst. The same ones again are not: a log file that somebody keeps writing to
            // beside the configuration must not hold up every change.
            if changes.paths.len() > count {
                count = changes.paths.len();
                pause = Instant::now() + quiet;
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
    fn one_path_noticed_again_and_again_does_not_prolong_a_burst() {
        let dirty = Arc::new(Dirty::default());
        let noise = thread::spawn({
            let dirty = dirty.clone();
            move || {
                let patience = Instant::now() + Duration::from_secs(30);
                while !dirty.is_stopped() && Instant::now() < patience {
                    dirty.note(written(Path::new("/log")));
                    thread::park_timeout(Duration::from_micros(200));
                }
                Instant::now() < patience
            }
        });
        let (hour, quiet) = (Duration::from_secs(3_600), Duration::from_millis(20));
        let changes = dirty.wait(Instant::now() + hour, quiet, hour);
        dirty.stop();
        assert!(noise.join().unwrap(), "the burst ends while the noise goes on");
        assert_eq!(changes.paths.len(), 1);
    }

    #[test]
    fn what_cannot_be_remembered_means_everything() {
        let dirty = Dirty::default();
        for n in 0..=MOST {
            dirty.note(written(Path::new(&format!("/{n}"))));
        }
        let changes = dirty.wait(Instant::now(), Duration::ZERO, Duration::ZERO);
        assert!(changes.everything);
        assert_eq!(changes.paths.len(), MOST);
        dirty.note(Err(notify::Error::generic("lost")));
        assert!(dirty.wait(Instant::now(), Duration::ZERO, Duration::ZERO).everything);
    }

    #[test]
    fn the_last_word_on_a_path_counts() {
        let dirty = Dirty::default();
        let path = Path::new("/a");
        let writing = EventKind::Modify(ModifyKind::Data(notify::event::DataChange::Any));
        dirty.note(Ok(Event::new(writing).add_path(path.to_owned())));
        dirty.note(written(path));
        let read = EventKind::Access(AccessKind::Open(AccessMode::Read));
        dirty.note(Ok(Event::new(read).add_path(path.to_owned())));
        let changes = dirty.wait(Instant::now(), Duration::ZERO, Duration::ZERO);
        assert_eq!(changes.paths.get(path), Some(&Noticed::Complete));
    }
}
