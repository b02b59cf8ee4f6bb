//! Connections: their limit, protocols and shutdown.

use super::request::serve;
use super::server::Shared;
use super::tick::tick;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Stream limit of Go's HTTP/2 server for one connection.
pub(super) const HTTP2_STREAMS: u32 = 250;
pub(super) const TICK: Duration = Duration::from_millis(20);

pub(super) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((io, peer)) = accepted else { continue };
                connections.spawn(connection(shared.clone(), io, peer.ip()));
            }
            _ = ticks.tick() => tick(&shared),
            Some(_) = connections.join_next() => {}
        }
    }
}

/// [config, `limits.http_max_conns_per_client`] Excess connections are answered with 429; over TLS they are
/// closed.
pub(super) async fn connection(shared: Arc<Shared>, mut io: TcpStream, client: IpAddr) {
    const TEXT: &str = "Your IP is issuing too many concurrent connections, please rate limit your calls\n";
    let Some(_place) = Place::take(&shared, client) else {
        if shared.options.tls.is_none() {
            let length = TEXT.len();
            let head = format!(
                "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{TEXT}"
            );
            // Fails if the client is gone.
            let _ = io.write_all(head.as_bytes()).await;
            let _ = io.shutdown().await;
        }
        return;
    };
    // Fails for a closed socket.
    let _ = io.set_nodelay(true);
    let tls = shared.tls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    match tls {
        None => http1(shared.clone(), io).await,
        Some(tls) => {
            let Ok(io) = tls.accept(io).await else { return };
            if io.get_ref().1.alpn_protocol() == Some(b"h2") {
                http2(shared.clone(), io).await;
            } else {
                http1(shared.clone(), io).await;
            }
        }
    }
}

pub(super) async fn http1(shared: Arc<Shared>, io: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(move |request| serve(shared.clone(), request));
    // Errors are caused by the client, or by an injected fault.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
}

pub(super) async fn http2(shared: Arc<Shared>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(move |request| serve(shared.clone(), request));
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(HTTP2_STREAMS);
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
}

/// An open connection of a client.
pub(super) struct Place {
    pub(super) shared: Arc<Shared>,
    pub(super) client: IpAddr,
}

impl Place {
    pub(super) fn take(shared: &Arc<Shared>, client: IpAddr) -> Option<Self> {
        let mut state = shared.lock();
        let limit = shared.options.connections_per_client;
        let open = state.by_client.entry(client).or_default();
        if *open >= limit {
            state.counts.refused += 1;
            return None;
        }
        *open += 1;
        state.counts.connections += 1;
        state.counts.most_connections = state.counts.most_connections.max(state.counts.connections);
        drop(state);
        Some(Self { shared: shared.clone(), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.counts.connections = state.counts.connections.saturating_sub(1);
        if let Some(open) = state.by_client.get_mut(&self.client) {
            *open = open.saturating_sub(1);
        }
    }
}

/// Counts a blocked query while it waits for a change.
pub(super) struct Blocked(pub(super) Arc<Shared>);

impl Blocked {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.lock().counts.blocked += 1;
        Self(shared.clone())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.counts.blocked = state.counts.blocked.saturating_sub(1);
    }
}

/// Bytes of a response, optionally followed by a broken connection.
#[derive(Default)]
pub(super) struct Content {
    pub(super) bytes: Option<Bytes>,
    pub(super) broken: bool,
    /// True once the bytes before the break were sent.
    pub(super) is_sent: bool,
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            // Sends the earlier bytes first.
            None if self.broken && !self.is_sent => {
                self.is_sent = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            None if self.broken => Poll::Ready(Some(Err(std::io::Error::other("cut")))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && !self.broken
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.bytes.as_ref().map_or(0, Bytes::len);
        if self.broken {
            SizeHint::default()
        } else {
            SizeHint::with_exact(length.try_into().unwrap_or(u64::MAX))
        }
    }
}
