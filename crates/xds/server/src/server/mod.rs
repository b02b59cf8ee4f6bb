//! The ADS server: accepts connections and moves bytes between sockets and streams.
//!
//! It uses the h2 crate directly. One task serves a connection with all of its streams; a push costs one
//! wake-up, at most one small header and one write of shared bytes. Health and reflection are served beside
//! ADS by tonic's services.
//!
//! The plaintext listener has no identities. If configured, a [`TlsListenerConfig`] adds one with TLS, whose
//! clients have to authenticate. After the handshake both are served by the same code.

mod ads_stream;
mod config;
mod connection;
mod grpc;
mod large;
mod method;
mod port;
mod services;
mod throttle;
mod tls_listener;
mod waker;

use crate::error::StreamError;
use crate::fanout::Fanout;
use crate::limits::Limit;
use crate::source::ResourceSource;
use bytes::Bytes;
pub use config::{ServerConfig, ServerError};
use connection::Connection;
pub use method::{UnaryAnswer, UnaryMethod};
use parking_lot::Mutex;
use pilotfish_admission::{FrameRates, KnownStreams, LogLimit, Metered};
use port::{ConnectionPlace, Port};
use services::Services;
use slab::Slab;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
pub use tls_listener::{ALPN, TlsListenerConfig};
use tls_listener::{SecurePort, TlsClient, TlsListener};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bytes that a connection may send before they are read.
pub(crate) const WINDOW: u32 = 1 << 20;
/// Send window of a connection before it has a stream with an identified client.
const FIRST_WINDOW: u32 = 65_535;

/// A server that is not bound yet.
pub struct Server<S: ResourceSource> {
    fanout: Arc<Fanout<S>>,
    config: ServerConfig,
    secure: Option<TlsListenerConfig>,
}

/// State that all connections share.
pub(crate) struct Shared<S: ResourceSource> {
    pub(crate) fanout: Arc<Fanout<S>>,
    pub(crate) config: ServerConfig,
    services: Services,
    draining: AtomicBool,
    /// Wakers of the connections' tasks, to announce a shutdown.
    tasks: Mutex<Slab<Waker>>,
}

impl<S: ResourceSource> Server<S> {
    /// Creates a server for the streams of `fanout`.
    pub fn new(fanout: Arc<Fanout<S>>, config: ServerConfig) -> Self {
        Self { fanout, config, secure: None }
    }

    /// Adds a listener with TLS.
    #[must_use]
    pub fn with_secure(self, secure: Option<TlsListenerConfig>) -> Self {
        Self { secure, ..self }
    }

    /// Binds the listeners, so that a port conflict is an error at start.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub fn bind(self, address: SocketAddr) -> Result<Bound<S>, ServerError> {
        let (listener, local) = listen(address).map_err(|source| ServerError::Bind { address, source })?;
        let secure = self.secure.map(|secure| TlsListener::bind(secure, &self.config)).transpose()?;
        let port = Port::new(&self.config);
        let shared = Shared {
            fanout: self.fanout,
            config: self.config,
            services: Services::new(),
            draining: AtomicBool::new(false),
            tasks: Mutex::default(),
        };
        Ok(Bound { listener, local, port, secure, shared: Arc::new(shared) })
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

struct Accepted {
    port: Arc<Port>,
    peer: SocketAddr,
    place: ConnectionPlace,
}

/// A server that listens and does not serve yet.
pub struct Bound<S: ResourceSource> {
    listener: TcpListener,
    local: SocketAddr,
    port: Arc<Port>,
    secure: Option<TlsListener>,
    shared: Arc<Shared<S>>,
}

impl<S: ResourceSource> Bound<S> {
    /// Address of the plaintext listener, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Address of the secure listener; `None` without one.
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(|listener| listener.local)
    }

    /// Serves until `shutdown` resolves, then drains: accepts no connections, sends GOAWAY, ends streams with
    /// `UNAVAILABLE`, and closes the remaining connections after [`ServerConfig::drain_timeout`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, port, secure, shared, .. } = self;
        let (stopping, stop) = watch::channel(false);
        let mut listeners = JoinSet::new();
        if let Some(TlsListener { listener, port, secure, .. }) = secure {
            listeners.spawn(Arc::clone(&shared).accept(listener, port, Some(secure), stop.clone()));
        }
        listeners.spawn(Arc::clone(&shared).accept(listener, port, None, stop));
        let mut health = tokio::time::interval(Duration::from_millis(250));
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                _ = health.tick() => shared.services.set_ready(shared.fanout.source().ready()).await,
            }
        }
        stopping.send_replace(true);
        let connections = listeners.join_all().await;
        shared.services.set_ready(false).await;
        shared.drain(connections).await;
    }
}

/// Frame rates that charge a new stream more than other frames, since it costs the server more than its
/// client.
fn frame_rates(config: &ServerConfig) -> FrameRates {
    FrameRates { per_second: config.frames_per_second, stream: 100, bytes_of_one: 1_024 }
}

/// Completes when a shutdown begins.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped, which counts as a shutdown.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Accepts the next connection, once few others wait for their first push.
async fn accept_one(listener: &TcpListener, port: &Port) -> io::Result<(TcpStream, SocketAddr)> {
    port.throttle.room().await;
    listener.accept().await
}

