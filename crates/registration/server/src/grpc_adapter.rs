//! gRPC calls of another product's protocol. Their tokens are in their messages, so an adapter reads a
//! message first and authenticates its client then.

use crate::adapter::AdapterClient;
use crate::answer::{Peer, Requests};
use crate::api::{closed, in_time};
use crate::body::{LimitedBody, Part};
use crate::failure::Failure;
use crate::identity::Who;
use crate::json::Outcome;
use crate::limits::{Limit, QuotaGuard};
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use pilotfish_registration_api::v1::error::Code;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tonic::body::Body;

/// The gRPC services of a protocol.
pub trait GrpcAdapter: Send + Sync {
    /// True for a method with a stream of requests.
    fn is_stream(&self, path: &str) -> bool;

    /// Answers a call. The size of each message and the time of its arrival are limited.
    fn call(
        &self,
        connection: AdapterConnection,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
}

/// The connection of a call.
#[derive(Clone)]
pub struct AdapterConnection {
    requests: Arc<Requests>,
    peer: Arc<Peer>,
    headers: Arc<HeaderMap>,
}

impl AdapterConnection {
    /// Number of the connection, unique in this process.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.peer.number
    }

    /// Authenticates the client of a message by its token, or without one by its certificate, and counts the
    /// message against its rate.
    ///
    /// # Errors
    /// When the client proves no identity where it must, or sends too much.
    pub async fn authenticate(&self, token: Option<&str>) -> Result<AdapterClient, Failure> {
        let who = self.requests.identify_by(&self.peer, &self.headers, token).await?;
        self.requests.api.take_rate(&who)?;
        Ok(AdapterClient { api: Arc::clone(&self.requests.api), who })
    }

    /// Counts a message that needs no identity against the rate of its address.
    ///
    /// # Errors
    /// When the address sends too much.
    pub fn count(&self) -> Result<(), Failure> {
        self.requests.api.take_rate(&Who::anonymous(self.peer.address.ip()))
    }

    /// Fails if an answer takes too long.
    ///
    /// # Errors
    /// Those of the answer, and the timeout.
    pub async fn in_time<R>(&self, answer: impl Future<Output = Result<R, Failure>>) -> Result<R, Failure> {
        in_time(self.requests.api.limits.request_timeout, answer).await
    }

    /// True once the server shuts down.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        *self.requests.api.closing.borrow()
    }

    /// Waits until the server begins to shut down.
    pub async fn closed(&self) {
        closed(&mut self.requests.api.closing.clone()).await;
    }

    /// Records a failure that a message carries, and not the response.
    pub fn note(&self, failure: &Failure) {
        self.requests.api.note(failure);
    }
}

impl Requests {
    /// Answers a gRPC call by the protocol of the adapter.
    pub(crate) async fn adapted_grpc(
        self: &Arc<Self>,
        adapter: &dyn GrpcAdapter,
        peer: &Arc<Peer>,
        parts: Parts,
        body: Incoming,
    ) -> Response<Body> {
        let limits = &self.api.limits;
        let is_stream = adapter.is_stream(parts.uri.path());
        let slot = if is_stream {
            let Some(slot) = peer.activity.open_stream(limits.connection_streams) else {
                let failure = Failure::limit(Limit::ConnectionStreams, "too many streams on this connection");
                return failure.to_status().into_http();
            };
            Some(slot)
        } else {
            None
        };
        let held = Arc::new(QuotaGuard::empty(&peer.budget));
        let part = if is_stream { Part::Message } else { Part::Single };
        let (bytes, time) = (limits.request_bytes, limits.request_timeout);
        let body = LimitedBody::new(body, part, bytes, time, Arc::clone(&held));
        let body = Body::new(body.map_err(|failure| failure.to_status()));
        let headers = Arc::new(parts.headers.clone());
        let connection = AdapterConnection { requests: Arc::clone(self), peer: Arc::clone(peer), headers };
        let mut response = adapter.call(connection, Request::from_parts(parts, body)).await;
        drop(held);
        if response.extensions().get::<Outcome>().is_none() {
            let status = tonic::Status::from_header_map(response.headers());
            let code = status.map(|status| Code::try_from(i32::from(status.code())).unwrap_or(Code::Unknown));
            response.extensions_mut().insert(Outcome(code.unwrap_or(Code::Ok)));
        }
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _open = &slot;
                frame
            }))
        })
    }
}
