//! Watches: what there is, and then what changes; or only what changed since a revision.

use super::state::{Shared, State};
use super::{Caller, Registrar};
use crate::directory::Filter;
use crate::history::{TooOld, WatchEvent};
use crate::{InstanceKey, InstanceView, ServiceKey};
use parking_lot::RwLockReadGuard;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Events of one batch, about.
const BATCH: usize = 1_000;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// With everything that there is.
    Snapshot,
    /// After a revision: that of a list, or of the last batch of another watch.
    After {
        /// The revision.
        revision: u64,
        /// The [epoch](WatchBatch::epoch) that came with it. Without it, instances whose health can have changed are sent again.
        epoch: Option<u64>,
    },
}

/// Some events. Records that changed together are in one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchBatch {
    /// Where a watch can go on once this batch was taken, unless more of a snapshot is to come.
    pub revision: u64,
    /// Whose memory this is: changes when Pilotfish is started again, and differs between several of them.
    pub epoch: u64,
    /// Whether it is a part of a snapshot: what is in none of its parts is gone.
    pub is_snapshot: bool,
    /// Whether more parts of a snapshot, or of what is told again, follow: a watch cannot go on from here.
    pub is_partial: bool,
    /// What changed, in its order.
    pub events: Vec<WatchEvent>,
}

/// Why a watch does not begin or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The history does not reach back so far: a new list or snapshot is needed.
    #[error("the history begins at revision {oldest}: list again, or watch from a snapshot")]
    OutOfRange {
        /// The oldest revision from which a watch can go on.
        oldest: u64,
    },
    /// The store never had this revision, or had it in another life: it was replaced or restored, or another process was asked.
    #[error(
        "this Pilotfish has no watch of that revision and epoch; its revision is {newest}: list again, or watch from a snapshot"
    )]
    OtherEpoch {
        /// The revision up to which the store was read.
        newest: u64,
    },
    /// Too many watches are open.
    #[error("limit {limit}: {most} are open")]
    Limit {
        /// Which.
        limit: &'static str,
        /// The most that is allowed.
        most: usize,
    },
    /// The store was not read yet; trying again soon makes sense.
    #[error("the store has not been read yet")]
    NotReady,
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

/// A watch. Dropping it ends it.
pub struct Watch {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    filter: Filter,
    id: u64,
    first: First,
    cursor: u64,
    revision: u64,
    epoch: u64,
}

/// What comes before changes.
enum First {
    Nothing,
    /// Everything there is, or everything whose health can have changed, and keys that are gone.
    Views {
        is_snapshot: bool,
        gone: Vec<WatchEvent>,
        views: std::vec::IntoIter<InstanceView>,
    },
}

/// What the writer tells a watch.
struct Slot {
    owner: Arc<str>,
    /// The number of the first event that was not read and that the filter lets through; [`NONE`] for none.
    unread: AtomicU64,
    notify: Notify,
}

const NONE: u64 = u64::MAX;

/// Watches that are open, by what they filter.
#[derive(Default)]
pub(super) struct Watchers {
    next: u64,
    all: HashMap<u64, Arc<Slot>>,
    others: HashMap<u64, (Filter, Arc<Slot>)>,
    services: HashMap<ServiceKey, HashMap<u64, Arc<Slot>>>,
    owners: HashMap<Arc<str>, usize>,
    len: usize,
    is_closed: bool,
}

