//! State that a publication leaves for a stream: the types that changed, and the task to wake.

use crate::source::ClientId;
use enum_map::Enum;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

/// One bit for each resource type, at its position in push order.
type Bits = u32;

/// Bit after those of the types: the client's views have to be computed again.
const VIEW_CHANGED: Bits = 1 << ResourceType::LENGTH;
/// Next bit: collections have changed.
const COLLECTIONS_CHANGED: Bits = 1 << (ResourceType::LENGTH + 1);
/// Next bit: the mark is counted in [`Due`].
const COUNTED: Bits = 1 << (ResourceType::LENGTH + 2);
const _: () =
    assert!(ResourceType::LENGTH + 2 < Bits::BITS as usize, "all types and three more bits fit into a mark");

/// Number of marked prompt streams that have not handled their mark yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due(Arc<AtomicUsize>);

impl Due {
    pub(crate) fn is_some(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn one_less(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A set of resource types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types(Bits);

impl Types {
    pub const ALL: Self = Self((1 << ResourceType::LENGTH) - 1);

    #[must_use]
    pub fn contains(self, ty: ResourceType) -> bool {
        self.0 & (1 << ty.into_usize()) != 0
    }

    /// Adds the types of another set.
    pub fn extend(&mut self, others: Self) {
        self.0 |= others.0;
    }

    pub(crate) fn add(&mut self, ty: ResourceType) {
        self.0 |= 1 << ty.into_usize();
    }

    pub(crate) fn remove(&mut self, ty: ResourceType) {
        self.0 &= !(1 << ty.into_usize());
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl From<ResourceType> for Types {
    fn from(ty: ResourceType) -> Self {
        Self(1 << ty.into_usize())
    }
}

impl FromIterator<ResourceType> for Types {
    fn from_iter<I: IntoIterator<Item = ResourceType>>(types: I) -> Self {
        let mut all = Self::default();
        types.into_iter().for_each(|ty| all.add(ty));
        all
    }
}

/// Pending changes of a stream's subscriptions, by type. Setting a mark is idempotent, so a slow stream has
/// at most one pending push, of the newest state.
#[derive(Debug, Default)]
pub struct Mark {
    /// The types that changed, and [`VIEW_CHANGED`].
    set: AtomicU32,
    /// Nanoseconds from the fan-out's start to the publication that set the mark first.
    since: AtomicU64,
    /// The revision of the newest publication that set the mark.
    revision: AtomicU64,
    /// Index of the stream among those that this publication concerns.
    place: AtomicU32,
    /// The stream's client, once that is known.
    client: AtomicU64,
    /// True if the stream handles a publication as soon as its task runs: its client reads, and has received
    /// all first responses.
    prompt: AtomicBool,
    /// True once the client's credentials are no longer valid.
    revoked: AtomicBool,
    due: Due,
    waker: Mutex<Option<Waker>>,
}

impl Mark {
    /// Creates a mark that is counted in `due` while it is set and the stream is prompt.
    pub(crate) fn counted_in(due: &Due) -> Self {
        let mut mark = Self::default();
        mark.due = due.clone();
        mark
    }

    /// Sets the waker of the task that polls the stream. It is woken by every publication that sets the mark.
    pub fn wake_with(&self, waker: Waker) {
        *self.waker.lock() = Some(waker);
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire) != 0
    }

    /// Notes that the client's credentials are no longer valid, and wakes the stream's task to end it.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// The revision of the newest publication that concerned the stream, at least that in force when its
    /// client was accepted.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Stores the stream's index among those that a publication concerns. Used by the publisher.
    pub(crate) fn set_place(&self, place: usize) {
        self.place.store(u32::try_from(place).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Index of the stream among those that the newest publication concerns.
    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn belongs_to(&self, client: ClientId) {
        self.client.store(client.0, Ordering::Release);
    }

    /// The stream's client, once that is known.
    pub(crate) fn client(&self) -> ClientId {
        ClientId(self.client.load(Ordering::Acquire))
    }

    /// Raises the revision to the one that the stream begins with.
    pub(crate) fn concerns(&self, revision: u64) {
        self.revision.fetch_max(revision, Ordering::AcqRel);
    }

    /// True if resources of the type changed, or the client's views did.
    pub(crate) fn says(&self, ty: ResourceType) -> bool {
        self.set.load(Ordering::Acquire) & (1 << ty.into_usize() | VIEW_CHANGED) != 0
    }

    /// Sets the flag `prompt`, and stops counting the mark if the stream is not prompt.
    pub(crate) fn set_prompt(&self, prompt: bool) {
        self.prompt.store(prompt, Ordering::Release);
        if !prompt && self.set.fetch_and(!COUNTED, Ordering::AcqRel) & COUNTED != 0 {
            self.due.one_less();
        }
    }

    /// Clears the mark and returns what was set.
    pub(crate) fn take(&self) -> Option<Marked> {
        if !self.is_set() {
            return None;
        }
        let since = Duration::from_nanos(self.since.load(Ordering::Relaxed));
        let set = self.set.swap(0, Ordering::AcqRel);
        if set & COUNTED != 0 {
            self.due.one_less();
        }
        Some(Marked {
            types: Types(set & !(VIEW_CHANGED | COLLECTIONS_CHANGED | COUNTED)),
            view_changed: set & VIEW_CHANGED != 0,
            collections_changed: set & COLLECTIONS_CHANGED != 0,
            since,
        })
    }

    /// Marks a change of resources of the type.
    pub(crate) fn set_changed(&self, ty: ResourceType, revision: u64, since: Duration) -> Set {
        self.set_at(1 << ty.into_usize(), revision, since)
    }

    /// Marks a change of the client's views.
    pub(crate) fn set_moved(&self, revision: u64, since: Duration) -> Set {
        self.set_at(VIEW_CHANGED, revision, since)
    }

    fn set_at(&self, bits: Bits, revision: u64, since: Duration) -> Set {
        let is_first = self.revision.swap(revision, Ordering::AcqRel) != revision;
        Set { wakes: self.set(bits, since), is_first }
    }

    /// Marks a change of collections. Returns true if the mark was clear before, so that the stream has to be
    /// woken.
    pub(crate) fn set_collections(&self, since: Duration) -> bool {
        self.set(COLLECTIONS_CHANGED, since)
    }

    /// Marks a change of the client's private Secrets, as [`Self::set_collections`].
    pub(crate) fn set_private(&self, since: Duration) -> bool {
        self.set(1 << ResourceType::Secret.into_usize(), since)
    }

    fn set(&self, bits: Bits, since: Duration) -> bool {
        if !self.is_set() {
            self.since.store(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        if !self.prompt.load(Ordering::Acquire) {
            return self.set.fetch_or(bits, Ordering::AcqRel) == 0;
        }
        // Counted before it is set: the task that clears it decrements the count.
        self.due.one_more();
        let before = self.set.fetch_or(bits | COUNTED, Ordering::AcqRel);
        if before & COUNTED != 0 {
            self.due.one_less();
        }
        before == 0
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.set_prompt(false);
    }
}

/// Result of setting a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    /// The mark was clear before, so that the stream has to be woken.
    pub(crate) wakes: bool,
    /// The publication had not set the mark yet.
    pub(crate) is_first: bool,
}

/// State that a mark held when it was taken.
pub(crate) struct Marked {
    pub(crate) types: Types,
    /// True if the client's views have to be computed again.
    pub(crate) view_changed: bool,
    /// True if collections have to be compared again.
    pub(crate) collections_changed: bool,
    /// Time from the fan-out's start to the first publication that set the mark.
    pub(crate) since: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_streams_that_are_marked_are_counted_once() {
        let due = Due::default();
        let [one, slow, gone] = std::array::from_fn(|_| Mark::counted_in(&due));
        let change = |mark: &Mark| mark.set_changed(ResourceType::Cluster, 1, Duration::ZERO);
        change(&one);
        assert!(!due.is_some(), "it was never said to be prompt");
        [&one, &slow, &gone].into_iter().for_each(|mark| mark.set_prompt(true));
        for mark in [&one, &one, &slow, &gone] {
            change(mark);
        }
        assert_eq!(due.0.load(Ordering::Relaxed), 3);
        let marked = one.take().unwrap();
        assert!(marked.types.contains(ResourceType::Cluster) && !marked.view_changed);
        slow.set_prompt(false);
        assert!(slow.is_set(), "it will be handled, but others do not wait for that");
        assert_eq!(due.0.load(Ordering::Relaxed), 1);
        drop(gone);
        assert!(!due.is_some());
        slow.take();
        assert!(!due.is_some());
    }

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
