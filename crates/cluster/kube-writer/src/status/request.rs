//! Status writes as requests to the API server, and their responses.

use super::queue::Write;
use kube::Client;
use pilotfish_kube::request::{RequestError, until};
use pilotfish_kube::watch::Stored;
use pilotfish_runtime::ErrorClass;
use std::time::Duration;
use tokio::time::Instant;

/// Outcome of a request.
#[derive(Debug)]
pub(super) enum WriteResponse {
    Stored(Stored),
    /// The object has another version.
    Conflict,
    /// The object does not exist any more.
    Gone,
    /// The API server refuses this write; others may succeed.
    Rejected(String),
    /// The API server is unavailable or overloaded, with its minimum delay for a retry.
    Unavailable(String, Duration),
}

/// Sends a write, with a deadline of `limit`.
pub(super) async fn send(client: &Client, path: &str, write: &Write, limit: Instant) -> WriteResponse {
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(write.patch.to_string().into_bytes());
    let request = match request {
        Ok(request) => request,
        Err(error) => return WriteResponse::Rejected(format!("no request for this object: {error}")),
    };
    match until(limit, client.request::<Stored>(request)).await {
        Ok(stored) => WriteResponse::Stored(stored),
        Err(error) => answer(&error),
    }
}

fn answer(error: &RequestError) -> WriteResponse {
    match error.class {
        ErrorClass::Conflict => WriteResponse::Conflict,
        ErrorClass::Gone => WriteResponse::Gone,
        ErrorClass::Rejected | ErrorClass::Denied => WriteResponse::Rejected(error.to_string()),
        ErrorClass::Transient => WriteResponse::Unavailable(error.to_string(), error.retry_after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, retry_after: u32) -> WriteResponse {
        answer(&RequestError::of_status(code, "", retry_after))
    }

    #[test]
    fn answers_are_classified() {
        assert!(matches!(of(409, 0), WriteResponse::Conflict));
        assert!(matches!(of(404, 0), WriteResponse::Gone));
        for code in [400, 401, 403, 405, 413, 415, 422] {
            assert!(matches!(of(code, 0), WriteResponse::Rejected(_)), "{code}");
        }
        for code in [429, 500, 503, 504] {
            assert!(
                matches!(of(code, 2), WriteResponse::Unavailable(_, after) if after.as_secs() == 2),
                "{code}"
            );
        }
        assert!(matches!(of(429, u32::MAX), WriteResponse::Unavailable(_, after) if after.as_secs() == 60));
    }
}
