//! Proxy for an API server with injected faults: refusals, delays, errors, closed watches.

use super::ApiServer;
use super::apiserver_view::{ChangedLines, View};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServerFault {
    None,
    /// Every request is answered with this status, and with `Retry-After` if seconds are given.
    Status(u16, Option<u32>),
    /// Every resumed watch is answered with `410 Gone`; lists work.
    Gone,
    /// Like `Gone`, with empty lists: an API server that lost its data.
    Emptied,
    /// Every response is delayed.
    Slow(Duration),
    /// Every watch is closed after this time.
    Cut(Duration),
    /// No request is answered.
    Silent,
    /// An API server that has just started: groups of CustomResourceDefinitions are missing in the list of
    /// groups, their paths do not exist yet (503), and permissions are denied.
    Starting,
}

/// Faults of the proxy, and the versions that clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    fault: ApiServerFault,
    /// Offset of the versions that clients see from those of the API server.
    ahead: u64,
}

/// Number of requests since the start of the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub connections: usize,
    pub requests: usize,
    /// Number of lists: reads of the whole content of a kind, in pages or streams.
    pub lists: usize,
    /// Number of requests for the list of groups.
    pub groups: usize,
}

/// A proxy over plain HTTP on loopback; ends on drop.
pub struct ApiServerProxy {
    port: u16,
    state: watch::Sender<State>,
    counts: Arc<Mutex<RequestCounts>>,
    task: JoinHandle<()>,
    kubeconfig: PathBuf,
}

impl ApiServerProxy {
    /// Starts a proxy for an API server.
    ///
    /// # Panics
    /// When loopback has no free port.
    pub async fn start(server: &ApiServer) -> Self {
        Self::start_ahead(server, 0).await
    }

    /// Starts a proxy with versions that are higher by `ahead`, which can be [lowered](Self::lower_versions).
    ///
    /// # Panics
    /// When loopback has no free port.
    pub async fn start_ahead(server: &ApiServer, ahead: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (state, states) = watch::channel(State { fault: ApiServerFault::None, ahead });
        let client = server.client();
        let counts = Arc::new(Mutex::new(RequestCounts::default()));
        let count = counts.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((io, _)) = listener.accept().await {
                let (client, states, count) = (client.clone(), states.clone(), count.clone());
                lock(&count).connections += 1;
                let service = service_fn(move |request| {
                    note(&mut lock(&count), &request);
                    pass(client.clone(), states.clone(), request)
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(io), service));
                while connections.try_join_next().is_some() {}
            }
        });
        let kubeconfig = server.folder().join(format!("kubeconfig-{port}"));
        let text = server.kubeconfig_of("unused").replace(&server.url(), &format!("http://127.0.0.1:{port}"));
        let text: String = text
            .lines()
            .filter(|line| !line.contains("certificate-authority"))
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(&kubeconfig, text).expect("the folder can be written");
        Self { port, state, counts, task, kubeconfig }
    }

    /// Injects a fault. Running watches that it would refuse are closed.
    pub fn set(&self, fault: ApiServerFault) {
        self.state.send_modify(|state| state.fault = fault);
    }

    /// Lowers all versions from now on, like a restored backup of the store. Closes running watches.
    pub fn lower_versions(&self, by: u64) {
        self.state.send_modify(|state| state.ahead = state.ahead.saturating_sub(by));
    }

    /// Requests so far.
    #[must_use]
    pub fn counts(&self) -> RequestCounts {
        *lock(&self.counts)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kubeconfig that leads through the proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }
}

impl Drop for ApiServerProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(counts: &Mutex<RequestCounts>) -> MutexGuard<'_, RequestCounts> {
    counts.lock().expect("no holder panics")
}

fn note(counts: &mut RequestCounts, request: &Request<Incoming>) {
    let query = request.uri().query().unwrap_or_default();
    let is_list = query.contains("sendInitialEvents=true")
        || (query.contains("limit=500") && !query.contains("continue="));
    counts.requests += 1;
    counts.lists += usize::from(is_list);
    counts.groups += usize::from(request.uri().path() == "/apis");
}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<hyper::body::Bytes, std::io::Error>>;

