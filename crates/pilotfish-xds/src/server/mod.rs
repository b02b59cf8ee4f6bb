//! The ADS server: accepts connections and moves bytes between sockets and streams.
//!
//! It stands on the h2 crate directly. One task holds a connection with all of its streams; a push is one wake-up, one
//! small header at most and one write of shared bytes. Health and reflection are served beside ADS by tonic's services.
//!
//! There is a plaintext listener, whose clients have no identity, and where it is asked for a [`Secure`] one with TLS, whose clients
//! have to prove one. Behind the handshake both are the same.

mod authentication;
mod connection;
mod gate;
mod grpc;
mod log_limit;
mod others;
mod secure;
pub mod tls;

use crate::fanout::Fanout;
use crate::source::{PeerInfo, ResourceSource};
pub use authentication::{Authenticated, Authenticator, Call};
use connection::Connection;
use others::Others;
use parking_lot::Mutex;
pub use secure::Secure;
use secure::{Client, Door};
use slab::Slab;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

/// Limits and times of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// Open connections; more are closed at once.
    pub max_connections: usize,
    /// Streams of one connection at a time.
    pub max_streams: u32,
    /// Bytes of one request.
    pub max_message: usize,
    /// Bytes of one request's headers.
    pub max_headers: u32,
    /// Bytes that one stream may have waiting for a slow client before nothing more is made for it.
    pub send_buffer: usize,
    /// How long a connection may take for TLS, and then for HTTP/2's preface.
    pub handshake_timeout: Duration,
    /// TLS handshakes that are computed at a time; more wait, as long as the handshake may take.
    pub max_handshakes: usize,
    /// How long it may take to find out who a client is.
    pub authentication_timeout: Duration,
    /// How long a stream may take for its first request.
    pub first_request_timeout: Duration,
    /// How long a connection may be without streams.
    pub idle_timeout: Duration,
    /// How often a client is asked whether it is still there.
    pub keepalive_interval: Duration,
    /// How long it may take for the answer.
    pub keepalive_timeout: Duration,
    /// How long streams may take to end after a shutdown began.
    pub drain_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_connections: 50_000,
            max_streams: 1_000,
            max_message: 4 << 20,
            max_headers: 32 << 10,
            send_buffer: 1 << 20,
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 256,
            authentication_timeout: Duration::from_secs(10),
            first_request_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use or not one of this machine.
    #[error("cannot listen on {address} for xDS")]
    Bind {
        /// What was to be bound.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The same for the secure listener.
    #[error("cannot listen on {address} for xDS over TLS")]
    BindSecure {
        /// What was to be bound.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Health or reflection cannot be set up.
    #[error("cannot set up gRPC reflection: {0}")]
    Reflection(String),
}

/// A server that is not bound yet.
pub struct Server<S: ResourceSource> {
    fanout: Arc<Fanout<S>>,
    config: ServerConfig,
    secure: Option<Secure>,
}

/// What all connections share.
pub(crate) struct Shared<S: ResourceSource> {
    pub(crate) fanout: Arc<Fanout<S>>,
    pub(crate) config: ServerConfig,
    others: Others,
    draining: AtomicBool,
    /// The connections' tasks, to be woken when a shutdown begins.
    tasks: Mutex<Slab<Waker>>,
}

impl<S: ResourceSource> Server<S> {
    /// A server of that fan-out's streams.
    pub fn new(fanout: Arc<Fanout<S>>, config: ServerConfig) -> Self {
        Self { fanout, config, secure: None }
    }

    /// Also listens there.
    #[must_use]
    pub fn with_secure(self, secure: Option<Secure>) -> Self {
        Self { secure, ..self }
    }

    /// Binds, so that a port conflict is an error at start.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub fn bind(self, address: SocketAddr) -> Result<Bound<S>, ServerError> {
        let (listener, local) = listen(address).map_err(|source| ServerError::Bind { address, source })?;
        let secure = self.secure.map(|secure| Door::bind(secure, &self.config)).transpose()?;
        let shared = Shared {
            fanout: self.fanout,
            config: self.config,
            others: Others::new()?,
            draining: AtomicBool::new(false),
            tasks: Mutex::default(),
        };
        Ok(Bound { listener, local, secure, shared: Arc::new(shared) })
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(4096)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A server that listens and does not serve yet.
pub struct Bound<S: ResourceSource> {
    listener: TcpListener,
    local: SocketAddr,
    secure: Option<Door>,
    shared: Arc<Shared<S>>,
}

impl<S: ResourceSource> Bound<S> {
    /// The address, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The address of the secure listener, where there is one.
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(|door| door.local)
    }

    /// Serves until `shutdown` resolves, then drains: no new connections, GOAWAY, streams end with `UNAVAILABLE`, and what is
    /// left after [`ServerConfig::drain_timeout`] is cut off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, secure, shared, .. } = self;
        let mut connections = JoinSet::new();
        let mut health = tokio::time::interval(Duration::from_millis(250));
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                _ = health.tick() => shared.others.report(shared.fanout.source().ready()).await,
                Some(ended) = connections.join_next() => if let Err(error) = ended {
                    tracing::error!(%error, "a connection's task ended early");
                },
                accepted = listener.accept() => match accepted {
                    Ok((io, peer)) => if let Some(peer) = shared.admit(&io, peer, connections.len()) {
                        connections.spawn(Arc::clone(&shared).serve(io, peer, None));
                    },
                    Err(error) => cannot_accept(&error).await,
                },
                Some((way, accepted)) = accept_secure(secure.as_ref()) => match accepted {
                    Ok((io, peer)) => if let Some(peer) = shared.admit(&io, peer, connections.len()) {
                        connections.spawn(Arc::clone(&shared).serve_secure(io, peer, Arc::clone(way)));
                    },
                    Err(error) => cannot_accept(&error).await,
                },
            }
        }
        drop((listener, secure));
        shared.others.report(false).await;
        shared.drain(connections).await;
    }
}

