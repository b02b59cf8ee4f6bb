//! HTTP/1 listeners for pages and webhooks.
//!
//! ```text
//! accept ── too many? closed ──▶ TLS handshake ──▶ request ──▶ Router, in time ──▶ answer ──▶ idle
//!                                    └───────────── the longest-idle connection is closed ──────┘
//! ```
//!
//! Inactive connections cannot crowd out other clients: above the limit of connections in a handshake or
//! between requests, the longest-idle one is closed. Connections of one address have their own limit.

mod connection;

use axum::Router;
use connection::Connection;
pub use connection::{ClientCertificate, Security};
use pilotfish_admission::{HalfOpen, KeyedSemaphore, LogLimit, network_of};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Connection limits and timeouts of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections; additional ones are closed.
    pub connections: usize,
    /// Maximum number of connections of one address; additional ones are closed.
    pub address_connections: usize,
    /// Connections without a request: in a handshake, or idle. Above this limit the longest-idle one is
    /// closed.
    pub idle_connections: usize,
    /// Timeout of a TLS handshake.
    pub handshake: Duration,
    /// Maximum time without a request, or without the client reading response bytes.
    pub idle: Duration,
    /// Timeout of a request, from the end of its head to the response; a late request is answered with 503.
    pub request: Duration,
    /// Maximum size of a request head in bytes.
    pub head_bytes: usize,
    /// Maximum duration of open requests once the listener stops; later they are cut off.
    pub drain: Duration,
}

impl Limits {
    /// Limits of pages for operators: users, probes and scrapers need a few connections each.
    pub const PAGES: Self = Self {
        connections: 256,
        address_connections: 64,
        idle_connections: 128,
        handshake: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        request: Duration::from_secs(60),
        head_bytes: 32 << 10,
        drain: Duration::from_secs(5),
    };
}

/// Callback for each exceeded limit, with its name: `connections`, `address-connections`, `idle-connections`,
/// `handshake-time`, `idle-time`, `request-time` or `head-bytes`.
pub type OnLimit = Arc<dyn Fn(&'static str) + Send + Sync>;

/// A bound listener that does not serve yet. Handlers get the client's address as
/// [`ConnectInfo<SocketAddr>`](axum::extract::ConnectInfo).
pub struct Listener {
    /// Description in log messages after "a connection to": `the webhooks`.
    name: &'static str,
    listener: TcpListener,
    address: SocketAddr,
    security: Security,
    limits: Limits,
    on_limit: OnLimit,
}

impl Listener {
    /// Binds the address. `name` follows "a connection to" in log messages.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(name: &'static str, address: SocketAddr, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { name, listener, address, security: Security::Plain, limits, on_limit: Arc::new(|_| {}) })
    }

    /// Serves TLS.
    #[must_use]
    pub fn with_security(self, security: Security) -> Self {
        Self { security, ..self }
    }

    /// Sets the callback for exceeded limits.
    #[must_use]
    pub fn with_on_limit(self, on_limit: OnLimit) -> Self {
        Self { on_limit, ..self }
    }

    /// The bound address, with the assigned port in place of 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves, then completes open requests within [`Limits::drain`].
    pub async fn run(self, router: Router, stop: impl Future<Output = ()>) {
        let Self { name, listener, security, limits, on_limit, .. } = self;
        let (stopping, stopped) = watch::channel(false);
        let admission = Admission::new(name, limits, on_limit);
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((io, peer)) => {
                        if let Some(connection) = admission.admit(io, peer, connections.len()) {
                            connections.spawn(connection.serve(security.clone(), router.clone(), stopped.clone()));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection to {name}");
                        // Usually the process is out of file descriptors: other connections must end first.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(listener);
        stopping.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain, all).await.is_err() {
            tracing::warn!("the drain timeout is over: open requests to {name} are cut off");
        }
    }
}

/// Decides on accepting connections.
struct Admission {
    name: &'static str,
    limits: Limits,
    addresses: KeyedSemaphore<IpAddr>,
    idle: Arc<HalfOpen>,
    log: LogLimit,
    on_limit: OnLimit,
}

impl Admission {
    fn new(name: &'static str, limits: Limits, on_limit: OnLimit) -> Self {
        let addresses = KeyedSemaphore::new(limits.address_connections);
        Self {
            name,
            limits,
            addresses,
            idle: HalfOpen::new(limits.idle_connections),
            log: LogLimit::of_limits(),
            on_limit,
        }
    }

    fn admit(&self, io: TcpStream, peer: SocketAddr, open: usize) -> Option<Connection> {
        let address = self.addresses.try_acquire(network_of(peer.ip()));
        let limit = match address {
            _ if open >= self.limits.connections => "connections",
            None => "address-connections",
            Some(address) => {
                let waiting = self.idle.begin(peer.ip());
                let on_limit = Arc::clone(&self.on_limit);
                return Some(Connection::new(self.name, self.limits, on_limit, io, peer, address, waiting));
            }
        };
        (self.on_limit)(limit);
        if let Some(left_out) = self.log.allow(Instant::now()) {
            tracing::warn!(%peer, limit, left_out, "closing a connection to {}: limit reached", self.name);
        }
        None
    }
}
