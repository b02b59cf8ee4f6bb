//! One connection: TLS, HTTP/1 or HTTP/2, and its timeouts.

use crate::activity::{Activity, End};
use crate::answer::{Peer, Requests};
use crate::api::closed;
use crate::limits::{Limit, ServerLimits, of_connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use pilotfish_admission::{FrameRates, Handshake, KnownStreams, Metered, network_of};
use pilotfish_identity::{Authenticated, TlsContext, spiffe_ids};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout};

/// Number of the next connection.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Interval of timeout checks.
const LOOK: Duration = Duration::from_secs(1);
/// Read buffer of an HTTP/1 connection, and maximum size of a request head, in bytes.
const HEAD: usize = 32 << 10;

/// Serves one connection until it ends.
pub(crate) async fn serve(
    requests: Arc<Requests>,
    tls: Option<Arc<TlsContext>>,
    io: TcpStream,
    address: SocketAddr,
) {
    // Without it, answers wait for delayed ACKs.
    if let Err(error) = io.set_nodelay(true) {
        tracing::debug!(%address, %error, "connection is gone already");
        return;
    }
    let unused = requests.unused.begin(address.ip());
    let Some(tls) = tls else {
        return serve_http(requests, io, address, Err("there is no TLS".to_owned()), unused).await;
    };
    let limit = requests.api.limits.first_request_timeout;
    let handshake = tokio::select! {
        handshake = timeout(limit, tls.handshake(io)) => handshake,
        () = unused.gave_way() => {
            tracing::debug!(%address, "closing a TLS handshake: too many are open");
            return requests.api.recorder.handshake(false);
        }
    };
    requests.api.recorder.handshake(matches!(handshake, Ok(Ok(_))));
    match handshake {
        Ok(Ok(stream)) => {
            let certificate = spiffe_ids(stream.get_ref().1.peer_certificates());
            serve_http(requests, stream, address, certificate, unused).await;
        }
        // Probes of load balancers connect and disconnect.
        Ok(Err(error))
            if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) =>
        {
            tracing::debug!(%address, %error, "no TLS handshake");
        }
        Ok(Err(error)) => {
            tls.authentication().log_refusal(address, &format!("TLS handshake: {error}"));
        }
        Err(_) => tracing::debug!(%address, "no TLS handshake in time"),
    }
}

async fn serve_http<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    requests: Arc<Requests>,
    io: I,
    address: SocketAddr,
    certificate: Authenticated,
    unused: Handshake,
) {
    let activity = Activity::new(Instant::now());
    let limits = requests.api.limits;
    let recorder = Arc::clone(&requests.api.recorder);
    let budget = of_connection(&requests.budgets.of(network_of(address.ip())), &limits);
    let expires = certificate.as_ref().ok().and_then(|proof| proof.until);
    let expired = move |is_closing: bool| {
        let is_over = !is_closing && expires.is_some_and(|end| end <= SystemTime::now());
        is_over.then_some(End::Expired)
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let peer = Arc::new(Peer { address, certificate, activity: Arc::clone(&activity), budget, number });
    // Held until the first request; after it the connection cannot be displaced.
    let mut unused = Some(unused);
    let mut closing = requests.api.closing.clone();
    let service = hyper::service::service_fn(move |request| {
        let (requests, peer) = (Arc::clone(&requests), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(requests.answer(peer, request).await) }
    });
    let builder = builder(&limits);
    let on_wait = move || recorder.limit_exceeded(Limit::FramesPerSecond.as_str());
    let io = Metered::new(io, frame_rates(&limits), KnownStreams::default(), Box::new(on_wait));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    let mut look = interval(LOOK);
    let mut is_closing = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%address, %error, "connection ended");
                }
                return;
            }
            () = closed(&mut closing), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = gave_way(unused.as_ref()), if unused.is_some() => {
                if activity.is_used() {
                    unused = None;
                } else {
                    tracing::debug!(%address, "closing a connection without a request: too many are open");
                    return;
                }
            }
            _ = look.tick() => match activity.end(Instant::now(), &limits).or_else(|| expired(is_closing)) {
                None if activity.is_used() => unused = None,
                None => {}
                Some(End::Idle | End::Expired) if !is_closing => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                Some(end) => {
                    tracing::debug!(%address, ?end, "connection is closed");
                    return;
                }
            },
        }
    }
}

/// Completes when the connection is displaced by another one.
async fn gave_way(unused: Option<&Handshake>) {
    match unused {
        Some(unused) => unused.gave_way().await,
        None => std::future::pending().await,
    }
}

/// Cost of frames: a request has few of them, and requests and their bytes have their own limits.
fn frame_rates(limits: &ServerLimits) -> FrameRates {
    FrameRates { per_second: limits.frames_per_second, stream: 1, bytes_of_one: 16 << 10 }
}

fn builder(limits: &ServerLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_headers(64)
        .max_buf_size(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .max_concurrent_streams(limits.connection_requests)
        .max_header_list_size(limits.header_bytes)
        .max_send_buf_size(256 << 10)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
    builder
}
