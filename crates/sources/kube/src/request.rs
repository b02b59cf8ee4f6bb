//! Requests to an API server: timeouts and classes of errors. The only place that interprets `kube::Error`.

use pilotfish_runtime::{BackoffPolicy, Classify, ErrorClass, error_chain, one_line};
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Backoff of failed requests to an API server.
pub const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(15));

/// Limit of `Retry-After` in seconds.
const LONGEST_RETRY_AFTER: u32 = 60;

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// Class of the failure, which decides on a retry.
    pub class: ErrorClass,
    /// HTTP status; `None` without a readable answer.
    pub status: Option<u16>,
    /// `Retry-After` of the server; at most a minute.
    pub retry_after: Duration,
    /// Message of the server, or transport error, in one line and without the status.
    pub message: String,
}

impl RequestError {
    /// Error of an answer, or of an `ERROR` event of a watch. `retry_after` is in seconds.
    #[must_use]
    pub fn of_status(status: u16, message: &str, retry_after: u32) -> Self {
        let retry_after = Duration::from_secs(retry_after.min(LONGEST_RETRY_AFTER).into());
        let class = ErrorClass::of_http(status);
        Self { class, status: Some(status), retry_after, message: one_line(message) }
    }

    /// Transient error: no connection, or no answer.
    #[must_use]
    pub fn transient(message: impl fmt::Display) -> Self {
        Self::without_status(ErrorClass::Transient, &message.to_string())
    }

    /// Permanent error: a request that cannot be sent, or an answer that cannot be read.
    #[must_use]
    pub fn rejected(message: impl fmt::Display) -> Self {
        Self::without_status(ErrorClass::Rejected, &message.to_string())
    }

    fn without_status(class: ErrorClass, message: &str) -> Self {
        Self { class, status: None, retry_after: Duration::ZERO, message: one_line(message) }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for RequestError {}

impl Classify for RequestError {
    fn class(&self) -> ErrorClass {
        self.class
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let retry_after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Self::of_status(status.code, &status.message, retry_after)
            }
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::rejected(error_chain(&error)),
            // The client's own error is generic; its source has the cause.
            kube::Error::Service(error) => Self::transient(error_chain(&*error)),
            error => Self::transient(error_chain(&error)),
        }
    }
}

impl From<http::Error> for RequestError {
    fn from(error: http::Error) -> Self {
        Self::rejected(error)
    }
}

/// Waits for an answer for at most `limit`.
///
/// # Errors
/// When the request failed or was not answered in time.
pub async fn within<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    let answer = tokio::time::timeout(limit, request).await;
    let late = |_| RequestError::transient(format_args!("no answer within {} s", limit.as_secs_f64()));
    Ok(answer.map_err(late)??)
}

/// Waits for an answer until `limit`.
///
/// # Errors
/// When the request failed or was not answered in time.
pub async fn until<T>(
    limit: Instant,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    let answer = timeout_at(limit, request).await;
    Ok(answer.map_err(|_| RequestError::transient("no answer in time"))??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    fn of(code: u16, retry_after_seconds: u32) -> RequestError {
        let details: StatusDetails = serde_json::from_str("{}").unwrap();
        let details = Some(StatusDetails { retry_after_seconds, ..details });
        let status = Status { code, details, message: "it\nsays".to_owned(), ..Status::default() };
        kube::Error::Api(Box::new(status)).into()
    }

    #[test]
    fn answers_have_the_class_of_their_status() {
        for (code, class) in [
            (403, ErrorClass::Denied),
            (404, ErrorClass::Gone),
            (409, ErrorClass::Conflict),
            (422, ErrorClass::Rejected),
            (429, ErrorClass::Transient),
            (503, ErrorClass::Transient),
        ] {
            let error = of(code, 0);
            assert_eq!((error.class(), error.status, error.retry_after), (class, Some(code), Duration::ZERO));
            assert_eq!(error.to_string(), format!("{code}: it says"));
        }
    }

    #[test]
    fn messages_are_one_line_of_limited_length() {
        let long = "line\n".repeat(10_000);
        let errors = [
            RequestError::of_status(500, &long, 0),
            RequestError::transient(&long),
            RequestError::rejected(&long),
            kube::Error::Service(long.clone().into()).into(),
        ];
        for error in errors {
            assert!(error.message.len() <= 500 && !error.message.contains('\n'), "{}", error.message.len());
        }
    }

    #[test]
    fn retry_after_is_kept_up_to_a_limit() {
        assert_eq!(of(429, 7).retry_after, Duration::from_secs(7));
        assert_eq!(of(503, u32::MAX).retry_after, Duration::from_secs(60));
    }

    #[test]
    fn an_unreadable_answer_is_not_retried() {
        let error = serde_json::from_str::<u8>("x").unwrap_err();
        let error = RequestError::from(kube::Error::SerdeError(error));
        assert_eq!((error.class, error.status), (ErrorClass::Rejected, None));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_fails_for_now() {
        let silent = || std::future::pending::<kube::Result<()>>();
        let error = within(Duration::from_secs(5), silent()).await.unwrap_err();
        assert_eq!(
            (error.class, error.to_string().as_str()),
            (ErrorClass::Transient, "no answer within 5 s")
        );
        let error = until(Instant::now() + Duration::from_secs(5), silent()).await.unwrap_err();
        assert!(error.class.is_transient(), "{error}");
        let answer = within(Duration::from_secs(5), async { Ok(7) }).await;
        assert_eq!(answer, Ok(7));
    }
}
