//! History of published changes, with the values to undo each.
//!
//! ```text
//! control loop ─ world, differences, affected proxies ─▶ noted ─ Tracker or a request ─▶ changes with undo
//!                                                          │
//!                  Tracker ◀─ ACKs and NACKs of clients ───┴──▶ ChangeLog ─▶ a log line for each change
//! ```
//!
//! A change is kept as the values before it: pointers to values that the worlds shared. The world of an
//! earlier revision is the newest one with the changes since undone. Kept changes are counted in bytes, and
//! the oldest are dropped first.

mod acknowledged;
mod change;
mod lines;
mod refusals;
mod size;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use acknowledged::{Lacking, Outcome, Tracker};
pub use change::{Action, Change, Item, ItemKind};
pub use lines::{ChangeLog, Line, Many};
pub use refusals::{Refusal, RefusedBy, Resolution};

use parking_lot::{Mutex, MutexGuard};
use pilotfish_api::v1::{Failure, FailureKind};
use pilotfish_model::{ChangeSet, Fact, Kind, Update, World, WorldWriter};
use pilotfish_xds::Concerned;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Notify;

/// Default limit of kept bytes.
pub const DEFAULT_BYTES: usize = 32 << 20;

/// Number of changes that are kept without their undo values, independent of the budget.
pub const RECENT: usize = 50;

/// History of changes within a budget of bytes.
pub struct History {
    /// Publications that have not been processed, the oldest first.
    noted: Mutex<VecDeque<Published>>,
    /// Held during processing, to keep the publications in order.
    turn: Mutex<()>,
    kept: Mutex<Kept>,
    /// Refusals that the tracker has not taken yet.
    refusals: Mutex<refusals::Inbox>,
    /// Notified of each change.
    news: Notify,
}

struct Kept {
    budget: usize,
    bytes: usize,
    /// Entries with consecutive revisions, the newest last.
    entries: VecDeque<Entry>,
    /// Last changes, the newest first, which the dashboard shows even if no entry fits into the budget.
    recent: VecDeque<Arc<Change>>,
    /// Oldest revision whose world can be restored.
    oldest: u64,
    /// Changes that the tracker has not taken yet.
    untracked: Vec<Arc<Change>>,
    world: Arc<World>,
    revision: u64,
}

struct Entry {
    change: Arc<Change>,
    /// Updates that restore the previous world from the next one.
    undo: Arc<[Update]>,
    bytes: usize,
}

/// Limit on the publications that wait for processing. Beyond it, the control loop processes them itself.
pub(crate) const NOTED: usize = 64;
/// Limit on the changes that wait for the tracker. Further ones are not tracked, because it is behind by
/// seconds.
const UNTRACKED: usize = 4_096;

/// Times of the steps before a publication, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Began {
    /// Arrival of its first event.
    pub received: SystemTime,
    /// End of the debounce, and start of the computation.
    pub computing: SystemTime,
}

/// Publication of a world.
pub struct Published {
    pub revision: u64,
    /// Time of the publication.
    pub at: SystemTime,
    /// Times of the steps before the publication.
    pub before_that: Began,
    /// World before the publication.
    pub before: Arc<World>,
    pub world: Arc<World>,
    /// Differences between the two worlds.
    pub changes: ChangeSet,
    /// Clients that the publication concerns, with the types.
    pub concerned: Vec<Concerned>,
}

/// Revision that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The revision is older than the kept ones.
    Forgotten {
        revision: u64,
        /// Oldest revision that is kept.
        oldest: u64,
    },
    /// The revision has not been published yet.
    Unknown { revision: u64, newest: u64 },
}

impl From<NotKept> for Failure {
    fn from(not_kept: NotKept) -> Self {
        Self::new(FailureKind::NotFound, not_kept.to_string()).hint(
            "pilotfish history lists what is kept; revisions start from 1 when the control plane starts, and \
             --history-bytes keeps more",
        )
    }
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgotten { revision, oldest } => {
                write!(f, "revision {revision} is forgotten: {oldest} is the oldest that is kept")
            }
            Self::Unknown { revision, newest } => {
                write!(f, "revision {revision} is not known: {newest} is in force")
            }
        }
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new(DEFAULT_BYTES)
    }
}

