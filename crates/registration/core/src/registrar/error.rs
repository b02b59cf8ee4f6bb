//! Errors of registrations and deregistrations.

use crate::limits::MAX_BATCH;
use crate::{Record, WriteError};
use std::sync::Arc;

/// Error of a registration or deregistration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RegistrarError {
    /// The record is not in the expected state.
    #[error("{}", WriteError::Conflict { current: current.clone() })]
    Conflict {
        /// Current record; `None` if there is none.
        current: Option<Arc<Record>>,
    },
    /// Another identity registered it.
    #[error("{0:?} registered it")]
    NotOwner(Arc<str>),
    /// The registration would exceed a limit, named as in docs/limits.md.
    #[error("limit {limit}: {most} are registered")]
    Limit {
        /// Name of the limit.
        limit: &'static str,
        /// Maximum number of instances or services.
        most: usize,
    },
    /// The registration would exceed a limit of bytes, named as in docs/limits.md.
    #[error("the instance takes about {wanted} bytes, {used} of {most} bytes are used (limit {limit})")]
    Bytes {
        /// Name of the limit.
        limit: &'static str,
        /// Maximum number of bytes.
        most: usize,
        /// Bytes in use that count towards the limit.
        used: usize,
        /// Bytes of the registration.
        wanted: usize,
    },
    /// The store cannot record a removal now. The instance gets no more requests, and the removal is
    /// repeated.
    #[error(
        "the instance gets no more requests, but the store cannot record its removal yet: {0}. The removal \
         is repeated until it can; if Pilotfish is restarted before that, the instance is back"
    )]
    Withdrawn(String),
    /// The store is unreachable. The write may have happened; retrying is safe.
    #[error("the store cannot write now: {0}")]
    Unavailable(String),
    /// The store's disk or quota is full.
    #[error("the store is full: {0}")]
    Full(String),
    /// The batch exceeds the maximum size.
    #[error("a batch has at most {MAX_BATCH}")]
    TooMany,
}

impl RegistrarError {
    /// Error before the store was read.
    pub(super) fn not_read() -> Self {
        Self::Unavailable("it was not read yet".to_owned())
    }
}

impl From<WriteError> for RegistrarError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict { current } => Self::Conflict { current },
            WriteError::Unavailable(why) => Self::Unavailable(why),
            WriteError::Full(why) => Self::Full(why),
        }
    }
}
