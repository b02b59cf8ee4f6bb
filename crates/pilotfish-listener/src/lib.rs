//! HTTP/1 listeners for pages and webhooks.
//!
//! ```text
//! accept ── too many? closed ──▶ TLS handshake ──▶ request ──▶ Router, in time ──▶ answer ──▶ idle
//!                                    └───────────── the one that waits longest gives way ──────┘
//! ```
//!
//! A connection that does nothing costs nobody else a place: of those in a handshake and between requests, the one that has waited
//! longest ends when there are too many. Connections of one address are limited by themselves.

mod connection;

use axum::Router;
use connection::Connection;
use pilotfish_identity::{HalfOpen, LogLimit};
/// What each client may have of something; for handlers, too.
pub use pilotfish_identity::{Slot, Slots, network_of};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What clients of a listener can hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections; one more is closed.
    pub connections: usize,
    /// Connections of one address; one more is closed.
    pub address_connections: usize,
    /// Connections without a request: in a handshake, or idle. Of more, the one that has waited longest is ended.
    pub idle_connections: usize,
    /// The time for a TLS handshake.
    pub handshake: Duration,
    /// How long a connection may wait for a request, or for its client to take an answer.
    pub idle: Duration,
    /// The time for a request, from the end of its head to its answer: then it is answered with 503.
    pub request: Duration,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// How long requests may take once the listener stops; then they are cut off.
    pub drain: Duration,
}

/// Is told the name of each limit that is reached: `connections`, `address-connections`, `idle-connections`, `handshake-time`, `idle-time`,
/// `request-time` or `head-bytes`.
pub type OnLimit = Arc<dyn Fn(&'static str) + Send + Sync>;

/// A listener that has its address and does not answer yet. Handlers find their client's address as
/// [`ConnectInfo<SocketAddr>`](axum::extract::ConnectInfo).
pub struct Listener {
    /// What it is for, in log lines: `the webhooks`.
    name: &'static str,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    on_limit: OnLimit,
}

impl Listener {
    /// Takes the address. `name` stands in log lines behind "a connection to".
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn bind(name: &'static str, address: SocketAddr, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { name, listener, address, tls: None, limits, on_limit: Arc::new(|_| {}) })
    }

    /// The same with TLS.
    #[must_use]
    pub fn with_tls(self, tls: TlsAcceptor) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The same, which tells of limits that are reached.
    #[must_use]
    pub fn with_on_limit(self, on_limit: OnLimit) -> Self {
        Self { on_limit, ..self }
    }

    /// The address that it really has: a free port in place of 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` resolves, and then what is under way.
    pub async fn run(self, router: Router, stop: impl Future<Output = ()>) {
        let Self { name, listener, tls, limits, on_limit, .. } = self;
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
                            connections.spawn(connection.serve(tls.clone(), router.clone(), stopped.clone()));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection to {name}");
                        // Mostly the process is out of file descriptors: others have to end first.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(listener);
        stopping.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain, all).await.is_err() {
            tracing::warn!("requests to {name} were cut off");
        }
    }
}

/// Decides which connections are taken in.
struct Admission {
    name: &'static str,
    limits: Limits,
    addresses: Arc<Slots<IpAddr>>,
    idle: Arc<HalfOpen>,
    log: LogLimit,
    on_limit: OnLimit,
}

impl Admission {
    fn new(name: &'static str, limits: Limits, on_limit: OnLimit) -> Self {
        let addresses = Slots::new(limits.address_connections);
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
        let address = self.addresses.take(network_of(peer.ip()));
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
            tracing::warn!(%peer, limit, left_out, "too many connections to {}: closed", self.name);
        }
        None
    }
}