impl History {
    /// Returns an empty history that keeps at most `budget` bytes.
    pub fn new(budget: usize) -> Self {
        let kept = Kept {
            budget,
            bytes: 0,
            entries: VecDeque::new(),
            recent: VecDeque::new(),
            oldest: 1,
            untracked: Vec::new(),
            world: Arc::default(),
            revision: 0,
        };
        Self {
            noted: Mutex::default(),
            turn: Mutex::new(()),
            kept: Mutex::new(kept),
            refusals: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// Changes the limit of kept bytes.
    pub fn set_budget(&self, bytes: usize) {
        let mut kept = self.kept();
        kept.budget = bytes;
        kept.forget();
    }

    /// Queues a publication. Its change is computed by the tracker's task or by the first reader, to keep the
    /// work out of the control loop.
    pub fn note(&self, published: Published) {
        let waiting = {
            let mut noted = self.noted.lock();
            noted.push_back(published);
            noted.len()
        };
        if waiting > NOTED {
            self.take_in();
        }
        self.news.notify_one();
    }

    /// Queues a refusal. Called from the tasks of streams, so it costs no more than an allocation.
    pub fn refused(&self, refusal: Refusal) {
        self.refusals.lock().add(refusal);
    }

    /// Takes the refusals since the last call.
    pub fn refusals(&self) -> VecDeque<Refusal> {
        self.refusals.lock().take()
    }

    /// Returns the clients that refused a change, and true if further refusals are queued for the tracker.
    /// Must be called after reading the progress of clients, so that no earlier refusal is missed.
    pub fn refused_by(&self, change: &Change) -> (RefusedBy, bool) {
        let is_queued = self.refusals.lock().has(change);
        (change.refused_by.lock().clone(), is_queued)
    }

    /// Processes queued publications. The cost is proportional to the number of changed objects and shards of
    /// endpoints.
    fn take_in(&self) {
        let _turn = self.turn.lock();
        loop {
            let next = self.noted.lock().pop_front();
            let Some(published) = next else { return };
            self.keep(published);
        }
    }

    /// Locks the kept changes after processing queued publications.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.take_in();
        self.kept.lock()
    }

    fn keep(&self, published: Published) {
        let Published { revision, before, world, changes, .. } = &published;
        let (revision, world) = (*revision, world.clone());
        // The world before the first publication is empty, so no request needs it.
        let is_first = before.revision() == 0;
        let undo: Arc<[Update]> = if is_first {
            Arc::default()
        } else {
            // Replaced private keys must not stay in memory, so earlier revisions have the current Secrets.
            let undo = world.updates_to(before, changes).into_iter();
            undo.filter(|update| !is_secret(update)).collect()
        };
        let change = {
            let kept = self.kept.lock();
            let last = kept.entries.back().map(|entry| entry.change.concerned.clone());
            drop(kept);
            Arc::new(Change::new(published, last, is_first))
        };
        let bytes =
            size::of_change(&change) + undo.iter().map(|update| size::of(update, &world)).sum::<usize>();
        let mut kept = self.kept.lock();
        (kept.world, kept.revision) = (world, revision);
        kept.bytes += bytes;
        kept.recent.truncate(RECENT - 1);
        kept.recent.push_front(change.clone());
        kept.entries.push_back(Entry { change: change.clone(), undo, bytes });
        kept.forget();
        if kept.untracked.len() < UNTRACKED {
            kept.untracked.push(change);
        }
        drop(kept);
        // The tracker may have found the queue empty while another reader processed this publication.
        self.news.notify_one();
    }

    /// Waits for changes that the tracker has not taken, and takes them. Cancel-safe.
    pub async fn untracked(self: &Arc<Self>) -> Vec<Arc<Change>> {
        loop {
            let is_noted = !self.noted.lock().is_empty();
            if is_noted {
                // A large change takes time, and this thread also serves streams.
                let history = self.clone();
                let taken = tokio::task::spawn_blocking(move || history.take_in()).await;
                taken.unwrap_or_else(|error| tracing::error!(%error, "a change is missing in the history"));
            }
            let news = std::mem::take(&mut self.kept.lock().untracked);
            if !news.is_empty() {
                return news;
            }
            self.news.notified().await;
        }
    }

    /// Returns the kept changes, the newest first.
    pub fn changes(&self) -> Vec<Arc<Change>> {
        self.kept().entries.iter().rev().map(|entry| entry.change.clone()).collect()
    }

    /// Returns the last changes, at most [`RECENT`], the newest first, independent of the budget.
    pub fn recent(&self) -> Vec<Arc<Change>> {
        self.kept().recent.iter().cloned().collect()
    }

    /// Returns the oldest revision whose world can be restored, and the newest.
    pub fn span(&self) -> (u64, u64) {
        let kept = self.kept();
        (kept.oldest.min(kept.revision), kept.revision)
    }

    /// Returns the estimated bytes that are kept, and their limit.
    pub fn bytes(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.bytes, kept.budget)
    }

