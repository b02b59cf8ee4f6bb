//! Paths that API servers call.

use crate::arrival::{Arrivals, Failure};
use crate::inject::Injector;
use crate::review::{MOST_VALUES, Request, Response as Answer, parse, values};
use crate::validate::Validator;
use axum::Router;
use axum::extract::{ConnectInfo, Request as HttpRequest, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode, header};
use pilotfish_model::Kind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum time for a response: the default timeout of API servers.
const ANSWER: Duration = Duration::from_secs(10);
/// Client address of a request without a connection.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Maximum number of reviews of one webhook that are computed at a time. Others wait, so that processors
/// remain for proxies.
const AT_A_TIME: usize = 2;

/// Outcome of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object was accepted.
    Allowed,
    /// The object was refused.
    Refused,
    /// The review was invalid.
    Error,
}

impl Outcome {
    /// Value of a metric label.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}

/// Receiver of the outcome of each review.
pub trait Observer: Send + Sync {
    /// Called after a review of that webhook.
    fn reviewed(&self, webhook: &'static str, outcome: Outcome);
    /// Called after the validation of an object of a known kind.
    fn validated(&self, _kind: Kind, _version: &str, _refused: bool) {}
    /// Called after a review of the injecting webhook, with a flag for a changed object.
    fn injected(&self, _outcome: Outcome, _changed: bool) {}
    /// Called when a limit is reached, by its name in docs/limits.md.
    fn limit_reached(&self, _limit: &'static str) {}
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Validate,
    Inject,
}

/// Function that answers reviews.
pub(crate) type Reviewer = Arc<dyn Fn(&Request<'_>) -> Answer + Send + Sync>;

struct Webhook {
    name: &'static str,
    purpose: Purpose,
    reviewer: Reviewer,
    permits: Arc<Semaphore>,
    arrivals: Arrivals,
    observer: Arc<dyn Observer>,
}

/// Router of all paths.
pub fn router(validator: Validator, injector: Injector, observer: &Arc<dyn Observer>) -> Router {
    let validate: Reviewer = Arc::new(move |request| validator.review(request));
    let inject: Reviewer = Arc::new(move |request| injector.review(request));
    let webhook = |name, purpose, reviewer| Webhook {
        name,
        purpose,
        reviewer,
        permits: Arc::new(Semaphore::new(AT_A_TIME)),
        arrivals: Arrivals::new(),
        observer: observer.clone(),
    };
    Router::new()
        .merge(path("/validate", webhook("validate", Purpose::Validate, validate)))
        .merge(path("/inject", webhook("inject", Purpose::Inject, inject)))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(middleware::from_fn(in_time))
}

fn path(path: &str, webhook: Webhook) -> Router {
    Router::new().route(path, post(review)).with_state(Arc::new(webhook))
}

async fn in_time(request: HttpRequest, next: Next) -> Response {
    match timeout(ANSWER, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n").into_response(),
    }
}

async fn review(State(webhook): State<Arc<Webhook>>, request: HttpRequest) -> Response {
    let (outcome, changed, response) = match answer(&webhook, request).await {
        Ok(Answered { allowed, changed, body }) => {
            let outcome = if allowed { Outcome::Allowed } else { Outcome::Refused };
            (outcome, changed, ([(header::CONTENT_TYPE, "application/json")], body).into_response())
        }
        Err(Failure { status, message, limit }) => {
            if let Some(limit) = limit {
                webhook.observer.limit_reached(limit);
            }
            (Outcome::Error, false, (status, message).into_response())
        }
    };
    webhook.observer.reviewed(webhook.name, outcome);
    if webhook.purpose == Purpose::Inject {
        webhook.observer.injected(outcome, changed);
    }
    response
}

/// A response to send.
struct Answered {
    allowed: bool,
    /// True if it changes the object.
    changed: bool,
    body: Vec<u8>,
}

async fn answer(webhook: &Arc<Webhook>, request: HttpRequest) -> Result<Answered, Failure> {
    let content = text(request.headers(), header::CONTENT_TYPE);
    if content.split(';').next().map(str::trim) != Some("application/json") {
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a review is application/json\n"));
    }
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    let ConnectInfo(peer) = request.extensions().get().copied().unwrap_or(ConnectInfo(UNKNOWN));
    let arrived = webhook.arrivals.read(peer.ip(), request.into_body()).await?;
    let permit = arrived.until(webhook.permits.clone().acquire_owned()).await?;
    let permit = permit.map_err(|error| failed(&error))?;
    // The thread holds the permit: a review whose client is gone still uses its processor.
    let this = webhook.clone();
    let thinking = tokio::task::spawn_blocking(move || {
        let _held = permit;
        let request = parse(&arrived.body)
            .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, format!("{error}\n")))?;
        if request.object.is_some_and(|object| values(object.get().as_bytes()) > MOST_VALUES) {
            let what = format!("an object has at most {MOST_VALUES} values");
            return Err(Failure::of_limit("review-values", StatusCode::PAYLOAD_TOO_LARGE, &what));
        }
        let answer = (this.reviewer)(&request);
        let body = answer.body().map_err(|error| failed(&error))?;
        let kind = Kind::find(&request.kind.group, &request.kind.kind);
        if let Some(kind) = kind.filter(|_| this.purpose == Purpose::Validate) {
            this.observer.validated(kind, &request.kind.version, !answer.allowed);
        }
        Ok(Answered { allowed: answer.allowed, changed: answer.patch.is_some(), body })
    });
    thinking.await.map_err(|error| failed(&error))?
}

/// Text of a header; empty if it is missing.
fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrival::LARGEST;
    use axum::body::Body;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::ServiceExt;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<&'static str>>, AtomicUsize, Mutex<Vec<String>>, Mutex<Vec<&'static str>>);

