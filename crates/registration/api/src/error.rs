//! Mapping of errors to HTTP.

use crate::v1::error::Code;

/// The header (and gRPC metadata) with the name of the limit that refused a request.
pub const LIMIT_HEADER: &str = "pilotfish-limit";

/// HTTP status of a body above the maximum size; its code is `RESOURCE_EXHAUSTED`.
pub const HTTP_BODY_TOO_LONG: u16 = 413;

/// HTTP status of a request that the client did not complete in time; its code is `DEADLINE_EXCEEDED`.
pub const HTTP_CLIENT_SLOW: u16 = 408;

/// Returns the HTTP status of a code.
#[must_use]
pub fn http_status(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::Unimplemented => 405,
        Code::Aborted => 409,
        Code::OutOfRange => 410,
        Code::ResourceExhausted => 429,
        Code::Unknown | Code::Internal => 500,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
    }
}
