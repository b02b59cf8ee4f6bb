//! One connection: a task that drives HTTP/2 and all of the connection's streams.

use super::Shared;
use super::authentication::{CERTIFICATE, Call};
use super::gate::Gate;
use super::grpc::{self, Decoder};
use super::others::{self, ADS};
use super::secure::Client;
use crate::mark::Mark;
use crate::protocol::Protocol;
use crate::source::{PeerInfo, ResourceSource};
use crate::stream::{Stream, StreamError};
use bytes::Bytes;
use h2::server::{Connection as H2, SendResponse};
use h2::{PingPong, RecvStream, SendStream};
use http::{Method, Request};
use parking_lot::Mutex;
use pilotfish_proto::ResourceType;
use slab::Slab;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::Sleep;

/// Rounds without a pause for other tasks.
const ROUNDS: usize = 32;

/// Why a connection ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error(transparent)]
    Http(#[from] h2::Error),
    #[error("no answer to a keepalive ping")]
    Keepalive,
    #[error("idle")]
    Idle,
}

/// One ADS stream of the connection.
struct AdsStream<S: ResourceSource> {
    requests: RecvStream,
    responses: SendStream<Bytes>,
    decoder: Decoder,
    stream: Arc<Mutex<Stream<S>>>,
    mark: Arc<Mark>,
    opened: Instant,
    /// A request came in, so there may be an answer.
    asked: bool,
    /// The client takes nothing more: since when, and what was sent last.
    blocked: Option<(Instant, ResourceType)>,
    last: ResourceType,
    deadline: Option<Instant>,
    started: bool,
}

/// A stream that a client asked for.
struct Asked {
    protocol: Protocol,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
}

/// See the module.
pub(super) struct Connection<S: ResourceSource, I> {
    shared: Arc<Shared<S>>,
    h2: H2<I, Bytes>,
    peer: PeerInfo,
    /// On the secure listener: what is known of the client.
    client: Option<Client>,
    /// Streams of which nobody knows yet who wants them.
    strangers: JoinSet<(Asked, Result<Vec<String>, StreamError>)>,
    streams: Slab<AdsStream<S>>,
    /// Health and reflection.
    others: JoinSet<()>,
    ping: Option<PingPong>,
    next_ping: Instant,
    ping_until: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    /// The timer knows whom to wake.
    timer_armed: bool,
    idle_since: Option<Instant>,
    draining: bool,
    gate: Option<(Arc<Gate>, Waker)>,
    task: Option<usize>,
}

impl<S: ResourceSource, I: AsyncRead + AsyncWrite + Unpin> Connection<S, I> {
    pub(super) fn new(
        shared: Arc<Shared<S>>,
        mut h2: H2<I, Bytes>,
        peer: PeerInfo,
        client: Option<Client>,
    ) -> Self {
        let now = Instant::now();
        let next_ping = now + shared.config.keepalive_interval;
        Self {
            ping: h2.ping_pong(),
            shared,
            h2,
            peer,
            client,
            strangers: JoinSet::new(),
            streams: Slab::new(),
            others: JoinSet::new(),
            next_ping,
            ping_until: None,
            timer: Box::pin(tokio::time::sleep_until(next_ping.into())),
            timer_at: next_ping,
            timer_armed: false,
            idle_since: Some(now),
            draining: false,
            gate: None,
            task: None,
        }
    }

    fn rounds(&mut self, gate: &Gate, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        for _ in 0..ROUNDS {
            gate.begin();
            if let Poll::Ready(end) = self.round(gate, cx) {
                return Poll::Ready(end);
            }
            if !self.is_busy() && gate.end() {
                return Poll::Pending;
            }
        }
        gate.pause();
        Poll::Pending
    }

    /// One round: what is to be sent is sent, then the socket is written and read, then requests are taken in.
    fn round(&mut self, gate: &Gate, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let now = Instant::now();
        self.drain_if_asked();
        self.each_stream(|stream, shared| stream.push(shared, cx, now));
        // What was sent woke the gate; the connection is polled next anyway. Marks are looked at again below.
        gate.begin();
        while let Poll::Ready(accepted) = self.h2.poll_accept(cx) {
            match accepted {
                Some(Ok((request, respond))) => self.open(request, respond, cx, now),
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
                None => return Poll::Ready(Ok(())),
            }
        }
        if !self.strangers.is_empty() {
            self.meet_strangers(cx, now);
        }
        self.each_stream(|stream, shared| {
            stream.receive(shared, now)?;
            stream.push(shared, cx, now)
        });
        self.watch_time(cx, now)?;
        Poll::Pending
    }

