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

impl From<WriteError> for RegistrarError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict { current } => Self::Conflict { current },
            WriteError::Unavailable(why) => Self::Unavailable(why),
            WriteError::Full(why) => Self::Full(why),
        }
    }
}
