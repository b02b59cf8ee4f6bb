//! Errors that end a stream, with their gRPC status.

use crate::limits::LimitExceeded;
use crate::source::ConnectError;
use pilotfish_identity::Unauthenticated;
use tonic::Code;

/// Reason for the end of a stream. The text is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A malformed message or node.
    #[error("{0}")]
    InvalidArgument(String),
    /// The client did not authenticate on a listener that requires it.
    #[error("{0}")]
    Unauthenticated(String),
    /// The client's identity does not allow the claims of its node.
    #[error("{0}")]
    PermissionDenied(String),
    /// An object that the client's node names does not exist yet.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The client exceeds a limit.
    #[error(transparent)]
    ResourceExhausted(LimitExceeded),
    /// The server is not ready or shutting down: a retry helps.
    #[error("{0}")]
    Unavailable(String),
    /// Unsupported method or encoding.
    #[error("{0}")]
    Unimplemented(String),
    /// The client sent no request in time.
    #[error("{0}")]
    DeadlineExceeded(String),
}

impl StreamError {
    /// The gRPC status code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidArgument(_) => Code::InvalidArgument,
            Self::PermissionDenied(_) => Code::PermissionDenied,
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::FailedPrecondition(_) => Code::FailedPrecondition,
            Self::ResourceExhausted(_) => Code::ResourceExhausted,
            Self::DeadlineExceeded(_) => Code::DeadlineExceeded,
            Self::Unimplemented(_) => Code::Unimplemented,
            Self::Unavailable(_) => Code::Unavailable,
        }
    }

    /// Name of the gRPC status code as in gRPC's documents, which `tonic::Code` does not have:
    /// `INVALID_ARGUMENT`.
    #[must_use]
    pub fn code_name(&self) -> &'static str {
        match self {
            Self::InvalidArgument(_) => "INVALID_ARGUMENT",
            Self::PermissionDenied(_) => "PERMISSION_DENIED",
            Self::Unauthenticated(_) => "UNAUTHENTICATED",
            Self::FailedPrecondition(_) => "FAILED_PRECONDITION",
            Self::ResourceExhausted(_) => "RESOURCE_EXHAUSTED",
            Self::DeadlineExceeded(_) => "DEADLINE_EXCEEDED",
            Self::Unimplemented(_) => "UNIMPLEMENTED",
            Self::Unavailable(_) => "UNAVAILABLE",
        }
    }
}

impl From<LimitExceeded> for StreamError {
    fn from(error: LimitExceeded) -> Self {
        Self::ResourceExhausted(error)
    }
}

impl From<Unauthenticated> for StreamError {
    fn from(error: Unauthenticated) -> Self {
        Self::Unauthenticated(error.to_string())
    }
}

impl From<ConnectError> for StreamError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::InvalidArgument(text) => Self::InvalidArgument(text),
            ConnectError::PermissionDenied(text) => Self::PermissionDenied(text),
            ConnectError::LimitExceeded(error) => Self::ResourceExhausted(error),
            ConnectError::FailedPrecondition(text) => Self::FailedPrecondition(text),
            ConnectError::Unauthenticated(text) => Self::Unauthenticated(text),
            ConnectError::Unavailable(text) => Self::Unavailable(text),
        }
    }
}
