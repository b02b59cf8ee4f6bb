//! Who sees the debug pages, and how many are made at a time.
//!
//! They hold the configuration of all namespaces. A page of another site that a browser of this machine has open must not read them either: it
//! would come from this machine under the site's own name (DNS rebinding), so that name is looked at.

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Pages that are made at a time: each may hold all that is known.
const AT_A_TIME: usize = 2;
/// How long a request waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// Who sees the debug pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Who connects from this machine: `kubectl port-forward` does.
    ThisMachine,
    /// Everybody who reaches the address.
    Everybody,
}

/// What stands before the debug pages.
pub(crate) struct Gate {
    access: Access,
    turns: Semaphore,
}

impl Gate {
    pub(crate) fn new(access: Access) -> Self {
        Self { access, turns: Semaphore::new(AT_A_TIME) }
    }
}

/// Answers those who may see the page, one after the other.
pub(crate) async fn guard(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    // Without a connection there is nobody else.
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
    if let Err(refusal) = check(gate.access, peer, request.headers()) {
        return (StatusCode::FORBIDDEN, refusal).into_response();
    }
    match timeout(TURN, gate.turns.acquire()).await {
        Ok(Ok(_turn)) => next.run(request).await,
        Ok(Err(_)) | Err(_) => {
            let message = "too many pages are being made (limit debug-pages): try again\n";
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], message).into_response()
        }
    }
}

fn check(access: Access, peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), &'static str> {
    let is_local = peer.is_none_or(|peer| peer.to_canonical().is_loopback());
    match (access, is_local) {
        (Access::ThisMachine, false) => Err(
            "debug pages are shown on this machine only: use kubectl port-forward, or --allow-remote-debug\n",
        ),
        (Access::Everybody, false) => Ok(()),
        (_, true) if is_own(headers) => Ok(()),
        (_, true) => Err("debug pages are not shown under this name: use 127.0.0.1 or localhost\n"),
    }
}

/// Whether the name in the request is one of this machine itself.
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

    fn allowed(access: Access, peer: &str, host: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        check(access, Some(peer.parse().unwrap()), &headers).is_ok()
    }

    #[test]
    fn other_machines_see_nothing_unless_that_is_said() {
        use Access::{Everybody, ThisMachine};
        for (access, peer, host, is_allowed) in [
            (ThisMachine, "127.0.0.1", "127.0.0.1:15014", true),
            (ThisMachine, "::1", "[::1]:15014", true),
            (ThisMachine, "::ffff:127.0.0.1", "localhost", true),
            (ThisMachine, "10.0.0.1", "10.0.0.2:15014", false),
            (ThisMachine, "127.0.0.1", "evil.example.com:15014", false),
            (ThisMachine, "127.0.0.1", "localhost.example.com", false),
            (Everybody, "10.0.0.1", "pilotfish.istio-system:15014", true),
            (Everybody, "127.0.0.1", "evil.example.com", false),
        ] {
            assert_eq!(allowed(access, peer, host), is_allowed, "{access:?} {peer} {host}");
        }
        assert!(check(ThisMachine, None, &HeaderMap::new()).is_ok());
    }
}
