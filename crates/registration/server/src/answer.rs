//! Handling of one request: authentication, authorization and routing to gRPC or JSON.

use crate::activity::Activity;
use crate::adapter::Adapter;
use crate::api::Api;
use crate::body::{Guarded, LimitedBody, Part};
use crate::failure::{Failure, Outcome};
use crate::grpc::{Client, Grpc};
use crate::identity::Who;
use crate::json;
use crate::limits::{AddressQuotas, Limit, Quota, QuotaGuard};
use crate::origin;
use crate::recorder::Protocol;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use pilotfish_access::{TOKEN, bearer, digest};
use pilotfish_admission::{HalfOpen, RefusalLimit};
use pilotfish_identity::{Authenticated, Authentication, CERTIFICATE, Call, is_forwarding_header};
use pilotfish_registration_api::v1::error::Code;
use pilotfish_registration_api::v1::registration_service_server::RegistrationServiceServer;
use pilotfish_registration_api::{LIMIT_HEADER, Routes, SERVICE};
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

/// Maximum size of a health or reflection request in bytes.
const CALL_BYTES: usize = 64 << 10;

/// Maximum duration of a health or reflection call: a health watch reveals nothing confidential, and holds a
/// stream slot of its connection.
const CALL_AGE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
/// A tonic service, type-erased.
pub(crate) type Handler = Box<dyn Fn(Request<Body>) -> Answer + Send + Sync>;

/// State shared by all requests.
pub(crate) struct Requests {
    pub(crate) api: Arc<Api>,
    pub(crate) routes: Routes,
    pub(crate) openapi: Bytes,
    pub(crate) page: Bytes,
    pub(crate) registration: RegistrationServiceServer<Grpc>,
    /// Health and reflection, by path prefix.
    pub(crate) services: Vec<(String, Handler)>,
    pub(crate) authentication: Arc<Authentication>,
    pub(crate) refusals: RefusalLimit,
    pub(crate) budgets: AddressQuotas,
    /// Connections without a request so far.
    pub(crate) unused: Arc<HalfOpen>,
    /// True if clients need no identity.
    pub(crate) anonymous: bool,
    /// True if only this machine reaches the listener.
    pub(crate) is_loopback: bool,
    /// The protocol that is served instead of the API.
    pub(crate) adapter: Option<Arc<dyn Adapter>>,
}

/// Connection of a request.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Identities of its certificate, or the reason that there are none.
    pub(crate) certificate: Authenticated,
    pub(crate) activity: Arc<Activity>,
    /// Budget of the requests that are being read.
    pub(crate) budget: Arc<Quota>,
    /// Unique in this process.
    pub(crate) number: u64,
}

/// Returns the handler of a tonic service, with its path prefix.
pub(crate) fn handler<T>(service: T) -> (String, Handler)
where
    T: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + NamedService,
    T: Clone + Send + Sync + 'static,
    T::Future: Send + 'static,
{
    let call = move |request| -> Answer {
        let answer = service.clone().call(request);
        Box::pin(async move { answer.await.unwrap_or_else(|never| match never {}) })
    };
    (format!("/{}/", T::NAME), Box::new(call))
}

