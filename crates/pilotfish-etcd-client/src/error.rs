//! Why a call failed.

use crate::MAX_MESSAGE;
use pilotfish_registry_client::SessionError;
use std::time::Duration;
use tonic::{Code, Status};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The revision that was asked for is gone.
    #[error("the revision was compacted")]
    Compacted,
    /// The answer is larger than what is taken.
    #[error("the answer is larger than {} MiB", MAX_MESSAGE >> 20)]
    TooLarge,
    /// There is no such lease, or not any more. Nothing was written.
    #[error("there is no such lease")]
    LeaseNotFound,
    /// The server's quota is used up. Nothing was written.
    #[error("{0}")]
    NoSpace(SessionError),
    /// Nothing came in time. What was asked for may have happened or not.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The server refused. Asked elsewhere or again, it would be the same.
    #[error("{0}")]
    Refused(SessionError),
    /// The server cannot be reached, has no leader, or has forgotten who asks. What was asked for may have happened or not.
    #[error("{0}")]
    Unreachable(SessionError),
}

impl CallError {
    /// Whether this server, or this login, is of no use any more.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Unreachable(_))
    }
}

impl From<Status> for CallError {
    /// etcd's texts are part of its API, as its own client compares them: several errors share a code.
    fn from(status: Status) -> Self {
        let says = |text: &str| status.message().contains(text);
        match status.code() {
            Code::OutOfRange if says("has been compacted") => Self::Compacted,
            Code::OutOfRange if says("message length too large") => Self::TooLarge,
            Code::NotFound if says("requested lease not found") => Self::LeaseNotFound,
            Code::ResourceExhausted if says("database space exceeded") => Self::NoSpace(reason(&status)),
            // Logging in again helps.
            Code::InvalidArgument if says("revision of auth store is old") => {
                Self::Unreachable(reason(&status))
            }
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented => Self::Refused(reason(&status)),
            _ => Self::Unreachable(reason(&status)),
        }
    }
}

/// What a status says, for people: its text, and what is behind it.
#[must_use]
pub fn reason(status: &Status) -> SessionError {
    match std::error::Error::source(status) {
        Some(source) => SessionError::new(pilotfish_source::error_chain(source)),
        None if status.message().is_empty() => SessionError::new(status.code().description()),
        None => SessionError::new(status.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_tell_errors_of_one_code_apart() {
        let error = |code, text: &str| format!("{:?}", CallError::from(Status::new(code, text)));
        for (code, text, wanted) in [
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "Compacted"),
            (Code::OutOfRange, "Error, decoded message length too large: found 9", "TooLarge"),
            (Code::NotFound, "etcdserver: requested lease not found", "LeaseNotFound"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "NoSpace"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "Refused"),
            (Code::PermissionDenied, "etcdserver: permission denied", "Refused"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", "Unreachable"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "Unreachable"),
            (Code::Unavailable, "etcdserver: no leader", "Unreachable"),
        ] {
            assert!(error(code, text).starts_with(wanted), "{text}: {}", error(code, text));
        }
    }
}
