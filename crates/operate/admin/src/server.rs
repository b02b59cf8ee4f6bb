//! The HTTP server: bound first, run later, stopped gracefully.

use crate::Metrics;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use pilotfish_identity::Tls;
use pilotfish_listener::{Limits, Listener, Security};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tower::ServiceExt;

/// ALPN protocols that a [`Tls`] of this server must offer.
pub const ALPN: &[&str] = &["http/1.1"];

/// Start-up error of the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use or not one of this machine.
    #[error("cannot listen on {address}")]
    Bind { address: SocketAddr, source: io::Error },
}

/// Requests a page as a client on this machine, without a connection: its status and at most `largest` bytes
/// of its content.
pub async fn page(router: &Router, path: &str, largest: usize) -> (StatusCode, Bytes) {
    let Ok(request) = Request::get(path).body(Body::empty()) else {
        return (StatusCode::BAD_REQUEST, Bytes::from_static(b"not a path\n"));
    };
    let Ok(response) = router.clone().oneshot(request).await;
    let (head, body) = response.into_parts();
    match axum::body::to_bytes(body, largest).await {
        Ok(bytes) => (head.status, bytes),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n").into()),
    }
}

/// A server that is bound and does not serve yet.
pub struct Bound(Listener);

impl Bound {
    /// Binds the address, so that a port conflict is an error at start.
    ///
    /// # Errors
    /// If it cannot be bound.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let listener = Listener::bind("the admin address", address, Limits::PAGES).await;
        Ok(Self(listener.map_err(|source| ServerError::Bind { address, source })?))
    }

    /// The bound address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Serves TLS; certificates of clients are credentials.
    #[must_use]
    pub fn with_tls(self, tls: Arc<Tls>) -> Self {
        Self(self.0.with_security(Security::Clients(tls)))
    }

    /// Counts reached limits in `metrics`.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self(self.0.with_on_limit(Arc::new(move |limit| metrics.limit_reached("admin", limit))))
    }

    /// Serves until `stop` resolves and open requests are answered.
    pub async fn run(self, router: Router, stop: impl Future<Output = ()>) {
        self.0.run(router, stop).await;
    }
}
