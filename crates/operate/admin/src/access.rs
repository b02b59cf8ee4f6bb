//! Access to the debug pages, and the memory for pages that clients have not read. The number of concurrent
//! computations is limited by [`turns`](crate::turns).
//!
//! Pages are computed on blocking threads: one of a large mesh takes a while, which must not delay other
//! requests.
//!
//! They contain the configuration of all namespaces. Pages of other sites in a browser on this machine must
//! not read them: with DNS rebinding, such a request comes from this machine under the site's own name, so
//! the `Host` header is checked. Nor may such pages trigger computations or changes without reading the
//! response ([`cross_site`]).

use crate::abandoned::Abandoned;
use crate::permissions::{Asking, Caller, Denied, Permissions};
use crate::turns::Turns;
use crate::{Metrics, cross_site};
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pilotfish_identity::{is_forwarding_header, is_this_machine};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of computed pages that clients have not read, in KiB. A larger page is allowed if it is the
/// only one.
pub(crate) const WAITING_KIB: usize = 64 << 10;

/// Clients that may see the debug pages without credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Clients on this machine, such as `kubectl port-forward`.
    ThisMachine,
    Everybody,
}

/// Refusal of other machines.
pub(crate) const THIS_MACHINE: &str = "debug pages are shown on this machine only, and not through proxies: \
    use kubectl port-forward, credentials with --secure-admin-address, or --allow-remote-debug\n";

/// Access check and page limits of the debug pages.
pub(crate) struct Gate {
    permissions: Permissions,
    pages: Pages,
}

impl Gate {
    pub(crate) fn new(permissions: Permissions, metrics: Arc<Metrics>) -> Self {
        Self { permissions, pages: Pages::new(WAITING_KIB, metrics) }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.pages.metrics
    }

    /// Returns the client of a request that may see debug pages; `is_link` accepts links of other sites.
    ///
    /// # Errors
    /// The response to any other.
    fn admit(
        &self,
        request: &Request,
        is_link: bool,
    ) -> impl Future<Output = Result<Caller, Response>> + Send + use<'_> {
        let site = if is_link { Ok(()) } else { check_site(request) };
        let named = site.and_then(|()| check_name(peer(request), request.headers()));
        // Before the future, because a request cannot be shared with other threads.
        let asking = named.map(|()| Asking::of(request));
        async move {
            let caller = match asking {
                Ok(asking) => self.permissions.viewer(&asking).await,
                Err(refusal) => Err(Denied::Address(refusal)),
            };
            caller.map_err(|denied| denied.answer(self.metrics()))
        }
    }

    /// True if the client of a request may see debug pages, whichever site the request is of.
    pub(crate) fn tells(&self, request: &Request) -> impl Future<Output = bool> + Send + use<'_> {
        let admitted = self.admit(request, true);
        async move { admitted.await.is_ok() }
    }
}

/// Pages in computation, and computed pages that clients have not read.
pub(crate) struct Pages {
    turns: Turns,
    waiting: Arc<Semaphore>,
    waiting_kib: usize,
    metrics: Arc<Metrics>,
}

/// A page in memory; its share of the budget is returned with its last byte.
struct Page {
    bytes: Bytes,
    _waiting: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Pages {
    /// `waiting_kib` is the budget for pages that clients have not read.
    fn new(waiting_kib: usize, metrics: Arc<Metrics>) -> Self {
        let waiting = Arc::new(Semaphore::new(waiting_kib));
        Self { turns: Turns::new(), waiting, waiting_kib, metrics }
    }

    /// Computes a page in its turn.
    async fn make(&self, request: Request, next: Next) -> Response {
        let turn = match self.turns.turn(peer(&request)).await {
            Ok(turn) => turn,
            Err(limit) => return self.later(limit, "too many pages are being made"),
        };
        let runtime = Handle::current();
        let abandoned = Abandoned::default();
        let _waiting = abandoned.waiting();
        let mut request = request;
        request.extensions_mut().insert(abandoned);
        let made = tokio::task::spawn_blocking(move || {
            // Also if the client is gone: the computation still uses its processor.
            let _turn = turn;
            runtime.block_on(async {
                let (head, body) = next.run(request).await.into_parts();
                axum::body::to_bytes(body, usize::MAX).await.map(|bytes| (head, bytes))
            })
        });
        match made.await {
            Ok(Ok((head, bytes))) => match self.hold(bytes) {
                Some(body) => Response::from_parts(head, body),
                None => self.later("debug-page-bytes", "too many pages wait to be taken"),
            },
            Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        }
    }

    /// A page as a response body; `None` if the budget is spent.
    fn hold(&self, bytes: Bytes) -> Option<Body> {
        let kib = bytes.len().div_ceil(1_024).min(self.waiting_kib);
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        let waiting = Arc::clone(&self.waiting).try_acquire_many_owned(kib).ok()?;
        Some(Body::from(Bytes::from_owner(Page { bytes, _waiting: waiting })))
    }

    fn later(&self, limit: &'static str, reason: &str) -> Response {
        self.metrics.limit_reached("admin", limit);
        let message = format!("{reason} (limit {limit}): try again\n");
        (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], message).into_response()
    }
}

pub(crate) fn refuse(refusal: &'static str) -> Response {
    (StatusCode::FORBIDDEN, refusal).into_response()
}

/// Middleware that checks access and computes pages in turns. Handlers get the client as [`Caller`].
pub(crate) async fn guard(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    match gate.admit(&request, false).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            gate.pages.make(request, next).await
        }
        Err(response) => response,
    }
}

