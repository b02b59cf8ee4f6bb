//! What a publication leaves for a stream: which types changed, and the task to wake.

use crate::source::ClientId;
use enum_map::Enum;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

/// One bit for each resource type, at the place that the type has in push order.
type Bits = u32;

/// The bit of a mark behind those of the types: the client's views have to be computed again.
const VIEW_CHANGED: Bits = 1 << ResourceType::LENGTH;
/// The bit behind that: collections have another state.
const COLLECTIONS_CHANGED: Bits = 1 << (ResourceType::LENGTH + 1);
const _: () =
    assert!(ResourceType::LENGTH + 1 < Bits::BITS as usize, "all types and two more bits fit into a mark");

/// A set of resource types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Types(Bits);

impl Types {
    pub(crate) fn add(&mut self, ty: ResourceType) {
        self.0 |= 1 << ty.into_usize();
    }

    pub(crate) fn remove(&mut self, ty: ResourceType) {
        self.0 &= !(1 << ty.into_usize());
    }

    pub(crate) fn contains(self, ty: ResourceType) -> bool {
        self.0 & (1 << ty.into_usize()) != 0
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.0 |= others.0;
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A stream's flag for "something that you subscribe to changed", with the types. Setting it twice is setting it once, so a
/// slow stream has at most one pending push: of the newest state.
#[derive(Debug, Default)]
pub struct Mark {
    /// The types that changed, and [`VIEW_CHANGED`].
    set: AtomicU32,
    /// Nanoseconds from the fan-out's start to the publication that set the mark first.
    since: AtomicU64,
    /// The revision of the newest publication that set the mark.
    revision: AtomicU64,
    /// The stream's client, once that is known.
    client: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl Mark {
    /// Sets the waker of the task that polls the stream. It is woken by every publication that sets the mark.
    pub fn wake_with(&self, waker: Waker) {
        *self.waker.lock() = Some(waker);
    }

    /// Whether the mark is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire) != 0
    }

    /// The revision of the newest publication that concerned the stream, at least that in force when its client was accepted.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Notes whose stream it is.
    pub(crate) fn belongs_to(&self, client: ClientId) {
        self.client.store(client.0, Ordering::Release);
    }

    /// The stream's client, once that is known.
    pub(crate) fn client(&self) -> ClientId {
        ClientId(self.client.load(Ordering::Acquire))
    }

    /// Notes the revision that the stream begins with.
    pub(crate) fn concerns(&self, revision: u64) {
        self.revision.fetch_max(revision, Ordering::AcqRel);
    }

    /// Whether the mark says that resources of that type changed, or that the client's views did.
    pub(crate) fn says(&self, ty: ResourceType) -> bool {
        self.set.load(Ordering::Acquire) & (1 << ty.into_usize() | VIEW_CHANGED) != 0
    }

    /// Clears the mark and returns what was set.
    pub(crate) fn take(&self) -> Option<Marked> {
        if !self.is_set() {
            return None;
        }
        let since = Duration::from_nanos(self.since.load(Ordering::Relaxed));
        let set = self.set.swap(0, Ordering::AcqRel);
        Some(Marked {
            types: Types(set & !(VIEW_CHANGED | COLLECTIONS_CHANGED)),
            view_changed: set & VIEW_CHANGED != 0,
            collections_changed: set & COLLECTIONS_CHANGED != 0,
            since,
        })
    }

    /// Marks a change of resources of that type at that revision.
    pub(crate) fn set_changed(&self, ty: ResourceType, revision: u64, since: Duration) -> Set {
        self.set_at(1 << ty.into_usize(), revision, since)
    }

    /// Marks that a view of the client is another one now.
    pub(crate) fn set_moved(&self, revision: u64, since: Duration) -> Set {
        self.set_at(VIEW_CHANGED, revision, since)
    }

    fn set_at(&self, bits: Bits, revision: u64, since: Duration) -> Set {
        let is_first = self.revision.swap(revision, Ordering::AcqRel) != revision;
        Set { wakes: self.set(bits, since), is_first }
    }

    /// Marks that collections have another state. Returns whether the mark was clear before, so that the stream has to be woken.
    pub(crate) fn set_collections(&self, since: Duration) -> bool {
        self.set(COLLECTIONS_CHANGED, since)
    }

    fn set(&self, bits: Bits, since: Duration) -> bool {
        if !self.is_set() {
            self.since.store(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.set.fetch_or(bits, Ordering::AcqRel) == 0
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }
}

/// What setting a mark meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    /// The mark was clear before, so that the stream has to be woken.
    pub(crate) wakes: bool,
    /// The publication had not set the mark yet.
    pub(crate) is_first: bool,
}

/// What was set in a mark.
pub(crate) struct Marked {
    pub(crate) types: Types,
    /// Whether views have to be computed again.
    pub(crate) view_changed: bool,
    /// Whether collections have to be compared again.
    pub(crate) collections_changed: bool,
    /// From the fan-out's start to the first publication that set the mark.
    pub(crate) since: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_and_a_move_have_a_bit_of_their_own() {
        for ty in ResourceType::ALL {
            let mark = Mark::default();
            assert_eq!(mark.set_changed(ty, 3, Duration::ZERO), Set { wakes: true, is_first: true });
            let marked = mark.take().unwrap();
            assert_eq!(mark.revision(), 3);
            let set: Vec<_> = ResourceType::ALL.into_iter().filter(|ty| marked.types.contains(*ty)).collect();
            assert_eq!((set, marked.view_changed), (vec![ty], false));
        }
        let mark = Mark::default();
        assert_eq!(mark.set_moved(1, Duration::ZERO), Set { wakes: true, is_first: true });
        assert_eq!(mark.set_moved(1, Duration::ZERO), Set { wakes: false, is_first: false });
        assert_eq!(
            mark.set_moved(2, Duration::ZERO),
            Set { wakes: false, is_first: true },
            "it is set already"
        );
        let marked = mark.take().unwrap();
        assert!(marked.view_changed && marked.types.is_empty());
        assert!(!mark.is_set());
    }
}
