//! Errors of writes and renewals.

use crate::Record;
use std::sync::Arc;

/// Error of a write.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// The record is not in the expected state.
    #[error("{}", conflict(current.as_deref()))]
    Conflict {
        /// Current record; `None` if there is none.
        current: Option<Arc<Record>>,
    },
    /// Nothing was acknowledged: the write may have happened, and retrying is safe.
    #[error("the store cannot write now: {0}")]
    Unavailable(String),
    /// The disk or a quota is full. Nothing was changed; retrying later makes sense.
    #[error("the store is full: {0}")]
    Full(String),
}

/// Error of a renewal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// The lease does not exist: the instance must be registered again.
    #[error("there is no such lease: register again")]
    NotFound,
    /// The store is unreachable; retrying is safe.
    #[error("the store cannot renew leases now: {0}")]
    Unavailable(String),
}

impl WriteError {
    /// True if a retry can succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Full(_))
    }
}

fn conflict(current: Option<&Record>) -> String {
    match current {
        Some(record) => format!("it has revision {}", record.revision),
        None => "it is not registered".to_owned(),
    }
}
