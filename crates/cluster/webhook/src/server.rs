//! HTTPS server: bound first, run later, with a certificate that is replaced at run time.

use crate::routes::Observer;
use arc_swap::ArcSwapOption;
use axum::Router;
use pilotfish_listener::{Limits, Listener, Security};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Connection limits of the webhook server. API servers keep a few connections each.
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

/// Serving certificate. Without one, every handshake fails.
#[derive(Debug, Default)]
pub struct Certificates {
    served: ArcSwapOption<CertifiedKey>,
    authorities: ArcSwapOption<String>,
}

impl Certificates {
    /// Replaces the certificate, which clients verify with these authorities (PEM).
    pub fn set(&self, certified: CertifiedKey, authorities: String) {
        self.authorities.store(Some(Arc::new(authorities)));
        self.served.store(Some(Arc::new(certified)));
    }

    /// Authorities of the certificate, in PEM.
    #[must_use]
    pub fn authorities(&self) -> Option<Arc<String>> {
        self.authorities.load_full()
    }

    /// True if there is a certificate.
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

/// Start-up error of the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use or not one of this machine.
    #[error("cannot listen on {address}")]
    Bind { address: SocketAddr, source: io::Error },
    /// The TLS settings are invalid.
    #[error("no TLS")]
    Tls(#[from] rustls::Error),
}

/// A server that is bound and does not serve yet.
pub struct Bound {
    listener: Listener,
    certificates: Arc<Certificates>,
}

impl Bound {
    /// Binds the address.
    ///
    /// # Errors
    /// If it cannot be bound.
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
        Ok(Self {
            listener: listener.with_security(Security::Tls(TlsAcceptor::from(Arc::new(config)))),
            certificates,
        })
    }

    /// Bound address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Sets an observer of reached limits.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        let listener = self.listener.with_on_limit(Arc::new(move |limit| observer.limit_reached(limit)));
        Self { listener, ..self }
    }

    /// Certificates of this server, to be set by the controller.
    #[must_use]
    pub fn certificates(&self) -> Arc<Certificates> {
        self.certificates.clone()
    }

    /// Serves until `stop` is set and open requests are answered.
    pub async fn run(self, router: Router, mut stop: watch::Receiver<bool>) {
        self.listener.run(router, stopped(&mut stop)).await;
    }
}

/// Completes when `stop` is set.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped, which counts as a stop.
    let _ = stop.wait_for(|stop| *stop).await;
}
