//! State of the registrar, behind one lock.

use super::changes::Subscribers;
use super::quota::Quota;
use super::settings::RegistrarSettings;
use super::stats::Counters;
use super::watch::Watchers;
use crate::InstanceKey;
use crate::directory::{Change, Directory};
use crate::history::History;
use crate::limits::Limits;
use crate::liveness::Liveness;
use crate::texts::Texts;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use tokio::sync::watch;

/// State shared by calls and the driver.
pub(super) struct Shared {
    pub(super) settings: RegistrarSettings,
    pub(super) state: RwLock<State>,
    pub(super) quota: Mutex<Quota>,
    pub(super) texts: Mutex<Texts>,
    pub(super) counters: Counters,
    pub(super) progress: watch::Sender<Progress>,
}

/// Progress of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) is_ready: bool,
    pub(super) is_closed: bool,
    pub(super) revision: u64,
}

pub(super) struct State {
    pub(super) directory: Directory,
    pub(super) liveness: Liveness,
    pub(super) history: History,
    pub(super) watchers: Watchers,
    pub(super) subscribers: Subscribers,
    /// Instances that were deregistered while the store could not record it, with their revisions.
    pub(super) withdrawn: BTreeMap<InstanceKey, u64>,
    pub(super) is_ready: bool,
    /// Reason that the store is unreachable.
    pub(super) disconnected: Option<String>,
    /// Identifies this process's memory in watch positions: health is not stored, so watches of another
    /// process may have seen other health.
    pub(super) epoch: u64,
}

impl Shared {
    pub(super) fn new(settings: RegistrarSettings) -> Self {
        let state = State {
            directory: Directory::default(),
            liveness: Liveness::new(settings.liveness),
            history: History::new(0, settings.limits.history_events, settings.limits.history_bytes),
            watchers: Watchers::default(),
            subscribers: Subscribers::default(),
            withdrawn: BTreeMap::new(),
            is_ready: false,
            disconnected: None,
            epoch: random_epoch(),
        };
        Self {
            settings,
            state: RwLock::new(state),
            quota: Mutex::default(),
            texts: Mutex::default(),
            counters: Counters::default(),
            progress: watch::Sender::default(),
        }
    }

    /// Waits until the driver has reached this progress. Returns false if it ended before.
    pub(super) async fn reached(&self, is_enough: impl Fn(&Progress) -> bool) -> bool {
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|progress| is_enough(progress) || progress.is_closed).await;
        reached.is_ok_and(|progress| is_enough(&progress))
    }
}

fn random_epoch() -> u64 {
    RandomState::new().hash_one(0)
}

impl State {
    /// Takes an instance out of traffic whose removal the store cannot record now. No effect if the record
    /// changed meanwhile.
    pub(super) fn withdraw(&mut self, key: &InstanceKey, revision: u64) {
        if self.directory.record(key).is_some_and(|record| record.revision == revision) {
            self.withdrawn.insert(key.clone(), revision);
            let change = self.directory.set_withdrawn(key);
            self.publish(change);
        }
    }

    /// Starts an epoch with the content of the directory: all watches must restart.
    pub(super) fn begin_epoch(&mut self, limits: &Limits) {
        if self.is_ready {
            self.epoch = random_epoch();
        }
        let revision = self.directory.revision();
        self.history = self.history.replaced(revision, limits.history_events, limits.history_bytes);
        self.watchers.restart();
        self.is_ready = true;
    }

    /// Notifies subscribers and watches, and appends to the history.
    pub(super) fn publish(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.subscribers.changed(&change.key);
            self.watchers.changed(&change.key, self.history.end());
            self.history.push(change);
        }
    }
}
