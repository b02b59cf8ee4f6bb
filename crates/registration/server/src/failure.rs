//! Errors of requests, for gRPC and JSON.

use crate::limits::Limit;
use pilotfish_registration::{FieldViolation, Record, RegistrarError, RenewalError, Violations, WatchError};
use pilotfish_registration_api::v1::{self, error::Code};
use pilotfish_registration_api::{
    BadRequest, HTTP_BODY_TOO_LONG, HTTP_CLIENT_SLOW, LIMIT_HEADER, http_status,
};
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;
use tonic::metadata::MetadataValue;
use tonic_types::{ErrorDetails, StatusExt};

/// gRPC code of a response for metrics, as an extension of the HTTP response.
#[derive(Clone, Copy)]
pub struct Outcome(pub(crate) Code);

/// HTTP status of a call that another product has and this server has not.
const HTTP_NOT_SERVED: u16 = 501;

/// Error of a request, or of an item of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) fields: Vec<FieldViolation>,
    /// Current revision of the record, with [`Code::Aborted`].
    pub(crate) current_revision: u64,
    /// Name of the limit, with [`Code::ResourceExhausted`].
    pub(crate) limit: Option<&'static str>,
    /// Delay before a retry.
    pub(crate) retry_after: Option<Duration>,
    /// HTTP status, if it is not that of the code.
    pub(crate) http: Option<u16>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            fields: Vec::new(),
            current_revision: 0,
            limit: None,
            retry_after: None,
            http: None,
        }
    }

    /// The request is invalid.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// There is no such instance, application or path.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// The batch has more items than a batch may have.
    #[must_use]
    pub fn too_many(message: impl Into<String>) -> Self {
        Self::limited("batch-items", message.into())
    }

    /// The protocol has this call, but it is not served.
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { http: Some(HTTP_NOT_SERVED), ..Self::new(Code::Unimplemented, message) }
    }

    /// The client's connection is unknown: it connects again.
    #[must_use]
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(Code::OutOfRange, message)
    }

    /// The client has as many of something as it may have.
    #[must_use]
    pub fn beyond(limit: &'static str, message: impl Into<String>) -> Self {
        Self::limited(limit, message.into())
    }

    /// Returns the outcome for metrics, as an extension of a response.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome(self.code)
    }

    pub(crate) fn internal(message: &str) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Returns the message for the client.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Violations::one(field, message).into()
    }

    /// The request exceeds a limit of the server.
    pub(crate) fn limit(limit: Limit, message: &str) -> Self {
        Self::limited(limit.as_str(), format!("{message} (limit {})", limit.as_str()))
    }

    fn limited(limit: &'static str, message: String) -> Self {
        Self { limit: Some(limit), ..Self::new(Code::ResourceExhausted, message) }
    }

    /// The body exceeds the maximum size.
    pub(crate) fn too_long(allowed: usize) -> Self {
        let message = format!("the request has more than {allowed} bytes");
        Self { http: Some(HTTP_BODY_TOO_LONG), ..Self::limit(Limit::RequestBytes, &message) }
    }

    /// The body did not end in time.
    pub(crate) fn slow() -> Self {
        let failure = Self::new(Code::DeadlineExceeded, "the request did not arrive in time");
        Self { http: Some(HTTP_CLIENT_SLOW), ..failure }
    }

    /// Returns the HTTP status.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        self.http.unwrap_or_else(|| http_status(self.code))
    }

    pub(crate) fn to_error(&self) -> v1::Error {
        let fields = self.fields.iter().map(|violation| v1::FieldViolation {
            field: violation.field.clone(),
            message: violation.message.clone(),
        });
        v1::Error {
            code: self.code.into(),
            message: self.message.clone(),
            fields: fields.collect(),
            current_revision: self.current_revision,
        }
    }

    pub(crate) fn to_status(&self) -> Status {
        let mut details = ErrorDetails::new();
        for FieldViolation { field, message } in &self.fields {
            details.add_bad_request_violation(field, message);
        }
        if let Some(limit) = self.limit {
            details.add_quota_failure_violation(limit, &self.message);
        }
        if let Some(after) = self.retry_after {
            details.set_retry_info(Some(after));
        }
        if self.code == Code::Aborted {
            let current = [("current_revision".to_owned(), self.current_revision.to_string())];
            details.set_error_info("REVISION_CONFLICT", "pilotfish.registration.v1", current);
        }
        let mut status =
            Status::with_error_details(tonic::Code::from_i32(self.code.into()), &*self.message, details);
        if let Some(limit) = self.limit {
            status.metadata_mut().insert(LIMIT_HEADER, MetadataValue::from_static(limit));
        }
        status
    }

    fn conflict(current: Option<&Record>) -> Self {
        let current_revision = current.map_or(0, |record| record.revision);
        let message = match current {
            Some(record) => format!("it has revision {} and not the expected one", record.revision),
            None => "it is not registered, and a revision was expected".to_owned(),
        };
        Self { current_revision, ..Self::new(Code::Aborted, message) }
    }

    fn not_owner(owner: &Arc<str>) -> Self {
        Self::new(
            Code::PermissionDenied,
            format!("{owner:?} registered it, and no rule allows another client to change it"),
        )
    }

    fn unavailable(why: &dyn std::fmt::Display) -> Self {
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(Code::Unavailable, why.to_string()) }
    }
}

impl From<Violations> for Failure {
    fn from(violations: Violations) -> Self {
        Self {
            fields: violations.listed().to_vec(),
            ..Self::new(Code::InvalidArgument, violations.to_string())
        }
    }
}

