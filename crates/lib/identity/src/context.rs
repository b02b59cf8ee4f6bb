//! TLS handshakes of one listener.

use crate::authentication::Authentication;
use crate::tls::Tls;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;

/// Shared state of a listener's TLS connections.
pub struct TlsContext {
    tls: Arc<Tls>,
    authentication: Arc<Authentication>,
}

impl TlsContext {
    /// Uses the certificate and authorities of `tls`, and the authenticators.
    #[must_use]
    pub fn new(tls: Arc<Tls>, authentication: Authentication) -> Self {
        Self { tls, authentication: Arc::new(authentication) }
    }

    /// The authenticators for clients without a certificate.
    #[must_use]
    pub fn authentication(&self) -> &Arc<Authentication> {
        &self.authentication
    }

    /// Does the handshake of one connection, without locks held. The caller limits its duration and the
    /// number of handshakes.
    ///
    /// # Errors
    /// When the client ends the connection, does not use TLS, or one side does not accept the other's
    /// certificate.
    pub async fn handshake<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I) -> io::Result<TlsStream<I>> {
        self.tls.handshake(io).await
    }
}
