//! One connection: a task that drives HTTP/2 and all of the connection's streams.

use super::ads_stream::{AdsStream, End, PROVE_AGAIN};
use super::grpc::{self, Decoder};
use super::method::{UnaryCall, UnaryMethod};
use super::port::{ConnectionPlace, Port};
use super::services::{self, ADS, CallLimits, Incoming};
use super::throttle::Turn;
use super::tls_listener::TlsClient;
use super::waker::ConnectionWaker;
use super::{Shared, WINDOW};
use crate::error::StreamError;
use crate::limits::{Limit, LimitExceeded, Quota, QuotaGuard};
use crate::protocol::Protocol;
use crate::source::{PeerInfo, ResourceSource};
use bytes::Bytes;
use h2::server::{Connection as H2, SendResponse};
use h2::{PingPong, RecvStream};
use http::{HeaderMap, Method, Request};
use pilotfish_admission::{BURST, KnownStreams, TokenBucket};
use pilotfish_identity::{Authentication, CERTIFICATE, Call, Proof, is_forwarding_header};
use slab::Slab;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::Sleep;

/// Maximum number of rounds in one poll, before the task yields to others.
const ROUNDS: usize = 32;

/// Reason for the early end of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error(transparent)]
    Http(#[from] h2::Error),
    #[error("no answer to a keepalive ping")]
    Keepalive,
    #[error("idle")]
    Idle,
    #[error("closed to make room for others: none of its clients is known")]
    GaveWay,
}

type GaveWay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A client's request for an ADS stream. Its headers, which may hold credentials, are dropped after
/// authentication.
struct StreamRequest {
    protocol: Protocol,
    /// True if a proxy forwarded it.
    is_forwarded: bool,
    requests: RecvStream,
    respond: SendResponse<Bytes>,
}

/// Result of the authentication of a stream's client.
struct Authenticating {
    opened: StreamRequest,
    result: Result<Proof, StreamError>,
    _headers: QuotaGuard,
}

/// Task of one connection: a future that ends with the connection.
pub(super) struct Connection<S: ResourceSource, I> {
    shared: Arc<Shared<S>>,
    h2: H2<I, Bytes>,
    port: Arc<Port>,
    peer: SocketAddr,
    place: ConnectionPlace,
    /// Permit for first requests and first pushes.
    turn: Turn,
    /// Completes when the connection has to make room for others. `None` once one of its clients is known.
    gave_way: Option<GaveWay>,
    /// Time at which its clients have to authenticate again.
    ends: Option<Instant>,
    /// Secure listener: result of the handshake.
    client: Option<TlsClient>,
    /// Streams whose clients are being authenticated.
    pending_auth: JoinSet<Authenticating>,
    /// Quota for the headers of these streams.
    unidentified: Arc<Quota>,
    streams: Slab<AdsStream<S>>,
    known: KnownStreams,
    /// Extra bytes that the connection may send before they are read, beyond the default window.
    window: Option<QuotaGuard>,
    /// Quota for incomplete requests.
    incomplete: Arc<Quota>,
    /// Calls of the services other than ADS, and of methods.
    calls: JoinSet<()>,
    ping: Option<PingPong>,
    next_ping: Instant,
    ping_until: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    /// True if the timer was polled since it was set, so it wakes this task.
    timer_armed: bool,
    idle_since: Option<Instant>,
    draining: bool,
    /// Created by the first poll; the second value is the first as a runtime waker.
    waker: Option<(Arc<ConnectionWaker>, Waker)>,
    task: Option<usize>,
}

impl<S: ResourceSource, I: AsyncRead + AsyncWrite + Unpin> Connection<S, I> {
    pub(super) fn new(
        shared: Arc<Shared<S>>,
        mut h2: H2<I, Bytes>,
        port: Arc<Port>,
        peer: SocketAddr,
        place: ConnectionPlace,
        client: Option<TlsClient>,
        known: KnownStreams,
    ) -> Self {
        let now = Instant::now();
        let age = client.as_ref().map(|_| shared.identity_age(peer));
        let next_ping = now + shared.config.keepalive_interval;
        let (allowed, unidentified_bytes) =
            (shared.config.incomplete_bytes, shared.config.unidentified_bytes);
        Self {
            gave_way: Some(Box::pin(place.handshake.over())),
            place,
            turn: port.throttle.enter(),
            ends: age.map(|age| now + age),
            incomplete: port.incomplete(peer.ip(), allowed),
            ping: h2.ping_pong(),
            shared,
            h2,
            port,
            peer,
            client,
            known,
            window: None,
            pending_auth: JoinSet::new(),
            unidentified: Quota::new(Limit::UnidentifiedBytes, unidentified_bytes),
            // A proxy opens one stream; other clients may open more.
            streams: Slab::with_capacity(1),
            calls: JoinSet::new(),
            next_ping,
            ping_until: None,
            timer: Box::pin(tokio::time::sleep_until(next_ping.into())),
            timer_at: next_ping,
            timer_armed: false,
            idle_since: Some(now),
            draining: false,
            waker: None,
            task: None,
        }
    }