/// The next connection of the secure listener; `None` where there is none.
async fn accept_secure(
    door: Option<&Door>,
) -> Option<(&Arc<secure::Way>, io::Result<(tokio::net::TcpStream, SocketAddr)>)> {
    let door = door?;
    Some((&door.way, door.listener.accept().await))
}

/// Out of file descriptors, mostly: others end in the meantime.
async fn cannot_accept(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

impl<S: ResourceSource> Shared<S> {
    /// Whether a connection is taken beside those that are open.
    fn admit(&self, io: &tokio::net::TcpStream, peer: SocketAddr, open: usize) -> Option<PeerInfo> {
        if open >= self.config.max_connections {
            tracing::warn!(%peer, limit = self.config.max_connections, "too many connections: closed");
            return None;
        }
        // Without it, a stream's first exchanges wait 40 ms for a delayed TCP ACK.
        if let Err(error) = io.set_nodelay(true) {
            tracing::debug!(%peer, %error, "connection is gone already");
            return None;
        }
        Some(PeerInfo { address: peer.to_string(), ..PeerInfo::default() })
    }

    /// Serves one connection until it ends; `client` is there where clients have to prove who they are.
    async fn serve<I: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self: Arc<Self>,
        io: I,
        peer: PeerInfo,
        client: Option<Client>,
    ) {
        let config = self.config;
        let handshake = h2::server::Builder::new()
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 20)
            .max_concurrent_streams(config.max_streams)
            .max_header_list_size(config.max_headers)
            .max_send_buffer_size(config.send_buffer)
            .handshake(io);
        let address = peer.address.clone();
        let h2 = match tokio::time::timeout(config.handshake_timeout, handshake).await {
            Ok(Ok(h2)) => h2,
            Ok(Err(error)) => {
                tracing::debug!(peer = address, %error, "not an HTTP/2 connection");
                return;
            }
            Err(_) => {
                tracing::debug!(peer = address, "no HTTP/2 preface in time");
                return;
            }
        };
        if let Err(error) = Connection::new(self, h2, peer, client).await {
            tracing::debug!(peer = address, %error, "connection ended");
        }
    }

    async fn drain(&self, mut connections: JoinSet<()>) {
        self.draining.store(true, Ordering::SeqCst);
        for (_, task) in &*self.tasks.lock() {
            task.wake_by_ref();
        }
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.config.drain_timeout, all).await.is_err() {
            tracing::warn!(connections = connections.len(), "connections did not end in time: cut off");
        }
        connections.shutdown().await;
    }
}
