//! Requests of the protocols of other products, by their adapters.

use crate::adapter::{Adapter, Credentials};
use crate::adapter_client::AdapterClient;
use crate::answer::{Peer, Requests};
use crate::api::in_time;
use crate::body::{LimitedBody, Part};
use crate::failure::{Failure, Outcome};
use crate::grpc_adapter::{AdapterConnection, Authenticate, GrpcAdapter};
use crate::identity::Who;
use crate::limits::{Limit, QuotaGuard};
use crate::recorder::Protocol;
use crate::{json, origin};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use pilotfish_registration_api::v1::error::Code;
use std::sync::Arc;
use tonic::body::Body;

impl Requests {
    /// Answers a request by the protocol of the adapter. Errors are text, unless the protocol has its own.
    pub(crate) async fn adapted(
        &self,
        adapter: &dyn Adapter,
        peer: &Peer,
        parts: &Parts,
        body: Incoming,
    ) -> Response<Body> {
        match self.try_adapted(adapter, peer, parts, body).await {
            Ok(mut response) => {
                response.extensions_mut().insert(Outcome(Code::Ok));
                response
            }
            Err(failure) => {
                let mut response = json::failure(&failure);
                if let Some(own) = adapter.refuse(parts, &failure) {
                    let (own, body) = own.into_parts();
                    *response.status_mut() = own.status;
                    response.headers_mut().remove(WWW_AUTHENTICATE);
                    response.headers_mut().extend(own.headers);
                    *response.body_mut() = Body::new(body);
                    return response;
                }
                *response.body_mut() = Body::new(Full::new(Bytes::from(failure.message)));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
                if adapter.protocol() == Protocol::Eureka && headers.contains_key(WWW_AUTHENTICATE) {
                    let basic = HeaderValue::from_static("Basic realm=\"pilotfish\"");
                    headers.insert(WWW_AUTHENTICATE, basic);
                }
                response
            }
        }
    }

    async fn try_adapted(
        &self,
        adapter: &dyn Adapter,
        peer: &Peer,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Failure> {
        origin::check(parts, self.is_loopback)?;
        let limits = &self.api.limits;
        let held = Arc::new(QuotaGuard::empty(&peer.budget));
        let (bytes, time) = (limits.request_bytes, limits.request_timeout);
        let body = LimitedBody::new(body, Part::Whole, bytes, time, Arc::clone(&held));
        let read = async || Ok::<_, Failure>(body.collect().await?.to_bytes());
        let (who, body) = match adapter.credentials(parts, None) {
            // A certificate identifies the client whatever the body says.
            Credentials::InBody if peer.certificate.is_err() => {
                // Before it is read, only the address is known.
                let address = Who::anonymous(peer.address.ip());
                self.api.take_rate(&address)?;
                let body = read().await?;
                let credentials = adapter.credentials(parts, Some(&body));
                let who = self.identify_with(peer, &parts.headers, credentials).await?;
                if who.identity != address.identity {
                    self.api.take_rate(&who)?;
                }
                (who, body)
            }
            credentials => {
                let who = self.identify_with(peer, &parts.headers, credentials).await?;
                self.api.take_rate(&who)?;
                (who, read().await?)
            }
        };
        let client = AdapterClient { api: Arc::clone(&self.api), who };
        let time = limits.request_timeout + adapter.wait(parts);
        let answer = in_time(time, adapter.answer(client, parts, body)).await;
        drop(held);
        Ok(answer?.map(Body::new))
    }

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
        let clients =
            Clients { requests: Arc::clone(self), peer: Arc::clone(peer), headers: parts.headers.clone() };
        let connection = AdapterConnection {
            api: Arc::clone(&self.api),
            address: peer.address.ip(),
            number: peer.number,
            clients: Arc::new(clients),
        };
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

    /// Identifies the client of an adapter's request.
    async fn identify_with(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        credentials: Credentials,
    ) -> Result<Who, Failure> {
        let token = match credentials {
            Credentials::Unneeded => return Ok(Who::anonymous(peer.address.ip())),
            Credentials::Token(token) => token,
            Credentials::InBody => None,
        };
        self.identify_by(peer, headers, token.as_deref()).await
    }

    /// Identifies a client by this token, or without one by its headers.
    async fn identify_by(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        token: Option<&str>,
    ) -> Result<Who, Failure> {
        let Some(token) = token else { return self.identify(peer, headers).await };
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| Failure::new(Code::Unauthenticated, "the token has control characters"))?;
        bearer.set_sensitive(true);
        let mut headers = headers.clone();
        headers.insert(AUTHORIZATION, bearer);
        self.identify(peer, &headers).await
    }
}

/// The clients of a connection.
struct Clients {
    requests: Arc<Requests>,
    peer: Arc<Peer>,
    headers: HeaderMap,
}

impl Authenticate for Clients {
    fn authenticate<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<Who, Failure>> {
        Box::pin(self.requests.identify_by(&self.peer, &self.headers, token))
    }
}