    fn rounds(&mut self, waker: &ConnectionWaker, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        for _ in 0..ROUNDS {
            waker.begin();
            let needs_turn = self.needs_turn();
            if !needs_turn || self.turn.poll_take(cx).is_ready() {
                if needs_turn && self.turn.gives_way(self.shared.fanout.due().is_some(), Instant::now()) {
                    break;
                }
                if let Poll::Ready(end) = self.round(waker, cx) {
                    return Poll::Ready(end);
                }
                if self.is_busy() {
                    continue;
                }
            }
            if waker.end() {
                return Poll::Pending;
            }
        }
        waker.pause();
        Poll::Pending
    }

    /// True if a first response is due on some stream.
    fn needs_turn(&self) -> bool {
        self.streams.iter().any(|(_, stream)| stream.needs_turn())
    }

    /// One round: responses are queued, then the socket is written and read, then requests are handled.
    fn round(&mut self, waker: &ConnectionWaker, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let now = Instant::now();
        self.drain_if_stopping(now);
        let turn = self.turn.is_taken();
        self.each_stream(|stream, shared| stream.push(shared, turn, cx, now));
        // Sending woke the connection, which is polled next anyway. Marks are checked again below.
        waker.begin();
        while let Poll::Ready(accepted) = self.h2.poll_accept(cx) {
            match accepted {
                Some(Ok((request, respond))) => self.open(request, respond, cx, now),
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
                None => return Poll::Ready(Ok(())),
            }
        }
        if !self.pending_auth.is_empty() {
            self.admit_authenticated(cx, now);
        }
        self.each_stream(|stream, shared| {
            stream.receive(shared, turn, now)?;
            stream.push(shared, turn, cx, now)
        });
        self.watch_strangers(cx)?;
        self.watch_time(cx, now)?;
        Poll::Pending
    }

    /// Closes the connection when newer ones need its place, until one of its clients is known: identified
    /// where that is required, and with a node.
    fn watch_strangers(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        let Some(gave_way) = &mut self.gave_way else { return Ok(()) };
        if self.streams.iter().any(|(_, stream)| stream.known.is_some()) {
            self.gave_way = None;
            self.place.handshake.done();
            return Ok(());
        }
        match gave_way.as_mut().poll(cx) {
            Poll::Ready(()) => Err(ConnectionError::GaveWay),
            Poll::Pending => Ok(()),
        }
    }

    /// True if a stream has work for which no wake-up will come.
    fn is_busy(&self) -> bool {
        self.streams
            .iter()
            .any(|(_, stream)| stream.requested || (stream.mark.is_set() && stream.blocked.is_none()))
    }