    impl Observer for Recorder {
        fn reviewed(&self, _: &'static str, outcome: Outcome) {
            self.0.lock().unwrap().push(outcome.word());
        }

        fn limit_reached(&self, limit: &'static str) {
            self.3.lock().unwrap().push(limit);
        }

        fn injected(&self, outcome: Outcome, changed: bool) {
            assert!(!changed && outcome == Outcome::Allowed);
            self.1.fetch_add(1, Ordering::Relaxed);
        }

        fn validated(&self, kind: Kind, version: &str, refused: bool) {
            self.2.lock().unwrap().push(format!("{} {version} {refused}", kind.name()));
        }
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
        let of = |object: String| {
            let head = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","object":"#;
            format!("{head}{object}}}}}").into_bytes()
        };
        let list = |items: usize, item: &str| format!("[{}0]", item.repeat(items));
        assert_eq!(post("application/json", of(list(MOST_VALUES, "0,"))).await, 413);
        assert_eq!(post("application/json", of(list(MOST_VALUES, "[],"))).await, 413);
        assert_eq!(post("application/json; charset=utf-8", review.to_vec()).await, 200);
        assert_eq!(post("application/json", of(list(MOST_VALUES - 2, "0,"))).await, 200);
        assert_eq!(post("application/json", of(format!("\"{}\"", ",[{\\\"".repeat(MOST_VALUES)))).await, 200);
        let errors = ["error"; 6];
        assert_eq!(*recorder.0.lock().unwrap(), [&errors[..], &["allowed"; 3]].concat());
        assert_eq!(*recorder.3.lock().unwrap(), ["review-bytes", "review-values", "review-values"]);
    }

    #[tokio::test]
    async fn reviews_are_counted_by_kind_and_by_what_became_of_pods() {
        let recorder = Arc::new(Recorder::default());
        let observer: Arc<dyn Observer> = recorder.clone();
        let bootstrap: crate::inject::BootstrapOf = Arc::new(|_| serde_json::json!({}));
        let injector = Injector::new(crate::inject::DEFAULT_TEMPLATE, Default::default(), bootstrap).unwrap();
        let router = router(Validator::new(Vec::new()), injector, &observer);
        let review = |group: &str, kind: &str, object: &str| {
            format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","operation":"CREATE","name":"a",
                "kind":{{"group":"{group}","version":"v1","kind":"{kind}"}},"object":{object}}}}}"#
            )
        };
        let post = async |path: &str, body: String| {
            let request = http::Request::post(path).header("content-type", "application/json");
            let response = router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
            assert_eq!(response.status(), 200);
        };
        let good = r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"host":"a"}}"#;
        let bad = r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"hots":"a"}}"#;
        post("/validate", review("networking.istio.io", "DestinationRule", good)).await;
        post("/validate", review("networking.istio.io", "DestinationRule", bad)).await;
        post("/validate", review("example.com", "Unknown", bad)).await;
        let counted = ["DestinationRule v1 false", "DestinationRule v1 true"];
        assert_eq!(*recorder.2.lock().unwrap(), counted);
        assert_eq!(recorder.1.load(Ordering::Relaxed), 0);
        post("/inject", review("", "Pod", r#"{"metadata": {"name": "a"}, "spec": {"hostNetwork": true}}"#))
            .await;
        assert_eq!(recorder.1.load(Ordering::Relaxed), 1);
    }
}
