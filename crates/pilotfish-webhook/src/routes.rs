//! The paths that API servers call.

use crate::inject::Injector;
use crate::review::{Request, Response as Answer, parse};
use crate::validate::Validator;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request as HttpRequest, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The largest review: an object of the largest size that API servers take, as it was and as it will be, in JSON.
const LARGEST: usize = 8 << 20;
/// Bytes of reviews in memory at a time, all together. More wait before they are read, authenticated or not: the memory is that of
/// the process that serves proxies.
const IN_MEMORY: usize = 64 << 20;
/// How long an answer may take, as long as API servers wait by default.
const ANSWER: Duration = Duration::from_secs(10);
/// Reviews that are computed at a time. More wait, so that they never take all processors from proxies.
const AT_A_TIME: usize = 4;

/// The outcome of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object is taken.
    Allowed,
    /// The object is refused.
    Refused,
    /// It was no valid review.
    Error,
}

impl Outcome {
    /// As a label of metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}

/// Receives the outcome of each review.
pub trait Observer: Send + Sync {
    /// A review of that webhook was answered.
    fn reviewed(&self, webhook: &'static str, outcome: Outcome);
}

/// Answers reviews.
pub(crate) type Reviewer = Arc<dyn Fn(&Request<'_>) -> Answer + Send + Sync>;

struct Webhook {
    name: &'static str,
    reviewer: Reviewer,
    permits: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    observer: Arc<dyn Observer>,
}

/// The paths, with everything that they need.
pub fn router(validator: Validator, injector: Injector, observer: &Arc<dyn Observer>) -> Router {
    let validate: Reviewer = Arc::new(move |request| validator.review(request));
    let inject: Reviewer = Arc::new(move |request| injector.review(request));
    let memory = Arc::new(Semaphore::new(IN_MEMORY));
    let webhook = |name, reviewer| Webhook {
        name,
        reviewer,
        permits: Arc::new(Semaphore::new(AT_A_TIME)),
        memory: memory.clone(),
        observer: observer.clone(),
    };
    Router::new()
        .merge(path("/validate", webhook("validate", validate)))
        .merge(path("/inject", webhook("inject", inject)))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(middleware::from_fn(in_time))
}

fn path(path: &str, webhook: Webhook) -> Router {
    Router::new()
        .route(path, post(review))
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(Arc::new(webhook))
}

async fn in_time(request: HttpRequest, next: Next) -> Response {
    match timeout(ANSWER, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n").into_response(),
    }
}

async fn review(State(webhook): State<Arc<Webhook>>, request: HttpRequest) -> Response {
    let (outcome, response) = match answer(&webhook, request).await {
        Ok((allowed, body)) => {
            let outcome = if allowed { Outcome::Allowed } else { Outcome::Refused };
            (outcome, ([(header::CONTENT_TYPE, "application/json")], body).into_response())
        }
        Err(error) => (Outcome::Error, error.into_response()),
    };
    webhook.observer.reviewed(webhook.name, outcome);
    response
}

type Failure = (StatusCode, String);

async fn answer(webhook: &Arc<Webhook>, request: HttpRequest) -> Result<(bool, Vec<u8>), Failure> {
    let content = text(request.headers(), header::CONTENT_TYPE);
    if content.split(';').next().map(str::trim) != Some("application/json") {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "a review is application/json\n".into()));
    }
    let failed = |error: &dyn std::fmt::Display| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    // Without a content length, the most is reserved.
    let length = text(request.headers(), header::CONTENT_LENGTH).parse().unwrap_or(LARGEST).clamp(1, LARGEST);
    let room = u32::try_from(length).map_err(|error| failed(&error))?;
    let room = webhook.memory.clone().acquire_many_owned(room).await.map_err(|error| failed(&error))?;
    let body = Bytes::from_request(request, &()).await;
    let body = body.map_err(|refused| (refused.status(), format!("{}\n", refused.body_text())))?;
    // The permit is held by the thread itself: a review whose client is gone still takes its processor.
    let this = webhook.clone();
    let permit = webhook.permits.clone().acquire_owned().await.map_err(|error| failed(&error))?;
    let thinking = tokio::task::spawn_blocking(move || {
        let _held = (permit, room);
        let request = parse(&body).map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}\n")))?;
        let answer = (this.reviewer)(&request);
        let body = answer.body().map_err(|error| failed(&error))?;
        Ok((answer.allowed, body))
    });
    thinking.await.map_err(|error| failed(&error))?
}

/// A header's text, empty where there is none.
fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use std::sync::Mutex;
    use tower::ServiceExt;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<&'static str>>);

    impl Observer for Recorder {
        fn reviewed(&self, _: &'static str, outcome: Outcome) {
            self.0.lock().unwrap().push(outcome.word());
        }
    }

    fn quiet() -> Router {
        let observer: Arc<dyn Observer> = Arc::new(Recorder::default());
        let bootstrap: crate::inject::BootstrapOf = Arc::new(|_| serde_json::json!({}));
        let injector = Injector::new(crate::inject::DEFAULT_TEMPLATE, Default::default(), bootstrap).unwrap();
        router(Validator::new(Vec::new()), injector, &observer)
    }

    #[tokio::test]
    async fn who_sends_slowly_does_not_fill_the_memory() {
        let router = quiet();
        let (called, mut calls) = tokio::sync::mpsc::unbounded_channel();
        let slow = || {
            let called = called.clone();
            let body = Body::from_stream(futures::stream::poll_fn(move |_| {
                called.send(()).unwrap();
                std::task::Poll::<Option<Result<Bytes, std::io::Error>>>::Pending
            }));
            let request = http::Request::post("/validate").header("content-type", "application/json");
            tokio::spawn(router.clone().oneshot(request.body(body).unwrap()))
        };
        let clients: Vec<_> = (0..20).map(|_| slow()).collect();
        // All that can go on does: there is one thread, and nothing comes from outside of it.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let mut read = 0;
        while calls.try_recv().is_ok() {
            read += 1;
        }
        assert_eq!(read, IN_MEMORY / LARGEST);
        assert!(clients.iter().all(|client| !client.is_finished()));
    }

    #[tokio::test]
    async fn what_is_no_review_gets_a_status_and_the_server_goes_on() {
        let recorder = Arc::new(Recorder::default());
        let observer: Arc<dyn Observer> = recorder.clone();
        let bootstrap: crate::inject::BootstrapOf = Arc::new(|_| serde_json::json!({}));
        let injector = Injector::new(crate::inject::DEFAULT_TEMPLATE, Default::default(), bootstrap).unwrap();
        let router = router(Validator::new(Vec::new()), injector, &observer);
        let post = async |kind: &str, body: Vec<u8>| {
            let request = http::Request::post("/validate").header("content-type", kind);
            let request = request.body(Body::from(body)).unwrap();
            router.clone().oneshot(request).await.unwrap().status().as_u16()
        };
        let review =
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1"}}"#;
        assert_eq!(post("text/plain", review.to_vec()).await, 415);
        assert_eq!(post("application/json", b"{".to_vec()).await, 400);
        assert_eq!(post("application/json", vec![b' '; LARGEST + 1]).await, 413);
        assert_eq!(post("application/json", b"[".repeat(1 << 20)).await, 400);
        assert_eq!(post("application/json; charset=utf-8", review.to_vec()).await, 200);
        assert_eq!(*recorder.0.lock().unwrap(), ["error", "error", "error", "error", "allowed"]);
    }
}
