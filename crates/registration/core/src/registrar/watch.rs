//! Watches: a snapshot followed by changes, or only the changes since a revision.

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

/// Approximate maximum number of events in a batch.
const BATCH: usize = 1_000;

/// Start position of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// Start with a snapshot of all instances.
    Snapshot,
    /// Resume after the revision of a list, or of the last batch of another watch.
    After {
        revision: u64,
        /// The [epoch](WatchBatch::epoch) of that revision. Without it, instances whose health may have
        /// changed are sent again.
        epoch: Option<u64>,
    },
}

/// A batch of events. Records that changed together are in one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchBatch {
    /// Revision to resume from after this batch, unless `is_partial`.
    pub revision: u64,
    /// Identifies the memory of one process: changes at a restart, and differs between processes.
    pub epoch: u64,
    /// True for a part of a snapshot: instances missing from all parts were removed.
    pub is_snapshot: bool,
    /// True if more parts of a snapshot or of resent instances follow: a watch cannot resume from here.
    pub is_partial: bool,
    pub events: Vec<WatchEvent>,
}

/// Error of a watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The history does not reach back to the revision: a new list or snapshot is needed.
    #[error("the history begins at revision {oldest}: list again, or watch from a snapshot")]
    OutOfRange {
        /// The oldest revision from which a watch can resume.
        oldest: u64,
    },
    /// The store never had this revision or epoch: it was replaced or restored, or another process issued
    /// them.
    #[error(
        "this Pilotfish has no watch of that revision and epoch; its revision is {newest}: list again, or \
         watch from a snapshot"
    )]
    OtherEpoch {
        /// The revision up to which the store was read.
        newest: u64,
    },
    /// Too many watches are open.
    #[error("limit {limit}: {most} are open")]
    Limit {
        /// Name of the limit.
        limit: &'static str,
        /// Maximum number of open watches.
        most: usize,
    },
    /// The store was not read yet; retry soon.
    #[error("the store has not been read yet")]
    NotReady,
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

/// A watch, until it is dropped.
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

/// Events before the first changes.
enum First {
    Nothing,
    /// All instances, or those whose health may have changed, and removed keys.
    Views {
        is_snapshot: bool,
        gone: Vec<WatchEvent>,
        views: std::vec::IntoIter<InstanceView>,
    },
}

/// Notification slot of a watch, set by the writer.
struct Slot {
    owner: Arc<str>,
    /// Number of the first unread event that matches the filter; [`NONE`] for none.
    unread: AtomicU64,
    notify: Notify,
}

const NONE: u64 = u64::MAX;

/// Open watches, indexed by their filters.
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
    /// Starts a watch.
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

/// Returns the events before the first changes, and the number of the first change.
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
    /// Waits for events and returns a batch of them. Cancel-safe.
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

    /// Returns an empty batch with the current revision if no event is unread, so that a watch without events
    /// can resume later.
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
        // The writer sets the slot under the same lock, so no event is missed in between.
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

    /// Notifies watches whose filter may match an event with this number.
    pub(super) fn changed(&mut self, key: &InstanceKey, number: u64) {
        let tell = |slot: &Slot| {
            // Only the first number matters: a watch reads everything from there.
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

    /// Wakes all watches after the history was replaced: their positions are too old.
    pub(super) fn restart(&self) {
        self.slots().for_each(|slot| {
            slot.unread.store(0, Ordering::Release);
            slot.notify.notify_one();
        });
    }

    /// Ends all watches after the store was closed.
    pub(super) fn end(&mut self) {
        self.is_closed = true;
        self.slots().for_each(|slot| slot.notify.notify_one());
    }

    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let services = self.services.values().flat_map(HashMap::values);
        self.all.values().chain(self.others.values().map(|(_, slot)| slot)).chain(services)
    }
}
