//! Bare gRPC client stream over HTTP/2: one connection of the h2 crate, messages as bytes.
//!
//! tonic's client keeps a buffer of the size of the largest message for every stream and adds tasks and
//! queues to each connection, which a load client has to avoid.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::{Bytes, BytesMut};
use pilotfish_grpc_framing::{PREFIX, Prefix};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::messages::framed;

/// Window of a stream and of its connection: large, so that a server never waits for the client.
const WINDOW: u32 = 16 << 20;
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Maximum size of a message; a whole world of clusters fits many times.
const LARGEST: usize = 512 << 20;

/// Transport of a stream: TCP, or TLS over it.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// Future of a connection.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Socket>>> + Send + 'a>>;

/// Method to connect to one server.
pub trait Dial: Send + Sync {
    fn dial(&self) -> Dialing<'_>;
}

struct Plain(SocketAddr);

impl Dial for Plain {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async move {
            let socket = tokio::net::TcpStream::connect(self.0).await.context("cannot connect")?;
            socket.set_nodelay(true).context("cannot set TCP_NODELAY")?;
            let socket: Box<dyn Socket> = Box::new(socket);
            Ok(socket)
        })
    }
}

/// Method to connect to a server, and headers of its streams.
#[derive(Clone)]
pub struct Way {
    dial: Arc<dyn Dial>,
    authority: String,
    headers: Vec<(String, String)>,
}

impl Way {
    /// Plain TCP without additional headers.
    #[must_use]
    pub fn plain(target: SocketAddr) -> Self {
        Self { dial: Arc::new(Plain(target)), authority: target.to_string(), headers: Vec::new() }
    }

    /// Other transport to a server of this name, with these headers on each stream.
    #[must_use]
    pub fn new(dial: Arc<dyn Dial>, authority: String, headers: Vec<(String, String)>) -> Self {
        Self { dial, authority, headers }
    }

    /// Connects and opens a stream with its first messages.
    ///
    /// # Errors
    /// If the server cannot be reached in time or refuses.
    pub async fn open(&self, path: &str, first: Vec<Bytes>) -> Result<Connection> {
        let open = async {
            let socket = self.dial.dial().await?;
            let headers: Vec<(&str, &str)> =
                self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            Connection::over(socket, &self.authority, path, &headers, first).await
        };
        tokio::time::timeout(CONNECT_LIMIT, open)
            .await
            .map_err(|_| anyhow!("no answer within {CONNECT_LIMIT:?}"))?
    }
}

/// One stream on its own connection.
pub struct Connection {
    requests: h2::SendStream<Bytes>,
    responses: h2::RecvStream,
    /// Received part of an incomplete message.
    part: BytesMut,
    /// Received bytes that were not taken yet.
    chunk: Bytes,
    /// Maximum size of a message.
    largest: usize,
}

impl Connection {
    /// Connects and opens a stream with its first messages.
    ///
    /// # Errors
    /// If the server cannot be reached in time or refuses.
    pub async fn open(target: SocketAddr, path: &str, first: Vec<Bytes>) -> Result<Self> {
        Self::open_with(target, path, &[], first).await
    }

    /// Variant of [`Self::open`] with additional headers.
    ///
    /// # Errors
    /// If the server cannot be reached in time or refuses.
    pub async fn open_with(
        target: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
        first: Vec<Bytes>,
    ) -> Result<Self> {
        tokio::time::timeout(CONNECT_LIMIT, Self::dial(target, path, headers, first))
            .await
            .map_err(|_| anyhow!("no answer within {CONNECT_LIMIT:?}"))?
    }

    async fn dial(
        target: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
        first: Vec<Bytes>,
    ) -> Result<Self> {
        let socket = tokio::net::TcpStream::connect(target).await.context("cannot connect")?;
        socket.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        Self::over(socket, &target.to_string(), path, headers, first).await
    }

