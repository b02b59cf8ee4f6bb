//! The ADS server: accepts connections and moves bytes between sockets and streams.
//!
//! It stands on the h2 crate directly. One task holds a connection with all of its streams; a push is one wake-up, one
//! small header at most and one write of shared bytes. Health and reflection are served beside ADS by tonic's services.

mod connection;
mod gate;
mod grpc;
mod others;

use crate::fanout::Fanout;
use crate::source::{PeerInfo, ResourceSource};
use connection::Connection;
use others::Others;
use parking_lot::Mutex;
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
    /// How long a connection may take for HTTP/2's preface.
    pub handshake_timeout: Duration,
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
    /// Health or reflection cannot be set up.
    #[error("cannot set up gRPC reflection: {0}")]
    Reflection(String),
}

/// A server that is not bound yet.
pub struct Server<S: ResourceSource> {
    fanout: Arc<Fanout<S>>,
    config: ServerConfig,
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
        Self { fanout, config }
    }

    /// Binds, so that a port conflict is an error at start.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(self, address: SocketAddr) -> Result<Bound<S>, ServerError> {
        let listen = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let listener = socket.listen(4096)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, local) = listen().map_err(|source| ServerError::Bind { address, source })?;
        let shared = Shared {
            fanout: self.fanout,
            config: self.config,
            others: Others::new()?,
            draining: AtomicBool::new(false),
            tasks: Mutex::default(),
        };
        Ok(Bound { listener, local, shared: Arc::new(shared) })
    }
}

/// A server that listens and does not serve yet.
pub struct Bound<S: ResourceSource> {
    listener: TcpListener,
    local: SocketAddr,
    shared: Arc<Shared<S>>,
}

impl<S: ResourceSource> Bound<S> {
    /// The address, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Serves until `shutdown` resolves, then drains: no new connections, GOAWAY, streams end with `UNAVAILABLE`, and what is
    /// left after [`ServerConfig::drain_timeout`] is cut off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, shared, .. } = self;
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
                    Ok((io, peer)) => shared.accept(io, peer, &mut connections),
                    Err(error) => {
                        // Out of file descriptors, mostly: others end in the meantime.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(listener);
        shared.others.report(false).await;
        shared.drain(connections).await;
    }
}

impl<S: ResourceSource> Shared<S> {
    fn accept(self: &Arc<Self>, io: tokio::net::TcpStream, peer: SocketAddr, connections: &mut JoinSet<()>) {
        if connections.len() >= self.config.max_connections {
            tracing::warn!(%peer, limit = self.config.max_connections, "too many connections: closed");
            return;
        }
        // Without it, a stream's first exchanges wait 40 ms for a delayed TCP ACK.
        if let Err(error) = io.set_nodelay(true) {
            tracing::debug!(%peer, %error, "connection is gone already");
            return;
        }
        let peer = PeerInfo { address: peer.to_string(), ..PeerInfo::default() };
        connections.spawn(Arc::clone(self).serve(io, peer));
    }

    /// Serves one connection until it ends.
    async fn serve<I: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self: Arc<Self>,
        io: I,
        peer: PeerInfo,
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
        if let Err(error) = Connection::new(self, h2, peer).await {
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
