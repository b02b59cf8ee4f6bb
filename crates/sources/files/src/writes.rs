//! Files that are open for writing: their content counts once they are closed.

use crate::change_queue::WriteState;
use crate::path::FilePath;
use crate::walk::identity_of;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Files that were written to and not closed, according to events.
#[derive(Debug)]
pub(super) struct OpenWrites {
    timeout: Duration,
    files: BTreeMap<FilePath, OpenWrite>,
}

#[derive(Debug)]
struct OpenWrite {
    since: Instant,
    /// The file that was written to: another one at the same path is not open.
    identity: Option<(u64, u64)>,
    is_reported: bool,
}

impl OpenWrites {
    /// Files that are open for longer than the timeout are reported.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, files: BTreeMap::new() }
    }

    /// Records a change of a file. Returns how long it was open for writing before, or `None` if it still is.
    pub(super) fn note(&mut self, path: &FilePath, state: WriteState, now: Instant) -> Option<Duration> {
        match state {
            WriteState::Writing => {
                let begin = || OpenWrite { since: now, identity: identity_of(path), is_reported: false };
                self.files.entry(path.clone()).or_insert_with(begin);
                None
            }
            WriteState::Touched => (!self.files.contains_key(path)).then_some(Duration::ZERO),
            WriteState::Complete | WriteState::Created | WriteState::Removed => {
                let open = self.files.remove(path).filter(|open| open.identity == identity_of(path));
                Some(open.map_or(Duration::ZERO, |open| now.saturating_duration_since(open.since)))
            }
        }
    }

    /// True if the file is open for writing.
    pub(super) fn has(&self, path: &Path) -> bool {
        !self.files.is_empty() && self.files.contains_key(&FilePath::from(path))
    }

    /// Time at which the next file will have been open for too long.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let waiting = self.files.values().filter(|file| !file.is_reported);
        waiting.map(|file| file.since + self.timeout).min()
    }

    /// The files that have been open for too long by now; each is returned once.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<FilePath> {
        let timeout = self.timeout;
        let is_due = |file: &OpenWrite| !file.is_reported && file.since + timeout <= now;
        let overdue = self.files.iter_mut().filter(|(_, file)| is_due(file));
        overdue
            .map(|(path, file)| {
                file.is_reported = true;
                path.clone()
            })
            .collect()
    }

    /// Drops files that are gone or were replaced, as when their folder was replaced.
    pub(super) fn forget_replaced(&mut self) {
        self.files.retain(|path, file| file.identity.is_some() && identity_of(path) == file.identity);
    }

    /// Drops all files and returns them, when events were lost.
    pub(super) fn take_all(&mut self) -> Vec<FilePath> {
        std::mem::take(&mut self.files).into_keys().collect()
    }
}
