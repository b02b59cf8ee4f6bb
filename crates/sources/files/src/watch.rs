//! The folders that are watched.

use crate::change_queue::ChangeQueue;
use crate::walk::identity_of;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Watcher of single folders, without those below; walks determine the relevant folders.
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    /// The folders with their identity when the watch started: another folder at the same path must be
    /// watched again.
    watched: BTreeMap<PathBuf, Option<(u64, u64)>>,
    complete: bool,
}

impl Watch {
    pub(super) fn new(queue: Arc<ChangeQueue>) -> Self {
        let watcher = notify::recommended_watcher(move |event| queue.record(event));
        if let Err(error) = &watcher {
            tracing::warn!(%error, "cannot start a file watcher; files are scanned every second instead");
        }
        Self { complete: watcher.is_ok(), watcher: watcher.ok(), watched: BTreeMap::new() }
    }

    /// True if every folder is watched.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Watches these folders and no others. Returns true if one was added.
    pub(super) fn set_folders(&mut self, folders: &BTreeSet<&Path>) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        self.watched.retain(|folder, identity| {
            let keep = folders.contains(&**folder) && identity_of(folder) == *identity;
            if !keep {
                // This fails if the folder is gone, and then there is no watch to end.
                let _ = watcher.unwatch(folder);
            }
            keep
        });
        let mut added = false;
        let mut failed = None;
        for folder in folders {
            if self.watched.contains_key(*folder) {
                continue;
            }
            let identity = identity_of(folder);
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert((*folder).to_owned(), identity);
                    added = true;
                }
                Err(error) if identity.is_some() => failed = Some((*folder, error)),
                Err(_) => {}
            }
        }
        if let Some((folder, error)) = &failed
            && self.complete
        {
            let folder = folder.display();
            tracing::warn!(%folder, %error, "cannot watch a folder; files are scanned every second instead");
        }
        self.complete = failed.is_none();
        added
    }
}
