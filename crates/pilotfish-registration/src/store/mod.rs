//! The contract of stores: writes that are durable when they are acknowledged, and events of what changed.
//!
//! Opening a store gives it and its [`StoreEvents`]. The first event is [`StoreEvent::Reset`]. What memory holds is changed by
//! events only, so whatever can be seen is durable.
//!
//! **Revisions.** One counter for the whole store, which only rises. A write that changes something has a revision of its own or
//! shares that of the writes it was committed with; a later commit has a higher one. [`StoreEvent::Changed`] events come in the order of
//! their revisions.
//!
//! **Leases.** Writing a record that has a [lease](Record::lease) begins it anew, also when the write changes nothing. No wall clock is
//! stored or compared: leases are monotonic time, and begin anew when a store is opened, so a pause of ours expires nobody.

mod error;
mod events;

pub use error::{RenewError, WriteError};
pub use events::{StoreEvent, StoreEventSender, StoreEvents, store_events};

use crate::{Instance, InstanceKey, Record, RecordState};
use futures::future::BoxFuture;
use std::sync::Arc;

/// A store of records.
pub trait Store: Send + Sync + 'static {
    /// Each write succeeds or fails by itself, with one answer for each, in their order. Resolved when what succeeded is durable and
    /// its events were handed on. Two writes of one key in one call happen in their order.
    ///
    /// A write of what is there already (the same instance, owner and state) changes nothing and answers the stored revision, whatever
    /// was expected: who got no answer may try again. The removal of what is not there changes nothing either. Dropping the future does
    /// not take a write back.
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'_, Vec<Result<Written, WriteError>>>;

    /// Begins leases anew; nothing is written to a disk. One answer for each, in their order.
    fn renew(&self, renewals: Vec<InstanceKey>) -> BoxFuture<'_, Vec<Result<(), RenewError>>>;

    /// What it is and where, for status, logs and metrics.
    fn describe(&self) -> StoreDescription;
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Which record. That of the value, if there is one.
    pub key: InstanceKey,
    /// What must be there.
    pub expected: Expected,
    /// What is there afterwards; `None` removes.
    pub value: Option<Value>,
}

/// What must be there for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Expected {
    /// Anything or nothing.
    #[default]
    Any,
    /// Nothing.
    Absent,
    /// A record whose last change has this revision.
    Revision(u64),
}

/// A record without its revisions, which the store gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The instance.
    pub instance: Arc<Instance>,
    /// The identity that registers it.
    pub owner: Arc<str>,
    /// Whether it is leaving.
    pub state: RecordState,
}

impl Value {
    /// Whether writing it would change nothing.
    #[must_use]
    pub fn equals(&self, record: &Record) -> bool {
        self.state == record.state && self.owner == record.owner && self.instance == record.instance
    }
}

/// A write that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The revision of the change, or that of what was there already. For a removal of nothing: any revision that the store has had.
    pub revision: u64,
    /// Whether something changed.
    pub changed: bool,
}

/// A store in words and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDescription {
    /// `redb`, `etcd`.
    pub kind: &'static str,
    /// A file or addresses.
    pub place: String,
    /// Bytes on the disk, where that is known.
    pub bytes: Option<u64>,
    /// Why it cannot write now.
    pub trouble: Option<String>,
}

impl Expected {
    /// Whether that is what is there.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] with what is there.
    pub fn check(self, current: Option<&Arc<Record>>) -> Result<(), WriteError> {
        let is_met = match (self, current) {
            (Self::Any, _) | (Self::Absent, None) => true,
            (Self::Revision(expected), Some(record)) => record.revision == expected,
            (Self::Absent, Some(_)) | (Self::Revision(_), None) => false,
        };
        if is_met { Ok(()) } else { Err(WriteError::Conflict { current: current.cloned() }) }
    }
}
