//! The HTTPS server: bound first, run later, its certificate swapped while it runs.

use crate::routes::Observer;
use arc_swap::ArcSwapOption;
use axum::Router;
use pilotfish_listener::{Limits, Listener};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// What those who reach the port can hold. API servers keep a few connections each.
pub const LIMITS: Limits = Limits {
    connections: 512,
    address_connections: 128,
    idle_connections: 256,
    handshake: Duration::from_secs(5),
    // Longer than clients keep idle connections, so that they close first.
    idle: Duration::from_secs(180),
    request: Duration::from_secs(15),
    head_bytes: 64 << 10,
    drain: Duration::from_secs(5),
};

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
    listener: Listener,
    certificates: Arc<Certificates>,
}

impl Bound {
    /// Takes the address.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let certificates = Arc::new(Certificates::default());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificates.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = Listener::bind("the webhooks", address, LIMITS).await;
        let listener = listener.map_err(|source| ServerError::Bind { address, source })?;
        Ok(Self { listener: listener.with_tls(TlsAcceptor::from(Arc::new(config))), certificates })
    }

    /// The address that it really has: a free port in place of 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The same, which tells an observer of limits that are reached.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        let listener = self.listener.with_on_limit(Arc::new(move |limit| observer.limit_reached(limit)));
        Self { listener, ..self }
    }

    /// Where certificates are given to it.
    #[must_use]
    pub fn certificates(&self) -> Arc<Certificates> {
        self.certificates.clone()
    }

    /// Answers until `stop` is set and open requests are answered.
    pub async fn run(self, router: Router, mut stop: watch::Receiver<bool>) {
        self.listener.run(router, stopped(&mut stop)).await;
    }
}

/// Completes when `stop` is set.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which counts as a stop.
    let _ = stop.wait_for(|stop| *stop).await;
}
