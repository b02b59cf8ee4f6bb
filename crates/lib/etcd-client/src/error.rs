//! Errors of calls.

use crate::MAX_MESSAGE;
use pilotfish_runtime::SessionError;
use std::time::Duration;
use tonic::{Code, Status};

/// Error of a call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The requested revision was compacted.
    #[error("the revision was compacted")]
    Compacted,
    /// The response exceeds the message limit.
    #[error("the answer is larger than {} MiB", MAX_MESSAGE >> 20)]
    TooLarge,
    /// The lease does not exist or has expired. Nothing was written.
    #[error("there is no such lease")]
    LeaseNotFound,
    /// The server's storage quota is exceeded. Nothing was written.
    #[error("{0}")]
    NoSpace(SessionError),
    /// Timeout. The request may or may not have been applied.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The server refused the request; a retry or another server would refuse it too.
    #[error("{0}")]
    Refused(SessionError),
    /// The server is unreachable, has no leader, or its login has expired. The request may or may not have
    /// been applied.
    #[error("{0}")]
    Unreachable(SessionError),
}

impl CallError {
    /// True if another server or a new login is needed.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Unreachable(_))
    }
}

impl From<Status> for CallError {
    /// etcd's error texts are part of its API, and its own client compares them: several errors share a code.
    fn from(status: Status) -> Self {
        let says = |text: &str| status.message().contains(text);
        match status.code() {
            Code::OutOfRange if says("has been compacted") => Self::Compacted,
            Code::OutOfRange if says("message length too large") => Self::TooLarge,
            Code::NotFound if says("requested lease not found") => Self::LeaseNotFound,
            Code::ResourceExhausted if says("database space exceeded") => Self::NoSpace(reason(&status)),
            // A new login helps.
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

/// Returns the message of a status with its causes.
#[must_use]
pub fn reason(status: &Status) -> SessionError {
    match std::error::Error::source(status) {
        Some(source) => SessionError::new(pilotfish_runtime::error_chain(source)),
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
