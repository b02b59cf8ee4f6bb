//! The secure listener: TLS, and streams only for clients that prove who they are.
//!
//! A connection costs a task and its socket until its handshake is complete; the accept loop waits for none. Only so many handshakes are
//! computed at a time, and a client takes its turn with a complete ClientHello, so that one that says nothing keeps nobody waiting.

use super::authentication::{Authenticated, Authentication, Authenticator, of_certificate};
use super::log_limit::LogLimit;
use super::tls::Tls;
use super::{ServerConfig, ServerError, Shared, listen};
use crate::recorder::Handshake;
use crate::source::{PeerInfo, ResourceSource};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// A listener on which clients prove who they are.
pub struct Secure {
    /// Where.
    pub address: SocketAddr,
    /// The certificate, and the authorities of clients' certificates.
    pub tls: Arc<Tls>,
    /// Who is asked about clients without a certificate, in this order.
    pub authenticators: Vec<Arc<dyn Authenticator>>,
}

/// A secure listener that is bound.
pub(super) struct Door {
    pub(super) listener: TcpListener,
    pub(super) local: SocketAddr,
    pub(super) way: Arc<Way>,
}

/// What its connections have in common.
pub(super) struct Way {
    tls: Arc<Tls>,
    authentication: Arc<Authentication>,
    handshakes: Semaphore,
}

/// What a connection of the secure listener knows of its client.
pub(super) struct Client {
    pub(super) authentication: Arc<Authentication>,
    /// The identities of its certificate.
    pub(super) certificate: Authenticated,
}

impl Door {
    pub(super) fn bind(secure: Secure, config: &ServerConfig) -> Result<Self, ServerError> {
        let Secure { address, tls, authenticators } = secure;
        let (listener, local) =
            listen(address).map_err(|source| ServerError::BindSecure { address, source })?;
        let limit = config.authentication_timeout;
        let way = Way {
            tls,
            authentication: Arc::new(Authentication { authenticators, limit, log: LogLimit::default() }),
            handshakes: Semaphore::new(config.max_handshakes),
        };
        Ok(Self { listener, local, way: Arc::new(way) })
    }
}

impl<S: ResourceSource> Shared<S> {
    /// Serves one connection of the secure listener until it ends.
    pub(super) async fn serve_secure(self: Arc<Self>, io: TcpStream, peer: PeerInfo, way: Arc<Way>) {
        let recorder = self.fanout.recorder.clone();
        let limit = self.config.handshake_timeout;
        let stream = match tokio::time::timeout(limit, way.shake_hands(io)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                // Probes of load balancers connect and leave.
                if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
                    tracing::debug!(peer = peer.address, %error, "no TLS handshake");
                } else {
                    way.authentication.tell(&peer.address, &format!("TLS handshake: {error}"));
                }
                return recorder.handshake(Handshake::Failed);
            }
            Err(_) => {
                tracing::debug!(peer = peer.address, "no TLS handshake in time");
                return recorder.handshake(Handshake::TimedOut);
            }
        };
        recorder.handshake(Handshake::Completed);
        let certificate = of_certificate(stream.get_ref().1.peer_certificates());
        let client = Client { authentication: way.authentication.clone(), certificate };
        self.serve(stream, peer, Some(client)).await;
    }
}

impl Way {
    async fn shake_hands(&self, io: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io).await?;
        let turn = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let stream = hello.into_stream(self.tls.config()).await;
        drop(turn);
        stream
    }
}
