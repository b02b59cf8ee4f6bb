//! Why a write or a renewal did not happen.

use crate::Record;
use std::sync::Arc;

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// Something else is there than what was expected.
    #[error("{}", conflict(current.as_deref()))]
    Conflict {
        /// What is there.
        current: Option<Arc<Record>>,
    },
    /// Nothing was acknowledged: it may have happened or not, and trying again is safe.
    #[error("the store cannot write now: {0}")]
    Unavailable(String),
    /// The disk or a quota is full. Nothing was changed; trying again later makes sense.
    #[error("the store is full: {0}")]
    Full(String),
}

/// Why a lease was not renewed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// There is no such lease: the instance must be registered again.
    #[error("there is no such lease: register again")]
    NotFound,
    /// The store cannot be reached; trying again is safe.
    #[error("the store cannot renew leases now: {0}")]
    Unavailable(String),
}

impl WriteError {
    /// Whether trying the same again can succeed.
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