impl Registrar {
    /// Begins a watch.
    ///
    /// # Errors
    /// [`WatchError::OutOfRange`], [`WatchError::Limit`], [`WatchError::NotReady`].
    pub fn watch(&self, caller: &Caller, filter: Filter, from: WatchFrom) -> Result<Watch, WatchError> {
        let mut state = self.shared.state.write();
        if !state.is_ready {
            return Err(WatchError::NotReady);
        }
        let limits = &self.shared.settings.limits;
        let check =
            |limit, has, most| if has < most { Ok(()) } else { Err(WatchError::Limit { limit, most }) };
        check("watches", state.watchers.len, limits.watches)?;
        let of_owner = state.watchers.owners.get(&caller.identity).copied().unwrap_or_default();
        check("owner-watches", of_owner, limits.owner_watches)?;
        let (first, cursor) = begin(&state, &filter, from)?;
        let unread = match cursor < state.history.end() {
            true => cursor,
            false => NONE,
        };
        let slot =
            Slot { owner: caller.identity.clone(), unread: AtomicU64::new(unread), notify: Notify::new() };
        let slot = Arc::new(slot);
        let id = state.watchers.open(&filter, &slot);
        let revision = match from {
            WatchFrom::After { revision, .. } if cursor < state.history.end() => revision,
            _ => state.directory.revision(),
        };
        let epoch = state.epoch;
        Ok(Watch { shared: Arc::clone(&self.shared), slot, filter, id, first, cursor, revision, epoch })
    }
}

/// What is told first, and the number of the first event after it.
fn begin(state: &State, filter: &Filter, from: WatchFrom) -> Result<(First, u64), WatchError> {
    let end = state.history.end();
    let views = |keep: &dyn Fn(&InstanceView) -> bool| {
        let all = state.directory.list(filter, None, usize::MAX).instances;
        all.into_iter().filter(|view| keep(view)).collect::<Vec<_>>().into_iter()
    };
    let WatchFrom::After { revision, epoch } = from else {
        return Ok((First::Views { is_snapshot: true, gone: Vec::new(), views: views(&|_| true) }, end));
    };
    let newest = state.directory.revision();
    if revision > newest || epoch.is_some_and(|epoch| epoch != state.epoch) {
        return Err(WatchError::OtherEpoch { newest });
    }
    let too_old = |TooOld| WatchError::OutOfRange { oldest: state.history.oldest() };
    let cursor = state.history.after(revision).map_err(too_old)?;
    if epoch.is_some() {
        return Ok((First::Nothing, cursor));
    }
    let mut gone = state.history.read(cursor, filter, usize::MAX).map_err(too_old)?.events;
    gone.retain(|event| event.instance.is_none() && state.directory.record(&event.key).is_none());
    let may_differ = |view: &InstanceView| {
        let instance = &view.record.instance;
        view.record.revision > revision || instance.ttl.is_some() || !instance.checks.is_empty()
    };
    Ok((First::Views { is_snapshot: false, gone, views: views(&may_differ) }, end))
}

impl Watch {
    /// Waits for events and takes some of them. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`WatchError::OutOfRange`] for a watch that was too slow, [`WatchError::Closed`].
    pub async fn next(&mut self) -> Result<WatchBatch, WatchError> {
        if let Some(batch) = self.take_first() {
            return Ok(batch);
        }
        loop {
            if let Some(batch) = self.read()? {
                return Ok(batch);
            }
            self.slot.notify.notified().await;
        }
    }

    /// An empty batch with the present revision, where everything was taken: so that a quiet watch, too, can go on after a while.
    #[must_use]
    pub fn bookmark(&mut self) -> Option<WatchBatch> {
        let is_first = matches!(self.first, First::Nothing);
        let state = self.shared.state.read();
        if !is_first || self.slot.unread.load(Ordering::Acquire) != NONE {
            return None;
        }
        let (revision, epoch) = (state.directory.revision(), self.epoch);
        drop(state);
        self.revision = revision;
        Some(WatchBatch { revision, epoch, is_snapshot: false, is_partial: false, events: Vec::new() })
    }

    fn take_first(&mut self) -> Option<WatchBatch> {
        let First::Views { is_snapshot, gone, views } = &mut self.first else { return None };
        let is_snapshot = *is_snapshot;
        let mut events = std::mem::take(gone);
        events.extend(views.by_ref().take(BATCH).map(|view| WatchEvent {
            revision: view.record.revision,
            key: view.record.instance.key.clone(),
            instance: Some(view),
        }));
        let is_partial = views.len() > 0;
        if !is_partial {
            self.first = First::Nothing;
        }
        let epoch = self.epoch;
        Some(WatchBatch { revision: self.revision, epoch, is_snapshot, is_partial, events })
    }

