//! One write on its way to the API server, and what its answer means.

use super::book::Write;
use crate::watch::{Stored, chain};
use kube::Client;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What came of a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is stored so.
    Stored(Stored),
    /// Somebody else was faster.
    Conflict,
    /// There is no such object any more.
    Gone,
    /// The API server does not take this write, which says nothing about others.
    Refused(String),
    /// The API server is away, or has too much to do, and names the least time that it wants to be left alone.
    Troubled(String, Duration),
}

/// Sends a write, which is given up at `limit`.
pub(super) async fn send(client: &Client, path: &str, write: &Write, limit: Instant) -> Answer {
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(write.patch.to_string().into_bytes());
    let request = match request {
        Ok(request) => request,
        Err(error) => return Answer::Refused(format!("no request for this object: {error}")),
    };
    match timeout_at(limit, client.request::<Stored>(request)).await {
        Ok(Ok(stored)) => Answer::Stored(stored),
        Ok(Err(error)) => answer(&error),
        Err(_) => Answer::Troubled("no answer in time".to_owned(), Duration::ZERO),
    }
}

fn answer(error: &kube::Error) -> Answer {
    let kube::Error::Api(status) = error else {
        return match error {
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Answer::Refused(chain(error)),
            _ => Answer::Troubled(chain(error), Duration::ZERO),
        };
    };
    let reason = format!("{}: {}", status.code, status.message);
    match status.code {
        409 => Answer::Conflict,
        404 => Answer::Gone,
        429 | 500.. => {
            let after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Answer::Troubled(reason, Duration::from_secs(after.min(60).into()))
        }
        _ => Answer::Refused(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    fn of(code: u16, retry_after_seconds: u32) -> Answer {
        let details: StatusDetails = serde_json::from_str("{}").unwrap();
        let details = Some(StatusDetails { retry_after_seconds, ..details });
        answer(&kube::Error::Api(Box::new(Status { code, details, ..Status::default() })))
    }

    #[test]
    fn answers_are_told_apart() {
        assert!(matches!(of(409, 0), Answer::Conflict));
        assert!(matches!(of(404, 0), Answer::Gone));
        for code in [400, 401, 403, 405, 413, 415, 422] {
            assert!(matches!(of(code, 0), Answer::Refused(_)), "{code}");
        }
        for code in [429, 500, 503, 504] {
            assert!(matches!(of(code, 2), Answer::Troubled(_, after) if after.as_secs() == 2), "{code}");
        }
        assert!(matches!(of(429, u32::MAX), Answer::Troubled(_, after) if after.as_secs() == 60));
    }
}
