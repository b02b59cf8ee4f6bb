//! One ADS stream of a connection: sends responses as the client's window has room, and reads requests at a
//! limited rate.

use super::grpc::{self, Decoder};
use super::large::{LARGE, beside_workers};
use super::port::Port;
use super::{ServerConfig, Shared};
use crate::error::StreamError;
use crate::limits::{Limit, QuotaGuard};
use crate::mark::Mark;
use crate::source::ResourceSource;
use crate::stream::Stream;
use bytes::Bytes;
use h2::{RecvStream, SendStream};
use parking_lot::Mutex;
use pilotfish_admission::{KnownStream, KnownStreams, TokenBucket};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tonic::Code;

/// Status message of a stream whose authentication has expired.
pub(super) const PROVE_AGAIN: &str =
    "the client's authentication has expired: reconnect to authenticate again";

pub(super) struct AdsStream<S: ResourceSource> {
    pub(super) requests: RecvStream,
    pub(super) responses: SendStream<Bytes>,
    pub(super) decoder: Decoder,
    pub(super) stream: Arc<Mutex<Stream<S>>>,
    pub(super) mark: Arc<Mark>,
    pub(super) opened: Instant,
    /// True if a request was received, so there may be a response.
    pub(super) requested: bool,
    /// True if that request was large and has not been answered.
    pub(super) large: bool,
    /// Time at which the client's window became full.
    pub(super) blocked: Option<Instant>,
    pub(super) deadline: Option<Instant>,
    /// Known streams of the connection.
    pub(super) known_streams: KnownStreams,
    /// Set once the client has been accepted.
    pub(super) known: Option<KnownStream>,
    /// Time at which an incomplete request began.
    pub(super) incomplete_since: Option<Instant>,
    /// Number of requests since the client's window became full.
    pub(super) while_blocked: usize,
    pub(super) requests_rate: TokenBucket,
    /// True if the connection has had no other stream. Only then is the stream marked as prompt: otherwise a
    /// stream could wait for another's first push, and first pushes for it.
    pub(super) alone: bool,
    pub(super) _place: QuotaGuard,
}

/// Reason for the end of a stream.
pub(super) enum End {
    /// The client closed its side.
    Client,
    /// The client closed the connection or reset the stream.
    Gone,
    /// The server ends the stream with that status.
    Status(StreamError),
}

impl From<StreamError> for End {
    fn from(error: StreamError) -> Self {
        Self::Status(error)
    }
}

impl<S: ResourceSource> AdsStream<S> {
    /// True if a first response is due, of the stream or of a type.
    pub(super) fn needs_turn(&self) -> bool {
        self.known.is_none() || self.stream.lock().has_first()
    }