    fn read(&mut self) -> Result<Option<WatchBatch>, WatchError> {
        let shared = Arc::clone(&self.shared);
        let state: RwLockReadGuard<'_, State> = shared.state.read();
        if state.watchers.is_closed {
            return Err(WatchError::Closed);
        }
        // The writer sets it under the lock, so nothing is lost between the two lines.
        let unread = self.slot.unread.swap(NONE, Ordering::AcqRel);
        if unread == NONE {
            return Ok(None);
        }
        let too_old = |TooOld| WatchError::OutOfRange { oldest: state.history.oldest() };
        let read = state.history.read(self.cursor.max(unread), &self.filter, BATCH).map_err(too_old)?;
        self.cursor = read.next;
        if read.next < state.history.end() {
            self.slot.unread.store(read.next, Ordering::Release);
        }
        self.revision = read.revision.unwrap_or(self.revision).max(self.revision);
        if read.events.is_empty() {
            return Ok(None);
        }
        let (revision, epoch, events) = (self.revision, self.epoch, read.events);
        Ok(Some(WatchBatch { revision, epoch, is_snapshot: false, is_partial: false, events }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.state.write().watchers.close(self.id, &self.filter, &self.slot);
    }
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// An event that a filter may let through gets this number.
    pub(super) fn changed(&mut self, key: &InstanceKey, number: u64) {
        let tell = |slot: &Slot| {
            // Only the first one counts: a watch reads everything from there.
            let _ = slot.unread.compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Acquire);
            slot.notify.notify_one();
        };
        self.all.values().for_each(|slot| tell(slot));
        self.others.values().filter(|(filter, _)| filter.matches(key)).for_each(|(_, slot)| tell(slot));
        if !self.services.is_empty()
            && let Some(slots) = self.services.get(&key.service_key())
        {
            slots.values().for_each(|slot| tell(slot));
        }
    }

    fn open(&mut self, filter: &Filter, slot: &Arc<Slot>) -> u64 {
        self.next += 1;
        let (id, slot) = (self.next, Arc::clone(slot));
        self.len += 1;
        *self.owners.entry(Arc::clone(&slot.owner)).or_default() += 1;
        match (&filter.namespace, &filter.service) {
            (None, None) => {
                self.all.insert(id, slot);
            }
            (Some(namespace), Some(service)) => {
                let key = ServiceKey::new(Arc::clone(namespace), Arc::clone(service));
                self.services.entry(key).or_default().insert(id, slot);
            }
            _ => {
                self.others.insert(id, (filter.clone(), slot));
            }
        }
        id
    }

    fn close(&mut self, id: u64, filter: &Filter, slot: &Slot) {
        self.len -= 1;
        if let Some(count) = self.owners.get_mut(&slot.owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&slot.owner);
            }
        }
        match (&filter.namespace, &filter.service) {
            (None, None) => {
                self.all.remove(&id);
            }
            (Some(namespace), Some(service)) => {
                let key = ServiceKey::new(Arc::clone(namespace), Arc::clone(service));
                if let Some(slots) = self.services.get_mut(&key) {
                    slots.remove(&id);
                    if slots.is_empty() {
                        self.services.remove(&key);
                    }
                }
            }
            _ => {
                self.others.remove(&id);
            }
        }
    }

    /// The history was replaced: every watch finds its place too old.
    pub(super) fn restart(&self) {
        self.slots().for_each(|slot| {
            slot.unread.store(0, Ordering::Release);
            slot.notify.notify_one();
        });
    }

    /// The store was closed: every watch ends.
    pub(super) fn end(&mut self) {
        self.is_closed = true;
        self.slots().for_each(|slot| slot.notify.notify_one());
    }

    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let services = self.services.values().flat_map(HashMap::values);
        self.all.values().chain(self.others.values().map(|(_, slot)| slot)).chain(services)
    }
}
