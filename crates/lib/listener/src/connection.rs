//! One HTTP/1 connection.

use crate::{Limits, OnLimit};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use pilotfish_admission::{Handshake, Permit};
use pilotfish_identity::{Authenticated, Tls, spiffe_ids};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Interval of the idle-time check of a connection.
const LOOK: Duration = Duration::from_secs(1);

/// Security of the connections of a listener.
#[derive(Clone)]
pub enum Security {
    Plain,
    /// TLS with a fixed configuration; certificates of clients are not shown to handlers.
    Tls(TlsAcceptor),
    /// TLS that can be replaced. Handlers get the identity of the client as [`ClientCertificate`].
    Clients(Arc<Tls>),
}

/// Identity of the certificate of a request's client, or the reason that there is none. Only requests over
/// [`Security::Clients`] have it.
#[derive(Clone, Debug)]
pub struct ClientCertificate(pub Authenticated);

/// An accepted connection with its limits.
pub(crate) struct Connection {
    name: &'static str,
    limits: Limits,
    on_limit: OnLimit,
    io: TcpStream,
    peer: SocketAddr,
    activity: Arc<Activity>,
    _address: Permit,
}

/// Idle state of a connection: handling a request, or idle since a point in time.
struct Activity {
    waiting: Handshake,
    since: Mutex<Option<Instant>>,
}

impl Activity {
    fn works(&self) {
        self.waiting.done();
        *self.since.lock() = None;
    }

    fn waits(&self) {
        self.waiting.again();
        *self.since.lock() = Some(Instant::now());
    }

    fn waited(&self) -> Duration {
        self.since.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Connection {
    pub(crate) fn new(
        name: &'static str,
        limits: Limits,
        on_limit: OnLimit,
        io: TcpStream,
        peer: SocketAddr,
        address: Permit,
        waiting: Handshake,
    ) -> Self {
        let activity = Arc::new(Activity { waiting, since: Mutex::new(Some(Instant::now())) });
        Self { name, limits, on_limit, io, peer, activity, _address: address }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(self, security: Security, router: Router, stop: watch::Receiver<bool>) {
        let (name, peer, on_limit) = (self.name, self.peer, Arc::clone(&self.on_limit));
        if let Err(end) = self.serve_until_end(security, router, stop).await {
            if let End::Limit(limit) = end {
                on_limit(limit);
            }
            tracing::debug!(%peer, error = %end, "a connection to {name} ended");
        }
    }

    async fn serve_until_end(
        self,
        security: Security,
        router: Router,
        stop: watch::Receiver<bool>,
    ) -> Result<(), End> {
        let Self { limits, on_limit, io, peer, activity, _address, .. } = self;
        // Otherwise responses wait for delayed ACKs.
        io.set_nodelay(true)?;
        let served = |certificate| Served {
            router,
            peer,
            certificate,
            activity: &activity,
            limits: &limits,
            on_limit: &on_limit,
        };
        match security {
            Security::Plain => served(None).run(io, stop).await,
            Security::Tls(acceptor) => {
                let io = handshake(acceptor.accept(io), &activity, limits.handshake).await?;
                served(None).run(io, stop).await
            }
            Security::Clients(tls) => {
                let io = handshake(tls.handshake(io), &activity, limits.handshake).await?;
                let certificate = ClientCertificate(spiffe_ids(io.get_ref().1.peer_certificates()));
                served(Some(certificate)).run(io, stop).await
            }
        }
    }
}

/// Waits for a handshake, unless it takes too long or gives way to another connection.
async fn handshake<T>(
    handshake: impl Future<Output = io::Result<T>>,
    activity: &Activity,
    limit: Duration,
) -> Result<T, End> {
    tokio::select! {
        handshake = timeout(limit, handshake) => Ok(handshake.map_err(|_| End::Limit("handshake-time"))??),
        () = activity.waiting.gave_way() => Err(End::Limit("idle-connections")),
    }
}

/// Reason for closing a connection.
#[derive(Debug, thiserror::Error)]
enum End {
    /// The limit of this name was exceeded.
    #[error("limit {0}")]
    Limit(&'static str),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Http(hyper::Error),
}

impl From<hyper::Error> for End {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            Self::Limit("head-bytes")
        } else if error.is_timeout() {
            Self::Limit("idle-time")
        } else {
            Self::Http(error)
        }
    }
}

/// Dependencies of one connection's HTTP service.
struct Served<'a> {
    router: Router,
    peer: SocketAddr,
    certificate: Option<ClientCertificate>,
    activity: &'a Arc<Activity>,
    limits: &'a Limits,
    on_limit: &'a OnLimit,
}

impl Served<'_> {
    async fn run<I: AsyncRead + AsyncWrite + Unpin>(
        self,
        io: I,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), End> {
        let Self { router, peer, certificate, activity, limits, on_limit } = self;
        let service = service_fn(|request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(certificate.clone());
            }
            answer(router.clone(), request, Arc::clone(activity), limits.request, Arc::clone(on_limit))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_buf_size(limits.head_bytes)
            .serve_connection(TokioIo::new(io), service);
        let mut connection = pin!(connection);
        let mut look = interval(LOOK);
        loop {
            tokio::select! {
                end = connection.as_mut() => return Ok(end?),
                () = activity.waiting.gave_way() => return Err(End::Limit("idle-connections")),
                _ = stop.wait_for(|stop| *stop) => break,
                _ = look.tick() => if activity.waited() > limits.idle {
                    return Err(End::Limit("idle-time"));
                },
            }
        }
        connection.as_mut().graceful_shutdown();
        Ok(connection.await?)
    }
}

async fn answer(
    router: Router,
    request: Request<Body>,
    activity: Arc<Activity>,
    limit: Duration,
    on_limit: OnLimit,
) -> Result<Response, Infallible> {
    activity.works();
    let response = if has_several_hosts(request.uri(), request.headers()) {
        refuse_hosts()
    } else {
        match timeout(limit, router.oneshot(request)).await {
            Ok(response) => response.unwrap_or_else(|never| match never {}),
            Err(_) => {
                on_limit("request-time");
                (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n").into_response()
            }
        }
    };
    activity.waits();
    Ok(response.map(|body| Body::new(Taken { body, activity })))
}

/// True if who checks the host and who uses it could mean different ones.
fn has_several_hosts(target: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    let is_other = |(own, host): (&Authority, &HeaderValue)| {
        !own.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes())
    };
    second.is_some() || target.authority().zip(host).is_some_and(is_other)
}

/// Returns 400, as RFC 9112, section 3.2 requires for such a request.
fn refuse_hosts() -> Response {
    let mut response = (StatusCode::BAD_REQUEST, "the request has several hosts\n").into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A response body that marks the connection active whenever the client reads a frame. A live event stream
/// thus stays open however long it is, and a client that reads nothing is closed after the idle time.
struct Taken {
    body: Body,
    activity: Arc<Activity>,
}

impl http_body::Body for Taken {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.activity.waits();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
