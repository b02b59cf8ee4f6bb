//! The contract of stores: acknowledged writes are durable, and all changes are published as events.
//!
//! Opening a store returns it and its [`StoreEvents`]. The first event is [`StoreEvent::Reset`]. Memory is
//! changed by events only, so everything visible is durable.
//!
//! **Revisions.** One counter for the whole store, which only rises. A write that changes something has a
//! revision of its own or shares that of the writes it was committed with; a later commit has a higher one.
//! [`StoreEvent::Changed`] events come in the order of their revisions.
//!
//! **Leases.** Writing a record that has a [lease](Record::lease) renews it, even if the write changes
//! nothing. No wall clock is stored or compared: leases use monotonic time and restart when a store is
//! opened, so that a restart or suspension of the process expires no lease.

mod error;
mod events;

pub use error::{RenewError, WriteError};
pub use events::{StoreEvent, StoreEventSender, StoreEvents, store_events};

use crate::{Instance, InstanceKey, Record, RecordState};
use futures::future::BoxFuture;
use std::sync::Arc;

/// A store of records.
pub trait Store: Send + Sync + 'static {
    /// Each write succeeds or fails independently, with one answer each, in order. Resolves when the
    /// successful writes are durable and their events were sent. Two writes of one key in one call happen in
    /// order.
    ///
    /// Writing an identical record (instance, owner and state) changes nothing and returns the stored
    /// revision, regardless of the expectation, so that a caller without an answer may retry. Removing a
    /// missing record changes nothing either. Dropping the future does not cancel a write.
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'_, Vec<Result<Written, WriteError>>>;

    /// Renews leases without disk writes. Returns one answer each, in order.
    fn renew(&self, renewals: Vec<InstanceKey>) -> BoxFuture<'_, Vec<Result<(), RenewError>>>;

    /// Returns kind and place, for status, logs and metrics.
    fn describe(&self) -> StoreDescription;
}

/// A write of one record.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Key of the record; equal to that of the value, if there is one.
    pub key: InstanceKey,
    /// Expected state of the record.
    pub expected: Expected,
    /// New record; `None` removes it.
    pub value: Option<Value>,
}

/// Precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Expected {
    #[default]
    Any,
    /// There is no record.
    Absent,
    /// A record whose last change has this revision.
    Revision(u64),
}

/// A record without its revisions, which the store assigns.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub instance: Arc<Instance>,
    /// The identity that registers it.
    pub owner: Arc<str>,
    pub state: RecordState,
}

impl Value {
    /// True if writing it would change nothing.
    #[must_use]
    pub fn equals(&self, record: &Record) -> bool {
        self.state == record.state && self.owner == record.owner && self.instance == record.instance
    }
}

/// Result of a successful write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Revision of the change, or of the identical record. For a removal of a missing record: any revision
    /// that the store has had.
    pub revision: u64,
    /// True if the record changed.
    pub changed: bool,
}

/// Description of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDescription {
    /// Kind of the store: `redb`, `etcd`.
    pub kind: &'static str,
    /// A file or addresses.
    pub place: String,
    /// Size on disk in bytes, if known.
    pub bytes: Option<u64>,
    /// Reason that the store cannot write.
    pub trouble: Option<String>,
}

impl Expected {
    /// Checks the expectation.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] with the current record.
    pub fn check(self, current: Option<&Arc<Record>>) -> Result<(), WriteError> {
        let is_met = match (self, current) {
            (Self::Any, _) | (Self::Absent, None) => true,
            (Self::Revision(expected), Some(record)) => record.revision == expected,
            (Self::Absent, Some(_)) | (Self::Revision(_), None) => false,
        };
        if is_met { Ok(()) } else { Err(WriteError::Conflict { current: current.cloned() }) }
    }
}
