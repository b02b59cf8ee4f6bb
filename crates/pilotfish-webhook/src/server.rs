//! The HTTPS server: bound first, run later, its certificate swapped while it runs.

use arc_swap::ArcSwapOption;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections at a time. API servers keep a few each.
const CONNECTIONS: usize = 512;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may wait for the next request: longer than clients keep idle ones, so that they close first.
const IDLE: Duration = Duration::from_secs(180);
/// Bytes that are read ahead of a connection, and the most that a request's head may have.
const BUFFER: usize = 64 << 10;
/// How long open requests may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// The certificate that is served. Without one, every handshake fails.
#[derive(Debug, Default)]
pub struct Certificates {
    served: ArcSwapOption<CertifiedKey>,
    authorities: ArcSwapOption<String>,
}

impl Certificates {
    /// Serves this one from now on, which clients check by these authorities (PEM).
    pub fn set(&self, certified: CertifiedKey, authorities: String) {
        self.authorities.store(Some(Arc::new(authorities)));
        self.served.store(Some(Arc::new(certified)));
    }

    /// The authorities by which clients check it, in PEM.
    #[must_use]
    pub fn authorities(&self) -> Option<Arc<String>> {
        self.authorities.load_full()
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.served.load().is_some()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.served.load_full()
    }
}

/// Why the server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The TLS settings are impossible.
    #[error("no TLS")]
    Tls(#[from] rustls::Error),
}

/// A server that has its address but does not answer yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    certificates: Arc<Certificates>,
}

impl Bound {
    /// Takes the address.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let bind = |source| ServerError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let certificates = Arc::new(Certificates::default());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificates.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { listener, address, acceptor: TlsAcceptor::from(Arc::new(config)), certificates })
    }

    /// The address that it really has: a free port in place of 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where certificates are given to it.
    #[must_use]
    pub fn certificates(&self) -> Arc<Certificates> {
        self.certificates.clone()
    }

    /// Answers until `stop` is set and open requests are answered.
    pub async fn run(self, router: Router, mut stop: watch::Receiver<bool>) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        let stopping = stop.clone();
        loop {
            let accepted = async {
                let permit = permits.clone().acquire_owned().await;
                (permit, self.listener.accept().await)
            };
            tokio::select! {
                (Ok(permit), accepted) = accepted => match accepted {
                    Ok((stream, peer)) => {
                        let (acceptor, router, stop) = (self.acceptor.clone(), router.clone(), stopping.clone());
                        connections.spawn(async move {
                            if let Err(error) = connection(acceptor, stream, router, stop).await {
                                tracing::debug!(%peer, error, "a connection to the webhooks ended");
                            }
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection to the webhooks");
                        // Out of files or memory: others must end first.
                        sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = stopped(&mut stop) => break,
            }
        }
        drop(self.listener);
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(DRAIN, all).await.is_err() {
            tracing::warn!("requests to the webhooks were cut off");
        }
    }
}

/// Completes when `stop` is set.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which counts as a stop.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn connection(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let accepted = timeout(HANDSHAKE, acceptor.accept(stream)).await;
    let stream = accepted.map_err(|_| "no handshake in time")?.map_err(|error| error.to_string())?;
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        end = connection.as_mut() => return end.map_err(|error| error.to_string()),
        () = stopped(&mut stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await.map_err(|error| error.to_string())
}