    /// Opens a stream over an established transport such as TLS.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        socket: T,
        authority: &str,
        path: &str,
        headers: &[(&str, &str)],
        first: Vec<Bytes>,
    ) -> Result<Self> {
        let (client, driver) = h2::client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .enable_push(false)
            .handshake::<_, Bytes>(socket)
            .await
            .context("no HTTP/2 on this port")?;
        // Ends with its connection; errors appear on the stream.
        tokio::spawn(async move { drop(driver.await) });
        let mut client = client.ready().await.context("the connection ended at once")?;
        let request = headers
            .iter()
            .fold(http::Request::builder(), |request, (name, value)| request.header(*name, *value))
            .method(http::Method::POST)
            .uri(format!("http://{authority}{path}"))
            .version(http::Version::HTTP_2)
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(())?;
        let (response, mut requests) = client.send_request(request, false).context("cannot open a stream")?;
        for message in first {
            requests.send_data(framed(&message), false).context("cannot send")?;
        }
        let response = response.await.context("the server answered nothing")?;
        grpc_status(response.headers())?;
        if response.status() != http::StatusCode::OK {
            bail!("the server answered HTTP {}", response.status());
        }
        Ok(Self {
            requests,
            responses: response.into_body(),
            part: BytesMut::new(),
            chunk: Bytes::new(),
            largest: LARGEST,
        })
    }

    /// Returns the connection with another maximum size of a message.
    #[must_use]
    pub fn with_largest(self, largest: usize) -> Self {
        Self { largest, ..self }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the stream has ended.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.requests.send_data(framed(message), false).context("cannot send")
    }

    /// Next message; `None` if the server ended the stream without an error. Cancel safe.
    ///
    /// # Errors
    /// If the stream failed, with the server's message.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match self.responses.data().await {
                Some(chunk) => {
                    let chunk = chunk.context("the stream broke")?;
                    let _ = self.responses.flow_control().release_capacity(chunk.len());
                    self.chunk = chunk;
                }
                None => {
                    if let Some(trailers) = self.responses.trailers().await.context("the stream broke")? {
                        grpc_status(&trailers)?;
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// A complete message, if there is one.
    fn take(&mut self) -> Result<Option<Bytes>> {
        if self.part.is_empty() {
            // Fast path: a message within one chunk is passed on without a copy.
            match frame_length(&self.chunk, self.largest)? {
                Some(length) if self.chunk.len() >= length => {
                    return Ok(Some(self.chunk.split_to(length).slice(PREFIX..)));
                }
                length => self.part.reserve(length.unwrap_or(0)),
            }
        }
        self.part.extend_from_slice(&self.chunk);
        self.chunk = Bytes::new();
        match frame_length(&self.part, self.largest)? {
            Some(length) if self.part.len() >= length => {
                // The buffer is moved into the message and freed with it.
                let mut all = std::mem::take(&mut self.part).freeze();
                let message = all.split_to(length).slice(PREFIX..);
                self.chunk = Bytes::copy_from_slice(&all);
                Ok(Some(message))
            }
            Some(length) => {
                self.part.reserve(length - self.part.len());
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

/// Length of the gRPC frame at the beginning of `bytes`, including its prefix.
fn frame_length(bytes: &[u8], largest: usize) -> Result<Option<usize>> {
    let Some(Prefix { is_compressed, length }) = Prefix::read(bytes) else { return Ok(None) };
    if is_compressed || length > largest {
        bail!("a message that is compressed or of {length} bytes");
    }
    Ok(Some(length + PREFIX))
}

fn grpc_status(headers: &http::HeaderMap) -> Result<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "" | "0" => Ok(()),
        code => bail!("grpc-status {code}: {}", text("grpc-message")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length_in_front() {
        assert_eq!(frame_length(&framed(b"abc"), 3).expect("good"), Some(8));
        assert_eq!(frame_length(&[0, 0], 3).expect("too short to tell"), None);
        assert!(frame_length(&[1, 0, 0, 0, 1, 0], 3).is_err());
        assert!(frame_length(&framed(b"abcd"), 3).is_err());
    }
}