/// Middleware that checks access, without a turn.
pub(crate) async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    match gate.admit(&request, false).await {
        Ok(_) => next.run(request).await,
        Err(response) => response,
    }
}

/// Variant of [`admit`] that also accepts links from other sites.
pub(crate) async fn admit_links(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    match gate.admit(&request, cross_site::is_link(request.headers())).await {
        Ok(_) => next.run(request).await,
        Err(response) => response,
    }
}

/// Refuses requests that a browser sends for a page of another site.
///
/// # Errors
/// Reason of the refusal.
pub(crate) fn check_site(request: &Request) -> Result<(), &'static str> {
    if cross_site::is_foreign(request.headers()) { Err(cross_site::REFUSAL) } else { Ok(()) }
}

/// Address of the client; `None` for a request without a connection, from this process.
pub(crate) fn peer(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
}

/// True for a client on this machine, or without a connection.
pub(crate) fn is_local(peer: Option<IpAddr>, headers: &HeaderMap) -> bool {
    peer.is_none_or(is_this_machine) && !headers.keys().any(|name| is_forwarding_header(name.as_str()))
}

/// Checks the name under which a browser on this machine shows the page.
fn check_name(peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), &'static str> {
    // A browser on this machine sends the host name of the page that it shows.
    if peer.is_none_or(|peer| peer.to_canonical().is_loopback()) && !is_own(headers) {
        return Err("debug pages are not shown under this name: use 127.0.0.1 or localhost\n");
    }
    Ok(())
}

/// True if the request's host is an IP address or `localhost`, not a name that a foreign site controls.
fn is_own(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Arc<Metrics> {
        Arc::new(Metrics::new("1").unwrap())
    }

    #[test]
    fn what_waits_to_be_taken_is_limited_until_its_last_byte_is_gone() {
        let pages = Pages::new(4, metrics());
        let page = |bytes: usize| pages.hold(Bytes::from(vec![b'x'; bytes]));
        let (first, second) = (page(2_000), page(2_000));
        assert!(first.is_some() && second.is_some());
        assert!(page(1).is_none());
        drop(first);
        assert!(page(1).is_some());
        assert!(page(1 << 20).is_none(), "a page that is too large by itself waits for the others");
        drop(second);
        assert!(page(1 << 20).is_some());
    }

    #[tokio::test]
    async fn a_page_that_takes_its_time_keeps_nobody_waiting() {
        let (let_go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let slow = move || {
            let wait = Arc::clone(&wait);
            async move {
                // As a page of a large mesh does: it computes.
                let _ = wait.lock().unwrap().recv();
                "done"
            }
        };
        let gate = Arc::new(Gate::new(Access::ThisMachine.into(), metrics()));
        let router = axum::Router::new()
            .route("/slow", axum::routing::get(slow))
            .layer(axum::middleware::from_fn_with_state(gate, guard));
        let request = Request::get("/slow").body(Body::empty()).unwrap();
        let answer = tokio::spawn(tower::ServiceExt::oneshot(router, request));
        // On the one thread of this test nothing else would come to this.
        tokio::task::yield_now().await;
        let_go.send(()).unwrap();
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }

    async fn is_told(access: Access, peer: Option<&str>, headers: &HeaderMap) -> bool {
        let mut request = Request::new(Body::empty());
        request.headers_mut().clone_from(headers);
        if let Some(peer) = peer {
            request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
        }
        let gate = Gate::new(access.into(), metrics());
        gate.tells(&request).await
    }

    #[tokio::test]
    async fn other_machines_see_nothing_unless_that_is_said() {
        use Access::{Everybody, ThisMachine};
        for (access, peer, host, is_allowed) in [
            (ThisMachine, "127.0.0.1", "127.0.0.1:15014", true),
            (ThisMachine, "::1", "[::1]:15014", true),
            (ThisMachine, "::ffff:127.0.0.1", "localhost", true),
            (ThisMachine, "10.0.0.1", "10.0.0.2:15014", false),
            (ThisMachine, "127.0.0.6", "127.0.0.1:15014", false),
            (ThisMachine, "::ffff:127.0.0.2", "127.0.0.1:15014", false),
            (ThisMachine, "127.0.0.1", "evil.example.com:15014", false),
            (ThisMachine, "127.0.0.1", "localhost.example.com", false),
            (Everybody, "10.0.0.1", "pilotfish.istio-system:15014", true),
            (Everybody, "127.0.0.1", "evil.example.com", false),
            (Everybody, "127.0.0.6", "pilotfish", false),
        ] {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            let told = is_told(access, Some(peer), &headers).await;
            assert_eq!(told, is_allowed, "{access:?} {peer} {host}");
        }
        assert!(is_told(ThisMachine, None, &HeaderMap::new()).await);
    }

    #[tokio::test]
    async fn requests_that_a_proxy_passes_on_are_of_other_machines() {
        for name in ["x-forwarded-for", "forwarded", "via", "x-real-ip", "x-envoy-external-address"] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "localhost".parse().unwrap());
            let peer = Some("127.0.0.1");
            assert!(is_told(Access::ThisMachine, peer, &headers).await);
            headers.insert(name, "127.0.0.1".parse().unwrap());
            assert!(!is_told(Access::ThisMachine, peer, &headers).await, "{name}");
            assert!(is_told(Access::Everybody, peer, &headers).await, "{name}");
            headers.insert(header::HOST, "evil.example.com".parse().unwrap());
            assert!(!is_told(Access::Everybody, peer, &headers).await, "{name}: no way around the name");
        }
    }
}
