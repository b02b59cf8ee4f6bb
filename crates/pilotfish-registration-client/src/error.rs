//! Why a call failed.

use pilotfish_registration_api::v1::FieldViolation;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings are impossible.
    #[error("{0}")]
    Settings(String),
    /// The token cannot be read.
    #[error("cannot read the token: {0}")]
    Token(String),
    /// Fields of the instance are wrong. Trying again does not help.
    #[error("{message}")]
    Invalid {
        /// All of them, in one line.
        message: String,
        /// Each of them.
        fields: Vec<FieldViolation>,
    },
    /// The server said no. Trying the same again does not help.
    #[error("{message} ({code})")]
    Refused {
        /// The code of gRPC.
        code: Code,
        /// Why.
        message: String,
    },
    /// No server can be reached, or none can answer now. Trying again may help.
    #[error("{message}")]
    Unavailable {
        /// Why, of the last server that was tried.
        message: String,
        /// How long to wait at least.
        retry_after: Option<Duration>,
    },
}

impl ClientError {
    /// Whether trying the same again can succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Token(_))
    }

    /// The error of an answer.
    pub(crate) fn of(status: &Status) -> Self {
        let message = status.message().to_owned();
        let details = status.get_error_details();
        match status.code() {
            Code::InvalidArgument => {
                let fields =
                    details.bad_request().map(|request| &request.field_violations[..]).unwrap_or_default();
                let fields = fields.iter().map(|violation| FieldViolation {
                    field: violation.field.clone(),
                    message: violation.description.clone(),
                });
                Self::Invalid { message, fields: fields.collect() }
            }
            // Limits of rates and of what fits now pass; so does a transport that broke off.
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Cancelled
            | Code::Unknown => {
                let retry_after = details.retry_info().and_then(|retry| retry.retry_delay);
                Self::Unavailable { message, retry_after }
            }
            // Tokens are rotated, and rules are mended: only the application knows whether waiting makes sense.
            code => Self::Refused { code, message },
        }
    }

    /// The code, where the server said no.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    #[test]
    fn what_can_pass_is_temporary() {
        for (code, expected) in [
            (Code::Unavailable, true),
            (Code::ResourceExhausted, true),
            (Code::DeadlineExceeded, true),
            (Code::InvalidArgument, false),
            (Code::PermissionDenied, false),
            (Code::Unauthenticated, false),
            (Code::Aborted, false),
        ] {
            assert_eq!(ClientError::of(&Status::new(code, "x")).is_temporary(), expected, "{code:?}");
        }
    }

    #[test]
    fn fields_and_waits_are_taken_from_details() {
        let mut details = ErrorDetails::with_bad_request_violation("instance.ttl", "too short");
        let invalid = ClientError::of(&Status::with_error_details(Code::InvalidArgument, "x", details));
        assert!(
            matches!(&invalid, ClientError::Invalid { fields, .. } if fields[0].field == "instance.ttl"),
            "{invalid:?}"
        );
        details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
        let busy = ClientError::of(&Status::with_error_details(Code::Unavailable, "x", details));
        assert!(
            matches!(busy, ClientError::Unavailable { retry_after: Some(after), .. } if after.as_secs() == 3)
        );
    }
}