impl Requests {
    /// Answers one request; the connection is busy until the response is sent.
    pub(crate) async fn answer(
        self: Arc<Self>,
        peer: Arc<Peer>,
        request: Request<Incoming>,
    ) -> Response<Guarded<Body>> {
        let limits = &self.api.limits;
        let started = Instant::now();
        // One timeout each for reading the request, for handling it, and for the client reading the response.
        let busy = peer.activity.begin(started, 3 * limits.request_timeout);
        let (parts, body) = request.into_parts();
        let is_grpc = parts
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|media| media.as_bytes().starts_with(b"application/grpc"));
        if let Some(adapter) = &self.adapter {
            let (protocol, method) = (adapter.protocol(), adapter.method(&parts));
            let response = match adapter.grpc().filter(|_| is_grpc) {
                Some(grpc) => {
                    if grpc.is_stream(parts.uri.path()) {
                        busy.may_take(started, CALL_AGE);
                    }
                    self.adapted_grpc(grpc, &peer, parts, body).await
                }
                None => {
                    busy.may_take(started, 3 * limits.request_timeout + adapter.wait(&parts));
                    self.adapted(&**adapter, &peer, &parts, body).await
                }
            };
            self.record(protocol, method, &response, started.elapsed());
            return response.map(|body| Guarded::new(body, busy));
        }
        let (protocol, method) = match is_grpc {
            true => (Protocol::Grpc, rpc_name(parts.uri.path())),
            false => (Protocol::Json, self.json_name(&parts)),
        };
        if matches!(method, "Watch" | "Heartbeat") {
            busy.may_take(started, limits.stream_age + 3 * limits.request_timeout);
        } else if is_grpc && self.service(parts.uri.path()).is_some() {
            busy.may_take(started, CALL_AGE);
        }
        let response = match is_grpc {
            true => self.grpc(&peer, parts, body).await,
            false => self.http(&peer, &parts, body).await,
        };
        self.record(protocol, method, &response, started.elapsed());
        response.map(|body| Guarded::new(body, busy))
    }

    fn record(&self, protocol: Protocol, method: &'static str, response: &Response<Body>, took: Duration) {
        if let Some(limit) = response.headers().get(LIMIT_HEADER).and_then(|limit| limit.to_str().ok()) {
            self.api.recorder.limit_exceeded(limit);
        }
        let code = match protocol {
            Protocol::Json | Protocol::Consul | Protocol::Eureka | Protocol::Nacos => {
                response.extensions().get::<Outcome>().map_or(Code::Unknown, |outcome| outcome.0)
            }
            // An error without body has its status in the headers.
            Protocol::Grpc => match tonic::Status::from_header_map(response.headers()) {
                Some(status) => Code::try_from(i32::from(status.code())).unwrap_or(Code::Unknown),
                None => Code::Ok,
            },
        };
        self.api.recorder.request(method, protocol, code.as_str_name(), took);
    }

    async fn grpc(&self, peer: &Peer, mut parts: Parts, body: Incoming) -> Response<Body> {
        let limits = &self.api.limits;
        let fail = |failure: Failure| failure.to_status().into_http();
        let path = parts.uri.path();
        if let Some(service) = self.service(path) {
            if let Err(failure) = self.api.take_rate(&Who::anonymous(peer.address.ip())) {
                return fail(failure);
            }
            // Health watches and reflection streams use the stream slots of their connection.
            let Some(stream) = peer.activity.open_stream(limits.connection_streams) else {
                return fail(Failure::limit(Limit::ConnectionStreams, "too many streams on this connection"));
            };
            let body = LimitedBody::new(
                body,
                Part::Message,
                CALL_BYTES,
                limits.request_timeout,
                Arc::new(QuotaGuard::empty(&peer.budget)),
            );
            let body = Body::new(body.map_err(|failure| failure.to_status()));
            let response = service(Request::from_parts(parts, body)).await;
            return response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _open = &stream;
                    frame
                }))
            });
        }
        let who = match self.identify(peer, &parts.headers).await {
            Ok(who) => who,
            Err(failure) => return fail(failure),
        };
        if let Err(failure) = self.api.take_rate(&who) {
            return fail(failure);
        }
        let part = if rpc_name(path) == "Heartbeat" { Part::Message } else { Part::Single };
        let held = Arc::new(QuotaGuard::empty(&peer.budget));
        let body =
            LimitedBody::new(body, part, limits.request_bytes, limits.request_timeout, Arc::clone(&held));
        parts.extensions.insert(Client { who, activity: Arc::clone(&peer.activity) });
        let request = Request::from_parts(parts, Body::new(body.map_err(|failure| failure.to_status())));
        let answer = self.registration.clone().call(request).await.unwrap_or_else(|never| match never {});
        drop(held);
        answer
    }

    async fn http(&self, peer: &Peer, parts: &Parts, body: Incoming) -> Response<Body> {
        if let Err(failure) = origin::check(parts, self.is_loopback) {
            return json::failure(&failure);
        }
        if parts.method == Method::GET
            && let Some((media, text)) = self.document(parts.uri.path())
        {
            return match self.api.take_rate(&Who::anonymous(peer.address.ip())) {
                Ok(()) => {
                    let mut response = json::bytes(HeaderValue::from_static(media), text);
                    response.extensions_mut().insert(Outcome(Code::Ok));
                    response
                }
                Err(failure) => json::failure(&failure),
            };
        }
        let who = match self.identify(peer, &parts.headers).await {
            Ok(who) => who,
            Err(failure) => return json::failure(&failure),
        };
        if let Err(failure) = self.api.take_rate(&who) {
            return json::failure(&failure);
        }
        let limits = &self.api.limits;
        let held = Arc::new(QuotaGuard::empty(&peer.budget));
        let body = LimitedBody::new(
            body,
            Part::Whole,
            limits.request_bytes,
            limits.request_timeout,
            Arc::clone(&held),
        );
        let client = Client { who, activity: Arc::clone(&peer.activity) };
        let response = json::handle(&self.api, &self.routes, &client, parts, body).await;
        drop(held);
        response
    }

    /// Returns the health or reflection handler of a path.
    fn service(&self, path: &str) -> Option<&Handler> {
        self.services.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, service)| service)
    }

    /// Returns the documents that need no identity.
    fn document(&self, path: &str) -> Option<(&'static str, Bytes)> {
        match path {
            "/" | "/docs" => Some(("text/html; charset=utf-8", self.page.clone())),
            "/openapi.json" => Some(("application/json", self.openapi.clone())),
            _ => None,
        }
    }

    /// Identifies a client by its certificate or its headers.
    pub(crate) async fn identify(&self, peer: &Peer, headers: &HeaderMap) -> Result<Who, Failure> {
        let address = peer.address.ip();
        let reason = match &peer.certificate {
            Ok(proof) => {
                let who = Who::new(proof.clone(), None, address);
                return who
                    .ok_or_else(|| Failure::new(Code::Unauthenticated, "the certificate names nobody"));
            }
            Err(reason) => reason,
        };
        if !headers.contains_key(AUTHORIZATION) {
            return match self.anonymous {
                true => {
                    let is_forwarded = headers.keys().any(|name| is_forwarding_header(name.as_str()));
                    Ok(Who { is_forwarded, ..Who::anonymous(address) })
                }
                false => Err(Failure::new(
                    Code::Unauthenticated,
                    format!(
                        "the client proves no identity: send `authorization: Bearer TOKEN` ({CERTIFICATE}: \
                         {reason})"
                    ),
                )),
            };
        }
        let metadata = headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        let call = Call::new(peer.address, metadata.collect());
        let credential = digest(call.metadata("authorization").and_then(bearer).unwrap_or_default());
        let begun = self.refusals.begin(address, credential, Instant::now());
        let attempt = begun.map_err(|wait| Failure {
            retry_after: Some(wait),
            ..Failure::limit(Limit::RefusalsPerSecond, "too many refused credentials from this address")
        })?;
        let answer = self.authentication.run(reason, &call).await;
        let now = Instant::now();
        match answer {
            Ok((method, proof)) => {
                attempt.accepted(now);
                let token = (method == TOKEN).then_some(credential);
                let who = Who::new(proof, token, address);
                who.ok_or_else(|| Failure::new(Code::Unauthenticated, "the credentials name nobody"))
            }
            Err(error) => {
                if error.is_verdict {
                    attempt.refused(now);
                } else {
                    attempt.undecided();
                }
                self.authentication.log_refusal(call.address, &error);
                Err(Failure::new(Code::Unauthenticated, error.to_string()))
            }
        }
    }

    fn json_name(&self, parts: &Parts) -> &'static str {
        match self.routes.find(parts.method.as_str(), parts.uri.path()) {
            Ok(found) => known(found.binding().rpc()),
            Err(_) => OTHER,
        }
    }
}

const OTHER: &str = "other";

fn rpc_name(path: &str) -> &'static str {
    let name = path
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(SERVICE))
        .and_then(|path| path.strip_prefix('/'));
    name.map_or(OTHER, known)
}

/// Returns the metric label of a method.
fn known(name: &str) -> &'static str {
    const METHODS: [&str; 10] = [
        "Register",
        "Renew",
        "Deregister",
        "BatchRegister",
        "BatchRenew",
        "BatchDeregister",
        "Heartbeat",
        "GetInstance",
        "ListInstances",
        "Watch",
    ];
    METHODS.into_iter().find(|known| *known == name).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_definition_has_a_label() {
        let service = pilotfish_registration_api::pool().get_service_by_name(SERVICE).unwrap();
        for method in service.methods() {
            assert_eq!(rpc_name(&format!("/{SERVICE}/{}", method.name())), method.name());
        }
        assert_eq!(rpc_name("/x.Y/Z"), OTHER);
    }
}