    /// Whether some stream has something to do that no wake-up will tell of.
    fn is_busy(&self) -> bool {
        self.streams
            .iter()
            .any(|(_, stream)| stream.asked || (stream.mark.is_set() && stream.blocked.is_none()))
    }

    /// Lets every stream do something; those that end are removed.
    fn each_stream(&mut self, mut act: impl FnMut(&mut AdsStream<S>, &Shared<S>) -> Result<(), End>) {
        let shared = &self.shared;
        let before = self.streams.len();
        self.streams.retain(|_, stream| match act(stream, shared) {
            Ok(()) => true,
            Err(end) => {
                stream.end(shared, end);
                false
            }
        });
        if before > 0 && self.streams.is_empty() {
            self.idle_since = Some(Instant::now());
        }
    }

    fn open(
        &mut self,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        cx: &Context<'_>,
        now: Instant,
    ) {
        let protocol = match request.uri().path().strip_prefix('/').and_then(|path| path.split_once('/')) {
            Some((ADS, "DeltaAggregatedResources")) => Some(Protocol::Delta),
            Some((ADS, "StreamAggregatedResources")) => Some(Protocol::Sotw),
            _ => None,
        };
        if let Err(refusal) = self.check(&request, protocol) {
            self.refuse(&refusal, respond);
            return;
        }
        let Some(protocol) = protocol else { return self.open_other(request, respond) };
        let asked = Asked { protocol, request, respond };
        match &self.client {
            None => self.admit(asked, Vec::new(), cx, now),
            Some(Client { certificate: Ok(identities), .. }) => {
                let identities = identities.clone();
                self.shared.fanout.recorder.authenticated(CERTIFICATE);
                self.admit(asked, identities, cx, now);
            }
            Some(Client { certificate: Err(why), authentication }) => {
                let (why, authentication) = (why.clone(), authentication.clone());
                let recorder = self.shared.fanout.recorder.clone();
                let call = Call::new(self.peer.address.clone(), metadata(&asked.request));
                self.strangers.spawn(async move {
                    let who = authentication.run(&why, &call).await;
                    match &who {
                        Ok((name, _)) => recorder.authenticated(name),
                        Err(error) => authentication.tell(&call.address, error),
                    }
                    (asked, who.map(|(_, identities)| identities))
                });
            }
        }
    }

    fn refuse(&self, refusal: &StreamError, mut respond: SendResponse<Bytes>) {
        self.shared.fanout.recorder.stream_error(refusal.code_name());
        // The client may be gone already; then nobody wants to know.
        let _ = respond.send_response(grpc::refusal(refusal), true);
    }

    /// Takes in those of whom it is known by now who they are.
    fn meet_strangers(&mut self, cx: &mut Context<'_>, now: Instant) {
        while let Poll::Ready(Some(met)) = self.strangers.poll_join_next(cx) {
            match met {
                Ok((asked, Ok(identities))) => self.admit(asked, identities, cx, now),
                Ok((asked, Err(refusal))) => self.refuse(&refusal, asked.respond),
                // Its stream is reset, as nobody holds it any more.
                Err(error) if error.is_panic() => tracing::error!(%error, "an authenticator broke down"),
                Err(_) => {}
            }
        }
    }

