//! Why an instance was not registered or deregistered.

use crate::limits::MAX_BATCH;
use crate::{Record, WriteError};
use std::sync::Arc;

/// Why a registration or a deregistration did not happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RegistrarError {
    /// Something else is there than what was expected.
    #[error("{}", WriteError::Conflict { current: current.clone() })]
    Conflict {
        /// What is there.
        current: Option<Arc<Record>>,
    },
    /// Another identity registered it.
    #[error("{0:?} registered it")]
    NotOwner(Arc<str>),
    /// A registration would exceed a limit; its name is that of docs/limits.md.
    #[error("limit {limit}: {most} are registered")]
    Limit {
        /// Which.
        limit: &'static str,
        /// The most that is allowed.
        most: usize,
    },
    /// A registration would exceed a limit of bytes; its name is that of docs/limits.md.
    #[error("the instance takes about {wanted} bytes, {used} of {most} bytes are used (limit {limit})")]
    Bytes {
        /// Name of the limit.
        limit: &'static str,
        /// The most that is allowed.
        most: usize,
        /// Bytes of instances that count towards it already.
        used: usize,
        /// Bytes that the registration would add.
        wanted: usize,
    },
    /// The store cannot record a removal now. The instance gets no requests any more, and the removal is repeated.
    #[error(
        "the instance gets no more requests, but the store cannot record its removal yet: {0}. The removal is repeated until it can; if \
         Pilotfish is restarted before that, the instance is back"
    )]
    Withdrawn(String),
    /// The store cannot be reached. It may have happened; trying again is safe.
    #[error("the store cannot write now: {0}")]
    Unavailable(String),
    /// The store's disk or quota is full.
    #[error("the store is full: {0}")]
    Full(String),
    /// There are more of them in one batch than are allowed.
    #[error("a batch has at most {MAX_BATCH}")]
    TooMany,
}

impl RegistrarError {
    /// Before the store was read.
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