async fn pass(
    client: Client,
    mut states: watch::Receiver<State>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let state = states.borrow_and_update().clone();
    let State { fault, ahead } = state.clone();
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.contains("watch=true");
    let resumes = is_watch && query.contains("resourceVersion=");
    match fault {
        ApiServerFault::Status(code, after) => return Ok(status(code, after)),
        ApiServerFault::Gone | ApiServerFault::Emptied if resumes => return Ok(status(410, None)),
        ApiServerFault::Slow(time) => tokio::time::sleep(time).await,
        ApiServerFault::Silent => std::future::pending().await,
        ApiServerFault::Starting if is_of_definition(request.uri().path()) => {
            return Ok(status(503, Some(1)));
        }
        ApiServerFault::Starting if request.uri().path() == "/apis" => {
            return Ok(builtin_groups(&client, request).await);
        }
        ApiServerFault::Starting if request.uri().path().ends_with("/selfsubjectaccessreviews") => {
            return Ok(json(
                201,
                &serde_json::json!({
                    "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {},
                    "status": {"allowed": false},
                }),
            ));
        }
        ApiServerFault::Starting
        | ApiServerFault::None
        | ApiServerFault::Gone
        | ApiServerFault::Emptied
        | ApiServerFault::Cut(_) => {}
    }
    let is_list = is_watch || query.contains("limit=");
    let view = View { ahead, empty: fault == ApiServerFault::Emptied && is_list };
    let Some(answer) = ask(&client, view, request).await else { return Ok(status(502, None)) };
    let end = async move {
        match fault {
            ApiServerFault::Cut(after) if is_watch => tokio::time::sleep(after).await,
            _ if is_watch => {
                // Closes a running watch when the state changes.
                let _ = states.wait_for(|now| *now != state).await;
            }
            _ => std::future::pending().await,
        }
    };
    let answer = if view == View::default() {
        answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
    } else if is_watch {
        answer.map(|body| ChangedLines::new(body.map_err(std::io::Error::other), view).boxed_unsync())
    } else {
        let Some(answer) = changed(answer, view).await else { return Ok(status(502, None)) };
        answer
    };
    Ok(answer.map(|body| Until { body: Box::pin(body), end: Box::pin(end) }.boxed_unsync()))
}

/// The API server's response to a request in that view. `None` if there is none.
async fn ask(client: &Client, view: View, request: Request<Incoming>) -> Option<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    // The client for the API server has its own credentials.
    parts.headers.remove("authorization");
    parts.headers.remove("host");
    let mut body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default().to_vec();
    if view != View::default() {
        // Compressed responses could not be modified.
        parts.headers.remove("accept-encoding");
        parts.headers.remove("content-length");
        parts.uri = view.query(&parts.uri.to_string()).parse().ok()?;
        body = view.request(&String::from_utf8(body).ok()?).into_bytes();
    }
    client.send(Request::from_parts(parts, Body::from(body))).await.ok()
}

/// A response other than a watch, modified as a whole.
async fn changed(answer: Response<Body>, view: View) -> Option<Answer> {
    let (mut parts, body) = answer.into_parts();
    let text = String::from_utf8(body.collect().await.ok()?.to_bytes().to_vec()).ok()?;
    parts.headers.remove("content-length");
    let body = http_body_util::Full::new(hyper::body::Bytes::from(view.answer(&text)));
    Some(Response::from_parts(parts, body.map_err(|never| match never {}).boxed_unsync()))
}

/// True if a path or group belongs to a CustomResourceDefinition.
fn is_of_definition(path: &str) -> bool {
    path.contains(".istio.io") || path.contains("gateway.networking.k8s.io")
}

/// List of groups without those of CustomResourceDefinitions.
async fn builtin_groups(client: &Client, request: Request<Incoming>) -> Answer {
    let (mut parts, _) = request.into_parts();
    parts.headers.remove("authorization");
    parts.headers.remove("host");
    let Ok(text) = client.request_text(Request::from_parts(parts, Vec::new())).await else {
        return status(502, None);
    };
    let mut groups: serde_json::Value = serde_json::from_str(&text).expect("groups are JSON");
    let items = groups["items"].as_array_mut().expect("groups are a list");
    items.retain(|group| !is_of_definition(group["metadata"]["name"].as_str().unwrap_or_default()));
    json(200, &groups)
}

fn json(code: u16, value: &serde_json::Value) -> Answer {
    let body = http_body_util::Full::new(hyper::body::Bytes::from(value.to_string()));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    answer
}

fn status(code: u16, retry_after: Option<u32>) -> Answer {
    let text = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": format!("configured to answer {code}"), "reason": "Fault",
        "details": {"retryAfterSeconds": retry_after.unwrap_or(0)},
    });
    let mut answer = json(code, &text);
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert("retry-after", seconds.into());
    }
    answer
}

/// A body that ends early when a future completes.
struct Until<B, F> {
    body: std::pin::Pin<Box<B>>,
    end: std::pin::Pin<Box<F>>,
}

impl<B: hyper::body::Body, F: Future<Output = ()>> hyper::body::Body for Until<B, F> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return std::task::Poll::Ready(None);
        }
        self.body.as_mut().poll_frame(cx)
    }
}