    /// Calls `act` on every stream; those that end are removed.
    fn each_stream(&mut self, mut act: impl FnMut(&mut AdsStream<S>, &Shared<S>) -> Result<(), End>) {
        let (shared, port) = (&self.shared, &self.port);
        let before = self.streams.len();
        self.streams.retain(|_, stream| match act(stream, shared) {
            Ok(()) => true,
            Err(end) => {
                stream.end(shared, port, end);
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
        let (head, requests) = request.into_parts();
        let is_forwarded = head.headers.keys().any(|name| is_forwarding_header(name.as_str()));
        let opened = StreamRequest { protocol, is_forwarded, requests, respond };
        match &self.client {
            None => self.admit(opened, Proof::default(), cx, now),
            Some(TlsClient { certificate: Ok(proof), .. }) => {
                let proof = proof.clone();
                self.shared.fanout.recorder.authenticated(CERTIFICATE);
                self.admit(opened, proof, cx, now);
            }
            Some(TlsClient { certificate: Err(reason), authentication, .. }) => {
                let (reason, authentication) = (reason.clone(), authentication.clone());
                self.authenticate(opened, &head.headers, reason, authentication);
            }
        }
    }

    /// Starts the authentication of a stream's client, while other streams continue.
    fn authenticate(
        &mut self,
        opened: StreamRequest,
        headers: &HeaderMap,
        reason: String,
        authentication: Arc<Authentication>,
    ) {
        let waiting = self.pending_auth.len() + 1;
        let allowed = Limit::Unidentified.check(waiting, self.shared.config.max_unidentified);
        let headers = match allowed.and_then(|()| Ok(self.unidentified.hold(header_bytes(headers))?)) {
            Ok(taken) => (taken, metadata(headers)),
            Err(error) => return self.refuse(&error.into(), opened.respond),
        };
        let (taken, metadata) = headers;
        let recorder = self.shared.fanout.recorder.clone();
        let call = Call::new(self.peer, metadata);
        self.pending_auth.spawn(async move {
            let result = authentication.run(&reason, &call).await;
            match &result {
                Ok((name, _)) => recorder.authenticated(name),
                Err(error) => authentication.log_refusal(call.address, error),
            }
            let result = result.map(|(_, proof)| proof).map_err(StreamError::from);
            Authenticating { opened, result, _headers: taken }
        });
    }

    fn refuse(&self, refusal: &StreamError, mut respond: SendResponse<Bytes>) {
        self.shared.count(refusal);
        if matches!(refusal, StreamError::ResourceExhausted(_))
            && let Some(left_out) = self.port.limit_log.allow(Instant::now())
        {
            tracing::warn!(peer = %self.peer, error = %refusal, left_out, "a stream is refused");
        }
        // Fails if the client is gone.
        let _ = respond.send_response(grpc::refusal(refusal), true);
    }

    /// Opens or refuses the streams whose authentication is done.
    fn admit_authenticated(&mut self, cx: &mut Context<'_>, now: Instant) {
        while let Poll::Ready(Some(done)) = self.pending_auth.poll_join_next(cx) {
            match done {
                Ok(Authenticating { opened, result: Ok(proof), .. }) => {
                    self.admit(opened, proof, cx, now);
                }
                Ok(Authenticating { opened, result: Err(refusal), .. }) => {
                    self.refuse(&refusal, opened.respond);
                }
                // The request was dropped with the task, which resets its stream.
                Err(error) if error.is_panic() => tracing::error!(%error, "an authenticator panicked"),
                Err(_) => {}
            }
        }
    }

    /// Opens the stream of an authenticated client.
    fn admit(&mut self, opened: StreamRequest, proof: Proof, cx: &Context<'_>, now: Instant) {
        let StreamRequest { protocol, is_forwarded, requests, mut respond } = opened;
        let Proof { identities, cluster, until } = proof;
        if let Some(left) = until.map(|until| until.duration_since(SystemTime::now()).unwrap_or_default())
            && let Some(end) = now.checked_add(left)
        {
            self.ends = Some(self.ends.map_or(end, |known| known.min(end)));
        }
        let by_certificate = matches!(&self.client, Some(TlsClient { certificate: Ok(_), .. }));
        let certificate_expires = until.filter(|_| by_certificate);
        let peer = PeerInfo { address: self.peer, is_forwarded, identities, cluster, certificate_expires };
        let place = match self.port.stream(self.peer.ip(), &peer) {
            Ok(place) => place,
            Err(error) => return self.refuse(&error.into(), respond),
        };
        let Ok(mut responses) = respond.send_response(grpc::head(), false) else { return };
        // Its client is identified, or need not be: a larger window is allowed now, if the listener's budget
        // has room.
        if self.window.is_none() {
            self.window = self.port.window();
            if self.window.is_some() {
                self.h2.set_target_window_size(WINDOW);
            }
        }
        // One byte of capacity is always reserved, so no capacity means that the client's window is full.
        responses.reserve_capacity(1);
        let stream = self.shared.fanout.open(protocol, peer);
        let mark = Arc::clone(stream.lock().mark());
        mark.wake_with(cx.waker().clone());
        self.idle_since = None;
        let rate = self.shared.config.requests_per_second;
        let alone = self.streams.is_empty();
        for (_, other) in &mut self.streams {
            other.alone = false;
            other.mark.set_prompt(false);
        }
        self.streams.insert(AdsStream {
            requests,
            responses,
            decoder: Decoder::new(&self.incomplete),
            stream,
            mark,
            opened: now,
            requested: false,
            large: false,
            blocked: None,
            deadline: None,
            known_streams: self.known.clone(),
            known: None,
            incomplete_since: None,
            while_blocked: 0,
            requests_rate: TokenBucket::per_second(rate, rate.saturating_mul(BURST)),
            alone,
            _place: place,
        });
    }

    fn check(&self, request: &Request<RecvStream>, protocol: Option<Protocol>) -> Result<(), StreamError> {
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        let is_grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        if !is_grpc || request.method() != Method::POST {
            return Err(StreamError::InvalidArgument("this is a gRPC server: POST application/grpc".into()));
        }
        if self.draining {
            return Err(StreamError::Unavailable("this connection ends: use another one".into()));
        }
        if protocol.is_some() && !self.shared.fanout.source().ready() {
            return Err(StreamError::Unavailable(NOT_READY.into()));
        }
        Ok(())
    }

    fn open_other(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let path = request.uri().path();
        if let Some(method) = self.client.as_ref().and_then(|client| client.method(path)) {
            return self.open_method(method, request, respond);
        }
        let path = path.to_owned();
        let place = match self.call_place() {
            Ok(place) => place,
            Err(error) => return self.refuse(&error, respond),
        };
        let Some(answer) = self.shared.services.answer(request, self.call_limits()) else {
            let unknown = StreamError::Unimplemented(format!("no such method: {path}"));
            let _ = respond.send_response(grpc::refusal(&unknown), true);
            return;
        };
        self.calls.spawn(async move {
            let _place = place;
            let (head, body) = answer.await.into_parts();
            let out = respond.send_response(http::Response::from_parts(head, ()), false);
            // Both fail if the client is gone.
            if let Ok(out) = out {
                let _ = services::send(body, out).await;
            }
        });
    }

    /// Starts a call of a method, which authenticates its client.
    fn open_method(
        &mut self,
        method: Arc<dyn UnaryMethod>,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
    ) {
        let Some(client) = &self.client else { return };
        // The trust domain of an identity is a setting of the mesh.
        if !self.shared.fanout.source().ready() {
            return self.refuse(&StreamError::Unavailable(NOT_READY.into()), respond);
        }
        let (certificate, authentication) = (client.certificate.clone(), client.authentication.clone());
        let headers = self.unidentified.hold(header_bytes(request.headers())).map_err(LimitExceeded::from);
        let admitted = headers.map_err(StreamError::from).and_then(|held| Ok((held, self.check_calls()?)));
        let headers = match admitted {
            Ok((headers, ())) => headers,
            Err(error) => return self.refuse(&error, respond),
        };
        let call = Call::new(self.peer, metadata(request.headers()));
        let call = UnaryCall {
            method,
            port: Arc::clone(&self.port),
            peer: self.peer,
            certificate,
            authentication,
            call,
            headers,
            body: Incoming::new(request.into_body(), self.call_limits()),
            bytes: self.shared.config.call_bytes,
            incomplete: Arc::clone(&self.incomplete),
        };
        self.calls.spawn(call.run(respond));
    }

    /// Admits one more call of health or reflection.
    fn call_place(&mut self) -> Result<QuotaGuard, StreamError> {
        self.check_calls()?;
        Ok(self.port.call(self.peer.ip())?)
    }

    /// Checks the number of calls on this connection with one more.
    fn check_calls(&mut self) -> Result<(), StreamError> {
        while self.calls.try_join_next().is_some() {}
        Ok(Limit::Calls.check(self.calls.len() + 1, self.shared.config.max_calls)?)
    }

    fn call_limits(&self) -> CallLimits {
        let config = &self.shared.config;
        let recorder = self.shared.fanout.recorder.clone();
        CallLimits { bytes: config.call_bytes, time: config.request_timeout, recorder }
    }

    fn drain_if_stopping(&mut self, now: Instant) {
        if self.draining {
            return;
        }
        if self.shared.draining.load(Ordering::SeqCst) {
            self.drain("the server is shutting down");
        } else if self.ends.is_some_and(|end| now >= end) {
            self.drain(PROVE_AGAIN);
        }
    }

    fn drain(&mut self, why: &str) {
        self.draining = true;
        self.calls.abort_all();
        self.pending_auth.abort_all();
        self.each_stream(|_, _| Err(StreamError::Unavailable(why.into()).into()));
        self.h2.graceful_shutdown();
    }

    /// Sends keepalive pings, checks timeouts, and sets the timer for the next of them.
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
            .filter(|_| self.calls.is_empty() && self.pending_auth.is_empty())
            .map(|since| since + config.idle_timeout);
        if idle.is_some_and(|until| now >= until) {
            return Err(ConnectionError::Idle);
        }
        let ends = self.ends.filter(|_| !self.draining);
        let streams = self.streams.iter().flat_map(|(_, stream)| {
            [stream.deadline, stream.request_until(config, now), stream.read_at(now)]
        });
        let next = streams.chain([Some(self.next_ping), self.ping_until, idle, ends]).flatten().min();
        let next = next.unwrap_or(self.next_ping).max(now);
        // The timer is set only when it would be late or has fired: most changes of a deadline make it later.
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
        let (connection, waker) = this.waker.take().unwrap_or_else(|| {
            let connection = ConnectionWaker::new(cx.waker().clone());
            (Arc::clone(&connection), Waker::from(connection))
        });
        if this.task.is_none() {
            this.task = Some(this.shared.tasks.lock().insert(cx.waker().clone()));
        }
        let end = this.rounds(&connection, &mut Context::from_waker(&waker));
        this.turn.give();
        this.waker = Some((connection, waker));
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
/// Status message before the first world.
const NOT_READY: &str = "not ready: registries are still being synced";

/// Total length of names and values, each as often as it occurs.
fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Metadata of the request with text values.
fn metadata(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
        .collect()
}