    /// Sends responses while there are any and the client's window has room. First responses need a `turn`.
    pub(super) fn push(
        &mut self,
        shared: &Shared<S>,
        turn: bool,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Result<(), End> {
        if self.mark.is_revoked() {
            return Err(StreamError::Unavailable(PROVE_AGAIN.into()).into());
        }
        let due = self.deadline.is_some_and(|deadline| now >= deadline);
        if !(self.requested || due || self.blocked.is_some() || self.mark.is_set()) {
            return Ok(());
        }
        let mut stream = self.stream.lock();
        if !turn && stream.has_first() {
            self.requested = true;
            return Ok(());
        }
        self.requested = false;
        loop {
            if !has_room(&mut self.responses, cx)? {
                self.blocked.get_or_insert(now);
                self.mark.set_prompt(false);
                break;
            }
            let waited = self.blocked.take().map(|since| now.saturating_duration_since(since));
            let began = Instant::now();
            let Some(response) = beside_workers(self.large, || stream.poll_response(began)) else { break };
            let made = Instant::now();
            let ty = response.ty;
            self.responses.send_data(response.head, false).map_err(|_| End::Gone)?;
            for chunk in response.tail {
                self.responses.send_data(chunk, false).map_err(|_| End::Gone)?;
            }
            let sent = Instant::now();
            if let Some(ty) = ty {
                let recorder = &shared.fanout.recorder;
                recorder.push_time(ty, sent.saturating_duration_since(began));
                recorder.send_time(ty, sent.saturating_duration_since(made) + waited.unwrap_or_default());
            }
            if !stream.has_pending() {
                stream.finish(sent);
                break;
            }
        }
        if self.blocked.is_none() {
            self.mark.set_prompt(self.alone && !stream.has_first());
        }
        self.large &= self.blocked.is_some();
        self.deadline = stream.deadline();
        Ok(())
    }

    /// Handles the requests that have arrived. Data arrives only while the connection is polled, which
    /// happens in the same task, so no waker is needed. The first request needs a `turn`.
    pub(super) fn receive(&mut self, shared: &Shared<S>, turn: bool, now: Instant) -> Result<(), End> {
        let (config, limits) = (&shared.config, &shared.fanout.limits);
        if !turn && self.known.is_none() {
            self.requested = true;
            return Ok(());
        }
        if self.blocked.is_none() {
            self.while_blocked = 0;
        }
        // Requests of a client that does not read responses are not read beyond that limit, since their
        // responses would pile up.
        while self.while_blocked <= limits.blocked_requests
            && self.requests_rate.is_ready(now.into())
            && let Poll::Ready(data) = self.requests.poll_data(&mut Context::from_waker(Waker::noop()))
        {
            let data = data.ok_or(End::Client)?.map_err(|_| End::Gone)?;
            self.requests.flow_control().release_capacity(data.len()).map_err(|_| End::Gone)?;
            let mut stream = self.stream.lock();
            let (mut pending, mut count) = (false, 0);
            let mut each = |message: &[u8]| {
                count += 1;
                pending |= stream.on_message(message, now)?;
                Ok(())
            };
            let length = self.decoder.incomplete().map_or(0, <[u8]>::len) + data.len();
            self.large |= length > LARGE;
            beside_workers(length > LARGE, || self.decoder.push(data, config.max_message, &mut each))?;
            match self.decoder.incomplete() {
                None => self.incomplete_since = None,
                Some(beginning) => {
                    stream.on_beginning(beginning, config.first_bytes)?;
                    if count > 0 || self.incomplete_since.is_none() {
                        self.incomplete_since = Some(now);
                    }
                }
            }
            self.requests_rate.take_many(stream.take_cost(), now.into());
            if !self.requests_rate.is_ready(now.into()) {
                shared.fanout.recorder.limit_exceeded(Limit::RequestsPerSecond);
            }
            self.while_blocked += if self.blocked.is_some() { count } else { 0 };
            if self.known.is_none() && stream.id().is_some() {
                self.known = Some(self.known_streams.enter());
            }
            self.requested |= pending;
            self.deadline = stream.deadline();
        }
        if self.request_until(config, now).is_some_and(|until| now >= until) {
            return Err(StreamError::DeadlineExceeded("no request came in time".into()).into());
        }
        Ok(())
    }

    /// Deadline for an outstanding request.
    pub(super) fn request_until(&self, config: &ServerConfig, now: Instant) -> Option<Instant> {
        let first = self.known.is_none().then(|| self.opened + config.first_request_timeout);
        // A blocked client is not read from, so the server cannot see an incomplete request.
        let is_read = self.blocked.is_none();
        // A stream that waits for its request rate is not late either.
        let is_read = is_read && self.read_at(now).is_none();
        let next = self.incomplete_since.filter(|_| is_read).map(|since| since + config.request_timeout);
        [first, next].into_iter().flatten().min()
    }

    /// End of the wait for the request rate; `None` if the stream is read.
    pub(super) fn read_at(&self, now: Instant) -> Option<Instant> {
        self.requests_rate.ready_at().map(Instant::from).filter(|at| *at > now)
    }

    pub(super) fn end(&mut self, shared: &Shared<S>, port: &Port, end: End) {
        let trailers = match end {
            End::Gone => return,
            End::Client => grpc::status(Code::Ok, ""),
            End::Status(error) => {
                shared.count(&error);
                let is_limit = matches!(error, StreamError::ResourceExhausted(_));
                let log = if is_limit { &port.limit_log } else { &port.log };
                if let Some(left_out) = log.allow(Instant::now()) {
                    let stream = self.stream.lock();
                    let (connection, code) = (stream.shown_id(), error.code_name());
                    // Warning: for example a client without an identity needs an operator's attention.
                    if matches!(error, StreamError::Unauthenticated(_) | StreamError::PermissionDenied(_)) {
                        tracing::warn!(connection, code, %error, left_out, "a stream is refused");
                    } else {
                        tracing::info!(connection, code, %error, left_out, "stream ended");
                    }
                }
                grpc::status(error.code(), &error.to_string())
            }
        };
        // Fails if the client is gone.
        let _ = self.responses.send_trailers(trailers);
    }
}

/// True if the client's HTTP/2 window has room for more.
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
