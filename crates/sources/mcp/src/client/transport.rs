//! Bidirectional gRPC stream over HTTP/2: sends and receives messages, and returns the status at the end.

use bytes::{Buf, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{PingPong, RecvStream, SendStream};
use http::{HeaderMap, Method, Request};
use pilotfish_grpc_framing::{PREFIX, Prefix};
use pilotfish_runtime::one_line;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes that the server may send before they are read.
const WINDOW: u32 = 1 << 20;
/// gRPC status of a method that the server does not support.
const UNIMPLEMENTED: u16 = 12;

/// Limits and timeouts of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportSettings {
    /// Maximum size of one message in bytes.
    pub(crate) most_bytes: usize,
    /// Timeout of the HTTP/2 preface and of the response to a ping.
    pub(crate) timeout: Duration,
    /// Interval of HTTP/2 pings; a missing response ends the connection.
    pub(crate) ping: Duration,
}

/// Reason for the end of a stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("{0}")]
    Http(#[from] h2::Error),
    #[error("{what}: no answer within {0:?}", what = "the server is silent")]
    Silent(Duration),
    #[error("the server has no such method")]
    Unimplemented,
    #[error("the server ended the stream{0}")]
    Ended(String),
    #[error("a message has {0} bytes, {1} are read")]
    TooLong(usize, usize),
    #[error("a compressed message, which was not asked for")]
    Compressed,
    #[error("HTTP status {0}")]
    Refused(u16),
}

/// A stream of messages, as described in the module.
pub(crate) struct MessageStream {
    requests: SendStream<Bytes>,
    responses: RecvStream,
    partial: BytesMut,
    settings: TransportSettings,
}

/// Connection of a stream: it has to be polled for as long as the stream lives.
pub(crate) struct Connection<I> {
    connection: h2::client::Connection<I, Bytes>,
    ping: Option<PingPong>,
    settings: TransportSettings,
}

/// Begins HTTP/2 on a connection.
pub(crate) async fn handshake<I: AsyncRead + AsyncWrite + Unpin>(
    io: I,
    settings: TransportSettings,
) -> Result<(SendRequest<Bytes>, Connection<I>), TransportError> {
    let handshake = h2::client::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(64 << 10)
        .enable_push(false)
        .handshake(io);
    let done = tokio::time::timeout(settings.timeout, handshake).await;
    let (requests, mut connection) = done.map_err(|_| TransportError::Silent(settings.timeout))??;
    let ping = connection.ping_pong();
    Ok((requests, Connection { connection, ping, settings }))
}

impl<I: AsyncRead + AsyncWrite + Unpin> Connection<I> {
    /// Drives the connection until it ends, with pings at intervals. Calls `answered` after each response to
    /// a ping.
    pub(crate) async fn run(self, answered: impl Fn()) -> TransportError {
        let Self { connection, ping, settings } = self;
        let alive = async {
            let Some(mut ping) = ping else { return std::future::pending().await };
            loop {
                tokio::time::sleep(settings.ping).await;
                match tokio::time::timeout(settings.timeout, ping.ping(h2::Ping::opaque())).await {
                    Ok(Ok(_)) => answered(),
                    Ok(Err(error)) => return error.into(),
                    Err(_) => return TransportError::Silent(settings.timeout),
                }
            }
        };
        tokio::select! {
            error = alive => error,
            ended = connection => match ended {
                Ok(()) => TransportError::Ended(String::new()),
                Err(error) => error.into(),
            },
        }
    }
}

impl MessageStream {
    /// Calls a method with the first messages, and waits for the headers of the response.
    pub(crate) async fn open(
        requests: SendRequest<Bytes>,
        uri: String,
        first: Vec<Vec<u8>>,
        settings: TransportSettings,
    ) -> Result<Self, TransportError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .header(http::header::TE, "trailers")
            .header(http::header::USER_AGENT, concat!("pilotfish/", env!("CARGO_PKG_VERSION")))
            .body(())
            .map_err(|error| TransportError::Ended(format!(": not an address: {error}")))?;
        let mut requests = requests.ready().await?;
        let (response, mut out) = requests.send_request(request, false)?;
        for message in first {
            send(&mut out, &message).await?;
        }
        let response = response.await?;
        if !response.status().is_success() {
            return Err(TransportError::Refused(response.status().as_u16()));
        }
        if let Some(error) = status(response.headers()) {
            return Err(error);
        }
        Ok(Self { requests: out, responses: response.into_body(), partial: BytesMut::new(), settings })
    }

    pub(crate) async fn send(&mut self, message: &[u8]) -> Result<(), TransportError> {
        send(&mut self.requests, message).await
    }

    pub(crate) async fn send_all(&mut self, messages: &[Vec<u8>]) -> Result<(), TransportError> {
        for message in messages {
            self.send(message).await?;
        }
        Ok(())
    }

    pub(crate) async fn next(&mut self) -> Result<Bytes, TransportError> {
        loop {
            if let Some(message) = self.complete()? {
                return Ok(message);
            }
            match self.responses.data().await {
                Some(chunk) => {
                    let chunk = chunk?;
                    self.responses.flow_control().release_capacity(chunk.len())?;
                    self.partial.extend_from_slice(&chunk);
                }
                None => {
                    let trailers = self.responses.trailers().await?;
                    let ended = || TransportError::Ended(String::new());
                    return Err(trailers.as_ref().and_then(status).unwrap_or_else(ended));
                }
            }
        }
    }

    /// Takes the first message out of the received bytes, if it is complete.
    fn complete(&mut self) -> Result<Option<Bytes>, TransportError> {
        let Some(Prefix { is_compressed, length: len }) = Prefix::read(&self.partial) else {
            return Ok(None);
        };
        if is_compressed {
            return Err(TransportError::Compressed);
        }
        if len > self.settings.most_bytes {
            return Err(TransportError::TooLong(len, self.settings.most_bytes));
        }
        if self.partial.len() - PREFIX < len {
            return Ok(None);
        }
        self.partial.advance(PREFIX);
        let message = self.partial.split_to(len).freeze();
        if self.partial.is_empty() {
            // Frees the buffer of a long message instead of keeping it for the life of the stream.
            self.partial = BytesMut::new();
        }
        Ok(Some(message))
    }
}

async fn send(out: &mut SendStream<Bytes>, message: &[u8]) -> Result<(), TransportError> {
    let mut data = Bytes::from([&Prefix::uncompressed(message.len())[..], message].concat());
    while !data.is_empty() {
        out.reserve_capacity(data.len());
        let room = std::future::poll_fn(|cx| out.poll_capacity(cx)).await;
        let Some(room) = room.transpose()? else { return Err(TransportError::Ended(String::new())) };
        let room = room.min(data.len());
        out.send_data(data.split_to(room), false)?;
    }
    Ok(())
}

/// Status in headers or trailers, if there is one.
fn status(headers: &HeaderMap) -> Option<TransportError> {
    let code: u16 = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    if code == UNIMPLEMENTED {
        return Some(TransportError::Unimplemented);
    }
    let message = headers.get("grpc-message").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let message = one_line(message);
    let message = if message.is_empty() { message } else { format!(", {message}") };
    Some(TransportError::Ended(format!(" with status {code}{message}")))
}
