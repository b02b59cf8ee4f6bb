//! Errors of calls.

use tonic::{Code, Status};

/// Error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The options cannot be used.
    #[error("{0}")]
    Options(String),
    /// The server refuses the request, and a retry will fail too: an invalid instance, missing identity or
    /// missing permission.
    #[error("{message}{}", of_fields(fields))]
    Refused {
        code: Code,
        message: String,
        /// Invalid fields of the request; empty for other reasons.
        fields: Vec<FieldError>,
    },
    /// No server is reachable, or none can handle the call now. Retrying is safe.
    #[error("{0}")]
    Unavailable(String),
    /// The lease is lost: the instance must be registered again.
    #[error("{0}")]
    NotFound(String),
}

/// A field that the server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `instance.ports[0].number`.
    pub field: String,
    /// The mistake and the allowed values.
    pub message: String,
}

fn of_fields(fields: &[FieldError]) -> String {
    fields.iter().map(|wrong| format!("\n  {}: {}", wrong.field, wrong.message)).collect()
}

impl Error {
    /// True if the same call may succeed later, or at another server.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let message = pilotfish_runtime::one_line(status.message());
        match status.code() {
            Code::NotFound => Self::NotFound(message),
            code @ (Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Aborted
            | Code::OutOfRange
            | Code::FailedPrecondition
            | Code::AlreadyExists
            | Code::Unimplemented) => Self::Refused { code, message, fields: fields(&status) },
            // Other codes may be temporary: the server, or a proxy in front of it, is overloaded or restarts.
            code => {
                Self::Unavailable(if message.is_empty() { code.description().to_owned() } else { message })
            }
        }
    }
}

/// Returns the violations of `google.rpc.BadRequest` in the details of a status.
fn fields(status: &Status) -> Vec<FieldError> {
    use tonic_types::StatusExt;
    let Some(request) = status.get_details_bad_request() else { return Vec::new() };
    let field =
        |wrong: tonic_types::FieldViolation| FieldError { field: wrong.field, message: wrong.description };
    request.field_violations.into_iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::{ErrorDetails, StatusExt};

    #[test]
    fn a_status_is_refused_lost_or_passes() {
        let error = |code| Error::from(Status::new(code, "why"));
        for code in [Code::InvalidArgument, Code::PermissionDenied, Code::Unauthenticated, Code::Aborted] {
            assert!(matches!(error(code), Error::Refused { .. }), "{code:?}");
        }
        for code in [
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Unknown,
            Code::Internal,
            Code::DeadlineExceeded,
        ] {
            assert!(error(code).is_transient(), "{code:?}");
        }
        assert!(matches!(error(Code::NotFound), Error::NotFound(_)));
    }

    #[test]
    fn fields_are_named() {
        let details =
            ErrorDetails::with_bad_request_violation("instance.ports[0].number", "not from 1 to 65535");
        let error =
            Error::from(Status::with_error_details(Code::InvalidArgument, "1 field is wrong", details));
        assert_eq!(error.to_string(), "1 field is wrong\n  instance.ports[0].number: not from 1 to 65535");
    }
}