/// Waits for other connections to end: mostly the process is out of file descriptors.
async fn cannot_accept(error: &io::Error, log: &LogLimit) {
    if let Some(left_out) = log.allow(Instant::now()) {
        tracing::warn!(%error, left_out, "cannot accept a connection");
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
}

impl<S: ResourceSource> Shared<S> {
    /// Accepts connections until a shutdown begins, and returns the open ones. Each listener has its own
    /// task, so that a flood of connections on one does not block another.
    async fn accept(
        self: Arc<Self>,
        listener: TcpListener,
        port: Arc<Port>,
        secure: Option<Arc<SecurePort>>,
        mut stop: watch::Receiver<bool>,
    ) -> JoinSet<()> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return connections,
                Some(ended) = connections.join_next() => if let Err(error) = ended {
                    tracing::error!(%error, "a connection's task ended early");
                },
                accepted = accept_one(&listener, &port) => match accepted {
                    Ok((io, peer)) => if let Some(accepted) = self.admit(&port, &io, peer) {
                        match &secure {
                            Some(secure) => {
                                let secure = Arc::clone(secure);
                                connections.spawn(Arc::clone(&self).serve_tls(io, accepted, secure));
                            }
                            None => {
                                connections.spawn(Arc::clone(&self).serve(io, accepted, None));
                            }
                        }
                    },
                    Err(error) => cannot_accept(&error, &port.log).await,
                },
            }
        }
    }

    /// Admits a connection; `None` if there are too many others, and it has to be closed.
    fn admit(&self, port: &Arc<Port>, io: &TcpStream, peer: SocketAddr) -> Option<Accepted> {
        let place = match port.connection(peer) {
            Ok(place) => place,
            Err(error) => {
                self.fanout.recorder.limit_exceeded(error.limit);
                if let Some(left_out) = port.limit_log.allow(Instant::now()) {
                    tracing::warn!(%peer, %error, left_out, "connection closed: limit exceeded");
                }
                return None;
            }
        };
        // Without it, a stream's first exchanges wait 40 ms for a delayed TCP ACK.
        if let Err(error) = io.set_nodelay(true) {
            tracing::debug!(%peer, %error, "cannot set TCP_NODELAY: the client has closed the connection");
            return None;
        }
        Some(Accepted { port: Arc::clone(port), peer, place })
    }

    /// Serves one connection until it ends; `client` is `None` on the plaintext listener.
    async fn serve<I: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self: Arc<Self>,
        io: I,
        accepted: Accepted,
        client: Option<TlsClient>,
    ) {
        let known = KnownStreams::default();
        // Boxed: a connection is long-lived, and the state of its handshake is freed early.
        let Some(h2) = Box::pin(self.begin(io, &accepted, known.clone())).await else { return };
        let Accepted { port, peer, place } = accepted;
        if let Err(error) = Box::pin(Connection::new(self, h2, port, peer, place, client, known)).await {
            tracing::debug!(%peer, %error, "connection ended");
        }
    }

    /// Waits for the HTTP/2 preface; `None` if it does not arrive.
    async fn begin<I: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: I,
        accepted: &Accepted,
        known: KnownStreams,
    ) -> Option<h2::server::Connection<Metered<I>, Bytes>> {
        let (config, peer) = (&self.config, accepted.peer);
        let recorder = Arc::clone(&self.fanout.recorder);
        let on_wait = move || recorder.limit_exceeded(Limit::FramesPerSecond);
        let io = Metered::new(io, frame_rates(config), known, Box::new(on_wait));
        let preface = h2::server::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(FIRST_WINDOW)
            .max_concurrent_streams(config.connection_streams)
            .max_header_list_size(config.max_headers)
            .max_send_buffer_size(config.send_buffer)
            .handshake(io);
        let preface = tokio::time::timeout(config.handshake_timeout, preface);
        let done = tokio::select! {
            done = preface => done,
            () = accepted.place.handshake.gave_way() => {
                tracing::debug!(%peer, "closed a connection without HTTP/2 preface to make room for others");
                return None;
            }
        };
        match done {
            Ok(Ok(h2)) => Some(h2),
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "not an HTTP/2 connection");
                None
            }
            Err(_) => {
                tracing::debug!(%peer, "no HTTP/2 preface in time");
                None
            }
        }
    }

    /// Maximum age of a connection of the secure listener.
    fn identity_age(&self, peer: SocketAddr) -> Duration {
        let age = self.config.max_identity_age;
        age - age.mul_f64(self.fanout.hasher.part(&peer.to_string()) / 10.0)
    }

    /// Records a stream that is refused or ends with that error.
    pub(crate) fn count(&self, error: &StreamError) {
        self.fanout.recorder.stream_error(error.code_name());
        if let StreamError::ResourceExhausted(error) = error {
            self.fanout.recorder.limit_exceeded(error.limit);
        }
    }

    /// Ends the connections of all listeners.
    async fn drain(&self, mut connections: Vec<JoinSet<()>>) {
        self.draining.store(true, Ordering::SeqCst);
        for (_, task) in &*self.tasks.lock() {
            task.wake_by_ref();
        }
        let all = async {
            for connections in &mut connections {
                while connections.join_next().await.is_some() {}
            }
        };
        if tokio::time::timeout(self.config.drain_timeout, all).await.is_err() {
            let left: usize = connections.iter().map(JoinSet::len).sum();
            tracing::warn!(
                connections = left,
                "closed connections that did not end before the shutdown deadline"
            );
        }
        for mut connections in connections {
            connections.shutdown().await;
        }
    }
}