    /// Opens the stream of a client with these identities.
    fn admit(&mut self, asked: Asked, identities: Vec<String>, cx: &Context<'_>, now: Instant) {
        let Asked { protocol, request, mut respond } = asked;
        let Ok(mut responses) = respond.send_response(grpc::head(), false) else { return };
        // One byte of capacity is always asked for: without any, the client takes nothing more.
        responses.reserve_capacity(1);
        let mut metadata = metadata(&request);
        // It has been looked at, or nobody needs it.
        metadata.retain(|(name, _)| name != http::header::AUTHORIZATION.as_str());
        let peer = PeerInfo { metadata, identities, ..self.peer.clone() };
        let stream = self.shared.fanout.open(protocol, peer);
        let mark = Arc::clone(stream.lock().mark());
        mark.wake_with(cx.waker().clone());
        self.idle_since = None;
        self.streams.insert(AdsStream {
            requests: request.into_body(),
            responses,
            decoder: Decoder::default(),
            stream,
            mark,
            opened: now,
            asked: false,
            blocked: None,
            last: ResourceType::Cluster,
            deadline: None,
            started: false,
        });
    }

    fn check(&self, request: &Request<RecvStream>, protocol: Option<Protocol>) -> Result<(), StreamError> {
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        let is_grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        if !is_grpc || request.method() != Method::POST {
            return Err(StreamError::InvalidArgument("this is a gRPC server: POST application/grpc".into()));
        }
        if self.draining {
            return Err(StreamError::Unavailable("the server is shutting down".into()));
        }
        if protocol.is_some() && !self.shared.fanout.source().ready() {
            return Err(StreamError::Unavailable("not ready: registries are still being synced".into()));
        }
        Ok(())
    }

    fn open_other(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        while self.others.try_join_next().is_some() {}
        let path = request.uri().path().to_owned();
        let Some(answer) = self.shared.others.answer(request) else {
            let unknown = StreamError::Unimplemented(format!("no such method: {path}"));
            let _ = respond.send_response(grpc::refusal(&unknown), true);
            return;
        };
        self.others.spawn(async move {
            let (head, body) = answer.await.into_parts();
            let out = respond.send_response(http::Response::from_parts(head, ()), false);
            // A client that hung up is told nothing.
            if let Ok(out) = out {
                let _ = others::send(body, out).await;
            }
        });
    }

    fn drain_if_asked(&mut self) {
        if self.draining || !self.shared.draining.load(Ordering::SeqCst) {
            return;
        }
        self.draining = true;
        self.others.abort_all();
        self.strangers.abort_all();
        self.each_stream(|_, _| Err(StreamError::Unavailable("the server is shutting down".into()).into()));
        self.h2.graceful_shutdown();
    }

    /// Pings, timeouts and the timer for the next of them.
    fn watch_time(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<(), ConnectionError> {
        let config = &self.shared.config;
        if let (Some(ping), Some(until)) = (&mut self.ping, self.ping_until) {
            match ping.poll_pong(cx) {
                Poll::Ready(pong) => {
                    pong?;
                    self.ping_until = None;
                }
                Poll::Pending if now >= until => return Err(ConnectionError::Keepalive),
                Poll::Pending => {}
            }
        }
        if let (Some(ping), true) = (&mut self.ping, self.ping_until.is_none() && now >= self.next_ping) {
            ping.send_ping(h2::Ping::opaque())?;
            self.ping_until = Some(now + config.keepalive_timeout);
            self.next_ping = now + config.keepalive_interval;
        }
        let idle = self
            .idle_since
            .filter(|_| self.others.is_empty() && self.strangers.is_empty())
            .map(|since| since + config.idle_timeout);
        if idle.is_some_and(|until| now >= until) {
            return Err(ConnectionError::Idle);
        }
        let first = config.first_request_timeout;
        let streams = self
            .streams
            .iter()
            .flat_map(|(_, stream)| [stream.deadline, (!stream.started).then(|| stream.opened + first)]);
        let next = streams.chain([Some(self.next_ping), self.ping_until, idle]).flatten().min();
        let next = next.unwrap_or(self.next_ping).max(now);
        // The timer is only set anew when it would be late, or has fired.
        if next < self.timer_at || now >= self.timer_at {
            self.timer_at = next;
            self.timer.as_mut().reset(next.into());
            self.timer_armed = false;
        }
        if !std::mem::replace(&mut self.timer_armed, true) && self.timer.as_mut().poll(cx).is_ready() {
            self.timer_armed = false;
            cx.waker().wake_by_ref();
        }
        Ok(())
    }
}

impl<S: ResourceSource, I: AsyncRead + AsyncWrite + Unpin> Future for Connection<S, I> {
    type Output = Result<(), ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (gate, waker) = this.gate.take().unwrap_or_else(|| {
            let gate = Gate::new(cx.waker().clone());
            (Arc::clone(&gate), Waker::from(gate))
        });
        if this.task.is_none() {
            this.task = Some(this.shared.tasks.lock().insert(cx.waker().clone()));
        }
        let end = this.rounds(&gate, &mut Context::from_waker(&waker));
        this.gate = Some((gate, waker));
        end
    }
}

