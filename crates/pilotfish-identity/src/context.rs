//! TLS handshakes of one listener.

use crate::authentication::Authentication;
use crate::tls::Tls;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// What the connections of a listener with TLS have in common.
pub struct TlsContext {
    tls: Arc<Tls>,
    authentication: Arc<Authentication>,
    handshakes: Semaphore,
}

impl TlsContext {
    /// At most `max_handshakes` are computed at a time; more wait.
    #[must_use]
    pub fn new(tls: Arc<Tls>, authentication: Authentication, max_handshakes: usize) -> Self {
        Self { tls, authentication: Arc::new(authentication), handshakes: Semaphore::new(max_handshakes) }
    }

    /// The authenticators for clients without a certificate.
    #[must_use]
    pub fn authentication(&self) -> &Arc<Authentication> {
        &self.authentication
    }

    /// Does the handshake of one connection. A client waits for its slot with a complete ClientHello, so that one that sends
    /// nothing takes no slot. The caller sets the time limit.
    ///
    /// # Errors
    /// When the client ends the connection, does not use TLS, or one side does not accept the other's certificate.
    pub async fn handshake<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I) -> io::Result<TlsStream<I>> {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io).await?;
        let slot = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let stream = hello.into_stream(self.tls.config()).await;
        drop(slot);
        stream
    }
}
