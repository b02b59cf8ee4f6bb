//! Connections to a server: TCP, or TLS on top.

use crate::places::{Place, Places};
use crate::{Server, TlsError, TlsOptions};
use hyper_util::client::legacy::connect::{Connected, Connection as HttpConnection};
use hyper_util::rt::TokioIo;
use pilotfish_runtime::FileReader;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Timeout of a connection, including the TLS handshake.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server cannot be reached.
    #[error("cannot connect to {server}")]
    Tcp { server: String, source: io::Error },
    /// The TLS handshake failed, mostly because of the certificate of the server or of the client.
    #[error("no TLS with {server}")]
    Handshake { server: String, source: io::Error },
    /// Certificate files or the server name cannot be used for TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No connection within the timeout.
    #[error("{0} did not answer within 5 s")]
    Timeout(String),
    /// The request that needed the connection has ended.
    #[error("a connection to {0} is not needed any more")]
    NotNeeded(String),
}

/// Opens connections to the servers of a product. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Connector {
    tls: Option<Arc<TlsOptions>>,
    files: FileReader,
}

impl Connector {
    /// Plain TCP without options, else TLS.
    #[must_use]
    pub fn new(tls: Option<TlsOptions>) -> Self {
        Self { tls: tls.map(Arc::new), files: FileReader::default() }
    }

    /// True for connections over TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// When there is no connection within 5 s.
    pub async fn connect(&self, server: &Server) -> Result<Connection, ConnectError> {
        let connected = tokio::time::timeout(TIMEOUT, self.connect_soon(server)).await;
        connected.unwrap_or_else(|_| Err(ConnectError::Timeout(server.to_string())))
    }

    async fn connect_soon(&self, server: &Server) -> Result<Connection, ConnectError> {
        let tcp = |source| ConnectError::Tcp { server: server.to_string(), source };
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(tcp)?;
        stream.set_nodelay(true).map_err(tcp)?;
        let Some(tls) = &self.tls else { return Ok(Connection::Plain(stream)) };
        let name = tls.server_name(&server.host)?;
        let (options, handshake) =
            (tls.clone(), |source| ConnectError::Handshake { server: server.to_string(), source });
        let config = self.files.run(move || options.config()).await.map_err(handshake)??;
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(handshake)?;
        Ok(Connection::Tls(Box::new(stream)))
    }
}

/// A connection to a server.
#[derive(Debug)]
pub enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// True if client and server negotiated HTTP/2 with ALPN.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A connection for hyper's client, with the negotiated protocol.
pub(crate) struct HyperConnection {
    io: TokioIo<Connection>,
    /// Released when the connection is closed.
    _place: Option<Place>,
}

impl HttpConnection for HyperConnection {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.io.inner().is_http2() { connected.negotiated_h2() } else { connected }
    }
}

impl hyper::rt::Read for HyperConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for HyperConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<HyperConnection, ConnectError>> + Send>>;

/// Adapter for hyper and tonic, which request connections by URI: only host and port of it are used.
#[derive(Clone)]
pub(crate) struct UriConnector {
    connector: Connector,
    /// `None` for no limit.
    places: Option<Places>,
}

impl UriConnector {
    /// No limit, for a tonic channel, which has one connection.
    pub(crate) const fn new(connector: Connector) -> Self {
        Self { connector, places: None }
    }

    /// At most this number of connections to each server.
    pub(crate) fn with_limit(connector: Connector, connections: usize) -> Self {
        Self { connector, places: Some(Places::new(connections)) }
    }
}

impl tower::Service<http::Uri> for UriConnector {
    type Response = HyperConnection;
    type Error = ConnectError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: http::Uri) -> Connecting {
        let connector = self.connector.clone();
        let default = if connector.is_tls() { 443 } else { 80 };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let server = Server { host, port: uri.port_u16().unwrap_or(default) };
        let place = self.places.as_ref().map(|places| places.take(&server));
        Box::pin(async move {
            let place = match place {
                Some(place) => Some(place.await.ok_or_else(|| ConnectError::NotNeeded(server.to_string()))?),
                None => None,
            };
            Ok(HyperConnection { io: TokioIo::new(connector.connect(&server).await?), _place: place })
        })
    }
}
