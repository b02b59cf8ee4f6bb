//! Watches: batches of the registrar as responses, filtered by the client's permissions.

use crate::activity::{Activity, OpenStream};
use crate::api::{Api, RESPONSE_BYTES, closed};
use crate::convert;
use crate::failure::Failure;
use crate::identity::Who;
use crate::limits::Limit;
use futures::Stream;
use pilotfish_admission::Permit;
use pilotfish_registration::{Caller, Watch, WatchBatch, WatchEvent, WatchFrom};
use pilotfish_registration_api::v1::{self, error::Code};
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Stream slots of the connection and of the identity.
pub(crate) struct StreamSlots {
    _connection: OpenStream,
    _owner: Permit,
}

/// End of a stream: its maximum age, or the expiry of its client's credentials if that is earlier.
pub(crate) struct StreamEnd {
    at: Instant,
    is_expiry: bool,
}

impl StreamEnd {
    /// Returns the end of a stream that begins now.
    pub(crate) fn new(age: Duration, who: &Who) -> Self {
        let left = who.until.map(|until| until.duration_since(SystemTime::now()).unwrap_or_default());
        let left = left.filter(|left| *left < age);
        Self { at: Instant::now() + left.unwrap_or(age), is_expiry: left.is_some() }
    }

    /// Waits for the end, and returns its reason.
    pub(crate) async fn reached(&self) -> Failure {
        tokio::time::sleep_until(self.at).await;
        if self.is_expiry { expired() } else { too_old() }
    }
}

struct Watching {
    api: Arc<Api>,
    who: Who,
    watch: Watch,
    end: StreamEnd,
    /// Pending responses of one batch.
    ready: VecDeque<v1::WatchResponse>,
    _slots: StreamSlots,
}

impl Api {
    /// Takes the slots of one more stream.
    pub(crate) fn open_stream(&self, who: &Who, activity: &Arc<Activity>) -> Result<StreamSlots, Failure> {
        let connection = activity.open_stream(self.limits.connection_streams).ok_or_else(|| {
            Failure::limit(
                Limit::ConnectionStreams,
                "too many watches and heartbeat streams on this connection",
            )
        })?;
        let owner = self.owner_streams.try_acquire(Arc::clone(&who.identity)).ok_or_else(|| {
            Failure::limit(Limit::OwnerStreams, "too many watches and heartbeat streams of this client")
        })?;
        Ok(StreamSlots { _connection: connection, _owner: owner })
    }

    /// Checks that the client of a stream is still authenticated.
    pub(crate) fn check_stream(&self, who: &Who) -> Result<(), Failure> {
        match self.access.is_current(who) {
            true if who.is_expired(SystemTime::now()) => Err(expired()),
            true => Ok(()),
            false => Err(Failure::new(Code::Unauthenticated, "the token is not valid any more")),
        }
    }

    /// Starts a watch. It holds only its position in the history: a client that is too slow for the history
    /// gets OUT_OF_RANGE.
    pub(crate) fn watch(
        self: &Arc<Self>,
        who: &Who,
        activity: &Arc<Activity>,
        request: &v1::WatchRequest,
    ) -> Result<impl Stream<Item = Result<v1::WatchResponse, Failure>> + Send + use<>, Failure> {
        let filter = self.filter(who, &request.namespace, &request.service)?;
        let slots = self.open_stream(who, activity)?;
        let from = match request.resume_revision {
            Some(revision) => WatchFrom::After { revision, epoch: request.resume_epoch },
            None => WatchFrom::Snapshot,
        };
        let caller = Caller { identity: Arc::clone(&who.identity), may_take_over: false };
        let watch = self.registrar.watch(&caller, filter, from)?;
        let end = StreamEnd::new(self.limits.stream_age, who);
        let watching = Watching {
            api: Arc::clone(self),
            who: who.clone(),
            watch,
            end,
            ready: VecDeque::new(),
            _slots: slots,
        };
        Ok(futures::stream::unfold(Some(watching), |watching| async {
            let mut watching = watching?;
            match watching.next().await {
                Ok(response) => Some((Ok(response), Some(watching))),
                Err(failure) => {
                    watching.api.note(&failure);
                    Some((Err(failure), None))
                }
            }
        }))
    }
}

impl Watching {
    async fn next(&mut self) -> Result<v1::WatchResponse, Failure> {
        if let Some(response) = self.ready.pop_front() {
            return Ok(response);
        }
        let mut closing = self.api.closing.clone();
        let batch = loop {
            tokio::select! {
                biased;
                () = closed(&mut closing) => return Err(shutting_down()),
                ended = self.end.reached() => return Err(ended),
                batch = self.watch.next() => break batch?,
                () = tokio::time::sleep(self.api.bookmark_interval) => {
                    // A stream without changes checks its token here.
                    self.api.check_stream(&self.who)?;
                    if let Some(batch) = self.watch.bookmark() {
                        break batch;
                    }
                }
            }
        };
        self.api.check_stream(&self.who)?;
        self.ready = self.responses(batch);
        self.ready.pop_front().ok_or_else(|| Failure::new(Code::Internal, "a batch has no response"))
    }

    /// Splits a batch into responses of limited size; all but the last are partial. Never empty.
    fn responses(&self, batch: WatchBatch) -> VecDeque<v1::WatchResponse> {
        let WatchBatch { revision, epoch, is_snapshot, is_partial, events } = batch;
        let part =
            |events, partial| v1::WatchResponse { revision, epoch, snapshot: is_snapshot, partial, events };
        let (mut parts, mut full, mut bytes) = (VecDeque::new(), Vec::new(), 0);
        for event in events.iter().filter(|event| self.api.may_read(&self.who, &event.key)) {
            if bytes >= RESPONSE_BYTES {
                parts.push_back(part(std::mem::take(&mut full), true));
                bytes = 0;
            }
            let event = event_of(event);
            bytes += event.encoded_len();
            full.push(event);
        }
        parts.push_back(part(full, is_partial));
        parts
    }
}

fn event_of(event: &WatchEvent) -> v1::WatchEvent {
    let change = match &event.instance {
        Some(view) => v1::watch_event::Change::Updated(convert::record(view)),
        None => v1::watch_event::Change::Removed(convert::key(&event.key)),
    };
    v1::WatchEvent { change: Some(change) }
}

pub(crate) fn shutting_down() -> Failure {
    Failure::new(Code::Unavailable, "Pilotfish is shutting down: connect again")
}

/// The credentials of a client have expired. It may have new ones, so this is no refusal.
fn expired() -> Failure {
    let message = "the token or certificate of the client has expired: connect again with a new one";
    Failure::new(Code::Unavailable, message)
}

fn too_old() -> Failure {
    Failure::new(Code::Unavailable, "the stream is as old as it may become: connect again, and resume")
}