impl<S: ResourceSource, I> Drop for Connection<S, I> {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            self.shared.tasks.lock().try_remove(task);
        }
    }
}

/// Why a stream ends.
enum End {
    /// The client said so.
    Client,
    /// The client or its connection is gone.
    Gone,
    /// With that status.
    Status(StreamError),
}

impl From<StreamError> for End {
    fn from(error: StreamError) -> Self {
        Self::Status(error)
    }
}

impl<S: ResourceSource> AdsStream<S> {
    /// Sends what there is to send and the client takes.
    fn push(&mut self, shared: &Shared<S>, cx: &mut Context<'_>, now: Instant) -> Result<(), End> {
        let due = self.deadline.is_some_and(|deadline| now >= deadline);
        if !(self.asked || due || self.blocked.is_some() || self.mark.is_set()) {
            return Ok(());
        }
        self.asked = false;
        let mut stream = self.stream.lock();
        loop {
            if !has_room(&mut self.responses, cx)? {
                self.blocked.get_or_insert((now, self.last));
                break;
            }
            if let Some((since, ty)) = self.blocked.take() {
                shared.fanout.recorder.send_time(ty, now.saturating_duration_since(since));
            }
            let Some(response) = stream.poll_response(now) else { break };
            self.last = response.ty;
            self.responses.send_data(response.head, false).map_err(|_| End::Gone)?;
            if !response.tail.is_empty() {
                self.responses.send_data(response.tail, false).map_err(|_| End::Gone)?;
            }
            if !stream.has_pending() {
                stream.finish(now);
                break;
            }
        }
        self.deadline = stream.deadline();
        Ok(())
    }

    /// Takes in the requests that have arrived. Data arrives only while the connection is polled, which is in the same
    /// task, so no waker is needed.
    fn receive(&mut self, shared: &Shared<S>, now: Instant) -> Result<(), End> {
        while let Poll::Ready(data) = self.requests.poll_data(&mut Context::from_waker(Waker::noop())) {
            let data = data.ok_or(End::Client)?.map_err(|_| End::Gone)?;
            self.requests.flow_control().release_capacity(data.len()).map_err(|_| End::Gone)?;
            let mut stream = self.stream.lock();
            let mut pending = false;
            let mut each = |message: &[u8]| {
                pending |= stream.on_message(message, now)?;
                Ok(())
            };
            self.decoder.push(data, shared.config.max_message, &mut each)?;
            self.started |= stream.id().is_some();
            self.asked |= pending;
            self.deadline = stream.deadline();
        }
        if !self.started && now >= self.opened + shared.config.first_request_timeout {
            return Err(StreamError::DeadlineExceeded("no request came in time".into()).into());
        }
        Ok(())
    }

    fn end(&mut self, shared: &Shared<S>, end: End) {
        let trailers = match end {
            End::Gone => return,
            End::Client => grpc::status(0, ""),
            End::Status(error) => {
                shared.fanout.recorder.stream_error(error.code_name());
                let stream = self.stream.lock();
                tracing::info!(connection = stream.id(), code = error.code_name(), %error, "stream ended");
                grpc::status(error.code(), &error.to_string())
            }
        };
        // A client that hung up is told nothing.
        let _ = self.responses.send_trailers(trailers);
    }
}

/// The request's metadata that is text.
fn metadata(request: &Request<RecvStream>) -> Vec<(String, String)> {
    let headers = request.headers().iter();
    headers
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
        .collect()
}

/// Whether the client took enough of what it was sent to be sent more.
fn has_room(responses: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Result<bool, End> {
    responses.reserve_capacity(1);
    while responses.capacity() == 0 {
        match responses.poll_capacity(cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => return Err(End::Gone),
        }
    }
    Ok(true)
}
