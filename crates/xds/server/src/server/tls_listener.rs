//! The secure listener: TLS, and streams only for clients that prove an identity.
//!
//! Until its handshake is complete, a connection costs a task and its socket; the accept loop waits for none.

use super::method::UnaryMethod;
use super::port::Port;
use super::{Accepted, ServerConfig, ServerError, Shared, listen};
use crate::recorder::HandshakeResult;
use crate::source::ResourceSource;
use pilotfish_identity::{Authenticated, Authentication, Authenticator, Tls, TlsContext, spiffe_ids};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// ALPN protocols that a [`Tls`] of this server has to offer: HTTP/2, as gRPC needs it.
pub const ALPN: &[&str] = &["h2"];

/// A listener whose clients have to authenticate.
pub struct TlsListenerConfig {
    pub address: SocketAddr,
    /// The server's certificate and the authorities of clients' certificates; offers [`ALPN`].
    pub tls: Arc<Tls>,
    /// Authenticators for clients without a certificate, in this order.
    pub authenticators: Vec<Arc<dyn Authenticator>>,
    /// Methods beside ADS, for authenticated clients.
    pub methods: Vec<Arc<dyn UnaryMethod>>,
}

/// State of the secure listener that its connections share.
pub(super) struct SecurePort {
    tls: TlsContext,
    methods: Vec<Arc<dyn UnaryMethod>>,
}

/// A bound secure listener.
pub(super) struct TlsListener {
    pub(super) listener: TcpListener,
    pub(super) local: SocketAddr,
    pub(super) port: Arc<Port>,
    pub(super) secure: Arc<SecurePort>,
}

/// Result of a TLS handshake: the client's proven identities, and how to authenticate it without them.
pub(super) struct TlsClient {
    /// Tried where the certificate has no identity.
    pub(super) authentication: Arc<Authentication>,
    /// The identities of the certificate.
    pub(super) certificate: Authenticated,
    secure: Arc<SecurePort>,
}

impl TlsClient {
    /// Returns the method with this path.
    pub(super) fn method(&self, path: &str) -> Option<Arc<dyn UnaryMethod>> {
        self.secure.methods.iter().find(|method| method.path() == path).cloned()
    }
}

impl TlsListener {
    pub(super) fn bind(secure: TlsListenerConfig, config: &ServerConfig) -> Result<Self, ServerError> {
        let TlsListenerConfig { address, tls, authenticators, methods } = secure;
        let (listener, local) =
            listen(address).map_err(|source| ServerError::BindSecure { address, source })?;
        let authentication = Authentication::new("xDS", authenticators, config.authentication_timeout);
        let secure = SecurePort { tls: TlsContext::new(tls, authentication), methods };
        Ok(Self { listener, local, port: Port::new(config), secure: Arc::new(secure) })
    }
}

impl<S: ResourceSource> Shared<S> {
    /// Serves one connection of the secure listener until it ends.
    pub(super) async fn serve_tls(
        self: Arc<Self>,
        io: TcpStream,
        accepted: Accepted,
        secure: Arc<SecurePort>,
    ) {
        let tls = &secure.tls;
        let recorder = self.fanout.recorder.clone();
        let peer = accepted.peer;
        let limited = tokio::time::timeout(self.config.handshake_timeout, Box::pin(tls.handshake(io)));
        let done = tokio::select! {
            done = limited => done,
            () = accepted.place.handshake.gave_way() => {
                tracing::debug!(%peer, "closed a connection in its TLS handshake to make room for others");
                return recorder.handshake(HandshakeResult::GaveWay);
            }
        };
        let stream = match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                // Load balancer probes connect and disconnect.
                if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
                    tracing::debug!(%peer, %error, "no TLS handshake");
                } else {
                    tls.authentication().log_refusal(peer, &format!("TLS handshake: {error}"));
                }
                return recorder.handshake(HandshakeResult::Failed);
            }
            Err(_) => {
                tracing::debug!(%peer, "no TLS handshake in time");
                return recorder.handshake(HandshakeResult::TimedOut);
            }
        };
        recorder.handshake(HandshakeResult::Completed);
        let certificate = spiffe_ids(stream.get_ref().1.peer_certificates());
        let authentication = tls.authentication().clone();
        let client = TlsClient { authentication, certificate, secure };
        // Boxed: the state is large, and would be moved at each step.
        self.serve(Box::new(stream), accepted, Some(client)).await;
    }
}
