//! History of published changes, with the values to undo each.
//!
//! ```text
//! control loop ─ world, what differs, whom it concerns ─▶ noted ─ by the tracker, or by who asks ─▶ changes, each with what undoes it
//!                                                            │
//!             Tracker ◀─ how far clients are, who refused ───┴──▶ ChangeLog ─▶ one line for each change, a few at a time
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

pub(crate) use acknowledged::{Lacking, Outcome, Tracker};
pub(crate) use change::{Change, Item, ItemKind};
pub(crate) use lines::{ChangeLog, Line, Many};
pub(crate) use refusals::{Refusal, RefusedBy};

use parking_lot::{Mutex, MutexGuard};
use pilotfish_model::{ChangeSet, Fact, Kind, Update, World, WorldWriter};
use pilotfish_xds::Concerned;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Notify;

/// Bytes that are kept where nothing else is said.
pub(crate) const DEFAULT_BYTES: usize = 32 << 20;

/// Changes that are kept without the way back, whatever the budget.
const RECENT: usize = pilotfish_admin::CHANGES;

/// Changes, as far back as the budget of bytes allows.
pub(crate) struct History {
    /// Publications that are not taken in yet, the oldest first.
    noted: Mutex<VecDeque<Published>>,
    /// Held while they are taken in, so that they come in order.
    turn: Mutex<()>,
    kept: Mutex<Kept>,
    /// Refusals that the tracker has not taken yet.
    refusals: Mutex<refusals::Inbox>,
    /// Told of each change.
    news: Notify,
}

struct Kept {
    budget: usize,
    bytes: usize,
    /// The newest last, without a gap.
    entries: VecDeque<Entry>,
    /// The last changes, the newest first, which the dashboard shows even where nothing fits into the budget.
    recent: VecDeque<Arc<Change>>,
    /// The oldest revision whose world can be made.
    oldest: u64,
    /// What the tracker has not taken yet.
    untracked: Vec<Arc<Change>>,
    world: Arc<World>,
    revision: u64,
}

struct Entry {
    change: Arc<Change>,
    /// Makes the world before of the world after.
    undo: Arc<[Update]>,
    bytes: usize,
}

/// Publications that wait to be taken in. With more, who notes them does that.
pub(crate) const NOTED: usize = 64;
/// Changes that wait for the tracker. More are not watched: it is behind by seconds.
const UNTRACKED: usize = 4_096;

/// The times before a publication, as they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Began {
    /// The first of its events arrived.
    pub(crate) received: SystemTime,
    /// Nothing more was waited for.
    pub(crate) computing: SystemTime,
}

/// Something that was published.
pub(crate) struct Published {
    /// Its revision.
    pub(crate) revision: u64,
    /// When.
    pub(crate) at: SystemTime,
    /// What was before that.
    pub(crate) before_that: Began,
    /// The world before.
    pub(crate) before: Arc<World>,
    /// The world now.
    pub(crate) world: Arc<World>,
    /// What differs.
    pub(crate) changes: ChangeSet,
    /// The clients that it concerns, and by which types.
    pub(crate) concerned: Vec<Concerned>,
}

/// A revision that is not kept (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// It was, or would have been.
    Forgotten {
        /// The revision that was asked for.
        revision: u64,
        /// The oldest that there is.
        oldest: u64,
    },
    /// It is not published yet.
    Unknown {
        /// The revision that was asked for.
        revision: u64,
        /// The newest that there is.
        newest: u64,
    },
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
    /// Keeps nothing yet, and that many bytes at most.
    pub(crate) fn new(budget: usize) -> Self {
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

    /// Keeps that many bytes at most from now on.
    pub(crate) fn set_budget(&self, bytes: usize) {
        let mut kept = self.kept();
        kept.budget = bytes;
        kept.forget();
    }

    /// Notes a publication. The control loop has others to serve: what changed is read by the tracker's task or by who asks first.
    pub(crate) fn note(&self, published: Published) {
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

    /// Notes that a client refused a response. Called from streams' tasks: costs an allocation.
    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refusals.lock().add(refusal);
    }

    /// Takes out the refusals since the last call.
    pub(crate) fn refusals(&self) -> VecDeque<Refusal> {
        self.refusals.lock().take()
    }

    /// Takes in what was noted. What it costs is proportional to the objects and shards of endpoints that differ.
    fn take_in(&self) {
        let _turn = self.turn.lock();
        loop {
            let next = self.noted.lock().pop_front();
            let Some(published) = next else { return };
            self.keep(published);
        }
    }

    /// What is kept, with everything that was noted.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.take_in();
        self.kept.lock()
    }

    fn keep(&self, published: Published) {
        let Published { revision, before, world, changes, .. } = &published;
        let (revision, world) = (*revision, world.clone());
        // Before the first there was nothing that anybody asks for.
        let is_first = before.revision() == 0;
        let undo: Arc<[Update]> = if is_first {
            Arc::default()
        } else {
            // A key that was replaced is not to be found in memory: earlier revisions have the Secrets of now.
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
        // The tracker may have looked while somebody else took this in.
        self.news.notify_one();
    }

    /// Takes out what is to be tracked, as soon as there is something. Nothing is lost when it is not waited for any more.
    pub(crate) async fn untracked(self: &Arc<Self>) -> Vec<Arc<Change>> {
        loop {
            let is_noted = !self.noted.lock().is_empty();
            if is_noted {
                // Many services may have changed at once, and streams are served by this thread.
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

    /// The changes that are kept, the newest first.
    pub(crate) fn changes(&self) -> Vec<Arc<Change>> {
        self.kept().entries.iter().rev().map(|entry| entry.change.clone()).collect()
    }

    /// The last changes, the newest first: [`RECENT`] at most, whatever else is kept.
    pub(crate) fn recent(&self) -> Vec<Arc<Change>> {
        self.kept().recent.iter().cloned().collect()
    }

    /// The oldest revision whose world can be made, and the newest.
    pub(crate) fn span(&self) -> (u64, u64) {
        let kept = self.kept();
        (kept.oldest.min(kept.revision), kept.revision)
    }

    /// Bytes that are kept, about, and how many may be.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.bytes, kept.budget)
    }

    /// The change that made a revision.
    pub(crate) fn change(&self, revision: u64) -> Result<Arc<Change>, NotKept> {
        let kept = self.kept();
        let found = kept.entries.iter().rev().find(|entry| entry.change.revision == revision);
        found.map(|entry| entry.change.clone()).ok_or(match revision > kept.revision || revision == 0 {
            true => NotKept::Unknown { revision, newest: kept.revision },
            false => NotKept::Forgotten { revision, oldest: kept.oldest_change() },
        })
    }

    /// The world of a revision.
    pub(crate) fn world_at(&self, revision: u64) -> Result<Arc<World>, NotKept> {
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
        // Nothing is locked: to go far back takes its time.
        let mut writer = WorldWriter::at(&newest);
        for update in undo.iter().flat_map(|undo| undo.iter()) {
            writer.apply(update.clone());
        }
        Ok(Arc::new(writer.world().clone()))
    }
}

/// Worlds one after the other.
pub(crate) struct Steps {
    /// The first.
    pub(crate) base: Arc<World>,
    /// Its revision.
    pub(crate) revision: u64,
    /// What leads to each later one.
    pub(crate) updates: Vec<(Arc<Change>, Vec<Update>)>,
}

impl History {
    /// The worlds since a revision; `None` for the oldest that is kept.
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

/// The fact that an update is about.
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
    /// Drops the oldest until what is left is within the budget.
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
pub(crate) mod tests;