impl From<BadRequest> for Failure {
    fn from(error: BadRequest) -> Self {
        match error {
            BadRequest::Field { field, message } if field.is_empty() => {
                Self::new(Code::InvalidArgument, message)
            }
            BadRequest::Field { field, message } => Self::field(field, message),
            BadRequest::Bound(bound) => Self::limited(bound.limit(), bound.to_string()),
        }
    }
}

impl From<RegistrarError> for Failure {
    fn from(error: RegistrarError) -> Self {
        match &error {
            RegistrarError::Conflict { current } => Self::conflict(current.as_deref()),
            RegistrarError::NotOwner(owner) => Self::not_owner(owner),
            RegistrarError::Limit { limit, most } => Self::limited(
                limit,
                format!("{most} are registered, and no more are allowed (limit {limit})"),
            ),
            RegistrarError::Bytes { limit, .. } => Self::limited(limit, error.to_string()),
            RegistrarError::TooMany => Self::limited("batch-items", error.to_string()),
            RegistrarError::Full(_) => Self::limited("store", error.to_string()),
            RegistrarError::Unavailable(_) | RegistrarError::Withdrawn(_) => Self::unavailable(&error),
        }
    }
}

impl From<RenewalError> for Failure {
    fn from(error: RenewalError) -> Self {
        match &error {
            RenewalError::NotFound => Self::new(Code::NotFound, error.to_string()),
            RenewalError::NotOwner(owner) => Self::not_owner(owner),
            RenewalError::TooMany => Self::limited("batch-items", error.to_string()),
            RenewalError::Unavailable(_) => Self::unavailable(&error),
        }
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        match &error {
            WatchError::OutOfRange { .. } | WatchError::OtherEpoch { .. } => {
                Self::new(Code::OutOfRange, error.to_string())
            }
            WatchError::Limit { limit, .. } => Self::limited(limit, error.to_string()),
            WatchError::NotReady | WatchError::Closed => Self::unavailable(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registration::testing;

    #[test]
    fn fields_are_the_same_in_grpc_and_json() {
        let mut violations = Violations::one("ports[0].number", "0 is no port");
        violations.add("addresses", "are missing");
        let mut nested = Violations::default();
        nested.nest("instance", violations);
        let failure = Failure::from(nested);
        let details = failure.to_status().get_error_details();
        let grpc = details
            .bad_request()
            .unwrap()
            .field_violations
            .iter()
            .map(|v| (v.field.clone(), v.description.clone()));
        let json = failure.to_error().fields.into_iter().map(|v| (v.field, v.message));
        let expected = [("instance.ports[0].number", "0 is no port"), ("instance.addresses", "are missing")];
        let expected = expected.map(|(field, message)| (field.to_owned(), message.to_owned()));
        assert_eq!(grpc.collect::<Vec<_>>(), expected);
        assert_eq!(json.collect::<Vec<_>>(), expected);
        assert_eq!(failure.http_status(), 400);
    }

    #[test]
    fn errors_have_codes_and_http_statuses() {
        let owner: Arc<str> = "token/a".into();
        for (failure, code, http, limit) in [
            (Failure::from(RegistrarError::Conflict { current: None }), Code::Aborted, 409, None),
            (RegistrarError::NotOwner(owner).into(), Code::PermissionDenied, 403, None),
            (
                RegistrarError::Limit { limit: "owner-instances", most: 5 }.into(),
                Code::ResourceExhausted,
                429,
                Some("owner-instances"),
            ),
            (
                RegistrarError::Bytes { limit: "owner-bytes", most: 5, used: 4, wanted: 2 }.into(),
                Code::ResourceExhausted,
                429,
                Some("owner-bytes"),
            ),
            (RegistrarError::Unavailable("x".into()).into(), Code::Unavailable, 503, None),
            (RegistrarError::Withdrawn("x".into()).into(), Code::Unavailable, 503, None),
            (RegistrarError::Full("x".into()).into(), Code::ResourceExhausted, 429, Some("store")),
            (RenewalError::NotFound.into(), Code::NotFound, 404, None),
            (WatchError::OutOfRange { oldest: 9 }.into(), Code::OutOfRange, 410, None),
            (WatchError::OtherEpoch { newest: 9 }.into(), Code::OutOfRange, 410, None),
            (
                WatchError::Limit { limit: "watches", most: 1 }.into(),
                Code::ResourceExhausted,
                429,
                Some("watches"),
            ),
            (WatchError::NotReady.into(), Code::Unavailable, 503, None),
            (Failure::too_long(10), Code::ResourceExhausted, 413, Some("request-bytes")),
            (Failure::slow(), Code::DeadlineExceeded, 408, None),
        ] {
            assert_eq!(
                (failure.code, failure.http_status(), failure.limit),
                (code, http, limit),
                "{failure:?}"
            );
            let status = failure.to_status();
            assert_eq!(status.metadata().get(LIMIT_HEADER).map(|value| value.to_str().unwrap()), limit);
            assert_eq!(i32::from(status.code()), i32::from(code));
        }
    }

    #[test]
    fn a_conflict_tells_the_revision() {
        let record = Record {
            instance: Arc::new(testing::instance("a")),
            owner: "o".into(),
            revision: 7,
            created: 3,
            state: Default::default(),
        };
        let failure = Failure::from(RegistrarError::Conflict { current: Some(Arc::new(record)) });
        assert_eq!(failure.to_error().current_revision, 7);
        let details = failure.to_status().get_error_details();
        assert_eq!(
            details.error_info().unwrap().metadata.get("current_revision").map(String::as_str),
            Some("7")
        );
    }
}
