//! What a publication leaves for a stream: which types changed, and whom to wake.

use enum_map::Enum;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Resource types as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Types(u8);

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

/// Tells a stream that something it subscribed to changed, and of which types. Setting it twice is setting it once, so a
/// slow stream has at most one pending push: the newest state.
#[derive(Debug, Default)]
pub struct Mark {
    /// The types that changed, and [`MOVED`].
    set: AtomicU8,
    /// Nanoseconds from the fan-out's start to the publication that set the mark first.
    since: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// The bit of a mark that says that the client's views have to be looked up again.
pub(crate) const MOVED: u8 = 1 << 7;
const _: () = assert!(ResourceType::LENGTH <= 7, "types and one more bit fit into a mark");

impl Mark {
    /// Whom to wake when the mark is set.
    pub fn wake_with(&self, waker: Waker) {
        *self.waker.lock() = Some(waker);
    }

    /// Whether the mark is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire) != 0
    }

    /// Clears the mark; returns what it said.
    pub(crate) fn take(&self) -> Option<Marked> {
        if !self.is_set() {
            return None;
        }
        let since = Duration::from_nanos(self.since.load(Ordering::Relaxed));
        let set = self.set.swap(0, Ordering::AcqRel);
        Some(Marked { types: Types(set & !MOVED), moved: set & MOVED != 0, since })
    }

    /// Returns whether it was not set before.
    pub(crate) fn set(&self, bits: u8, since: Duration) -> bool {
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

/// What a mark said.
pub(crate) struct Marked {
    pub(crate) types: Types,
    pub(crate) moved: bool,
    pub(crate) since: Duration,
}