    /// Returns the change of a revision.
    pub fn change(&self, revision: u64) -> Result<Arc<Change>, NotKept> {
        let kept = self.kept();
        let found = kept.entries.iter().rev().find(|entry| entry.change.revision == revision);
        found.map(|entry| entry.change.clone()).ok_or(match revision > kept.revision || revision == 0 {
            true => NotKept::Unknown { revision, newest: kept.revision },
            false => NotKept::Forgotten { revision, oldest: kept.oldest_change() },
        })
    }

    /// Restores the world of a revision.
    pub fn world_at(&self, revision: u64) -> Result<Arc<World>, NotKept> {
        let (newest, undo): (Arc<World>, Vec<Arc<[Update]>>) = {
            let kept = self.kept();
            if revision > kept.revision || revision == 0 {
                return Err(NotKept::Unknown { revision, newest: kept.revision });
            }
            if revision < kept.oldest {
                return Err(NotKept::Forgotten { revision, oldest: kept.oldest });
            }
            let since = kept.entries.iter().rev().take_while(|entry| entry.change.revision > revision);
            (kept.world.clone(), since.map(|entry| entry.undo.clone()).collect())
        };
        // The lock is released here, because restoring an old world takes time.
        let mut writer = WorldWriter::at(&newest);
        for update in undo.iter().flat_map(|undo| undo.iter()) {
            writer.apply(update.clone());
        }
        Ok(Arc::new(writer.world().clone()))
    }
}

/// Consecutive worlds, as a first one and the updates to the others.
pub(crate) struct Steps {
    pub base: Arc<World>,
    /// Revision of the first world.
    pub revision: u64,
    /// Updates that lead to each later world.
    pub updates: Vec<(Arc<Change>, Vec<Update>)>,
}

impl History {
    /// Returns the worlds since a revision; `None` stands for the oldest kept one.
    pub(crate) fn steps(&self, from: Option<u64>) -> Result<Steps, NotKept> {
        let revision = from.unwrap_or_else(|| self.span().0);
        let (newest, since) = {
            let kept = self.kept();
            if revision > kept.revision {
                return Err(NotKept::Unknown { revision, newest: kept.revision });
            }
            if revision < kept.oldest.min(kept.revision) {
                return Err(NotKept::Forgotten { revision, oldest: kept.oldest });
            }
            let since = kept.entries.iter().rev().take_while(|entry| entry.change.revision > revision);
            let since = since.map(|entry| (entry.change.clone(), entry.undo.clone()));
            (kept.world.clone(), since.collect::<Vec<_>>())
        };
        let mut writer = WorldWriter::at(&newest);
        let mut updates = Vec::with_capacity(since.len());
        for (change, undo) in since {
            let after = writer.world().clone();
            let changes = ChangeSet { facts: undo.iter().map(fact_of).collect() };
            undo.iter().for_each(|update| writer.apply(update.clone()));
            updates.push((change, writer.world().updates_to(&after, &changes)));
        }
        updates.reverse();
        Ok(Steps { base: Arc::new(writer.world().clone()), revision, updates })
    }
}

fn is_secret(update: &Update) -> bool {
    match update {
        Update::Object(object) => object.key().kind == Kind::Secret,
        Update::RemoveObject(key) => key.kind == Kind::Secret,
        _ => false,
    }
}

/// Returns the fact that an update changes.
fn fact_of(update: &Update) -> Fact {
    match update {
        Update::Services(key, _) => Fact::Service(key.clone()),
        Update::Endpoints(key, ..) | Update::RemoveShard(key, _) => Fact::Endpoints(key.clone()),
        Update::Workload(workload) => Fact::Workload(Arc::new(workload.key.clone())),
        Update::RemoveWorkload(key) => Fact::Workload(Arc::new(key.clone())),
        Update::Object(object) => Fact::Object(object.key().clone()),
        Update::RemoveObject(key) => Fact::Object(key.clone()),
        Update::NetworkGateways(_) => Fact::NetworkGateways,
        Update::SecretAccess(reader, _) => Fact::SecretAccess(Arc::new(reader.clone())),
    }
}

impl Kept {
    /// Drops the oldest entries until the rest is within the budget.
    fn forget(&mut self) {
        while self.bytes > self.budget
            && let Some(entry) = self.entries.pop_front()
        {
            self.bytes -= entry.bytes;
            self.oldest = entry.change.revision;
        }
    }

    fn oldest_change(&self) -> u64 {
        self.entries.front().map_or(self.revision, |entry| entry.change.revision)
    }
}

#[cfg(test)]
mod tests;
