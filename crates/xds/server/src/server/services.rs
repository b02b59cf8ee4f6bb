//! gRPC health and reflection, beside ADS on the same port: tonic's services behind a small bridge.

use crate::limits::{Limit, LimitExceeded};
use crate::recorder::Recorder;
use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use pilotfish_grpc_framing::Boundaries;
use prost_types::FileDescriptorSet;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;

pub(super) const ADS: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Handler = Box<dyn Fn(Request<Body>) -> Answer + Send + Sync>;

/// gRPC services other than ADS.
pub(super) struct Services {
    reporter: HealthReporter,
    health: (String, Handler),
    /// Created by the first request: the descriptors take some megabytes.
    reflection: OnceLock<Vec<(String, Handler)>>,
}

fn handler<T>(service: T) -> (String, Handler)
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

impl Services {
    pub(super) fn new() -> Self {
        let (reporter, service) = tonic_health::server::health_reporter();
        Self { reporter, health: handler(service), reflection: OnceLock::new() }
    }

    /// Sets the health of the server and of ADS.
    pub(super) async fn set_ready(&self, ready: bool) {
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in ["", ADS] {
            self.reporter.set_service_status(service, status).await;
        }
    }

    /// Answers a request; `None` if the path belongs to no service.
    pub(super) fn answer(&self, request: Request<RecvStream>, limits: CallLimits) -> Option<Answer> {
        let path = request.uri().path();
        let incoming = |body| Body::new(Incoming::new(body, limits));
        if path.starts_with(&self.health.0) {
            return Some((self.health.1)(request.map(incoming)));
        }
        if !path.starts_with("/grpc.reflection.") {
            return None;
        }
        let reflection = self.reflection.get_or_init(reflection);
        let (_, handler) = reflection.iter().find(|(prefix, _)| path.starts_with(prefix.as_str()))?;
        Some(handler(request.map(incoming)))
    }
}

fn reflection() -> Vec<(String, Handler)> {
    let set = ads_descriptors();
    let v1 = tonic_reflection::server::Builder::configure().register_file_descriptor_set(set.clone());
    let v1alpha = tonic_reflection::server::Builder::configure().register_file_descriptor_set(set);
    let mut services = Vec::new();
    match (v1.build_v1(), v1alpha.build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => services.extend([handler(v1), handler(v1alpha)]),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "cannot build the gRPC reflection service; it is not served")
        }
    }
    services
}

/// File descriptors of ADS and of all its imports.
fn ads_descriptors() -> FileDescriptorSet {
    let mut files = BTreeMap::new();
    let service = pilotfish_proto::pool().get_service_by_name(ADS);
    let mut todo: Vec<_> = service.map(|service| service.parent_file()).into_iter().collect();
    while let Some(file) = todo.pop() {
        if files.insert(file.name().to_owned(), file.file_descriptor_proto().clone()).is_none() {
            todo.extend(file.dependencies());
        }
    }
    FileDescriptorSet { file: files.into_values().collect() }
}

/// Limits of one call's request. The client of a health or reflection call is not authenticated.
pub(super) struct CallLimits {
    pub(super) bytes: usize,
    /// Maximum time for the whole request.
    pub(super) time: Duration,
    pub(super) recorder: Arc<dyn Recorder>,
}

/// Request body of h2 for tonic's services and for methods.
pub(super) struct Incoming {
    body: RecvStream,
    limits: CallLimits,
    messages: Boundaries,
    /// Sum of the announced message lengths so far: tonic allocates the whole message at once.
    said: usize,
    until: Pin<Box<Sleep>>,
}

impl Incoming {
    pub(super) fn new(body: RecvStream, limits: CallLimits) -> Self {
        let until = Box::pin(tokio::time::sleep(limits.time));
        Self { body, limits, messages: Boundaries::default(), said: 0, until }
    }

    /// Maximum time for the whole request.
    pub(super) fn time(&self) -> Duration {
        self.limits.time
    }

    /// Records that a limit was exceeded, and returns the status.
    pub(super) fn refuse(&self, error: &LimitExceeded) -> Status {
        self.limits.recorder.limit_exceeded(error.limit);
        Status::resource_exhausted(error.to_string())
    }

    fn count(&mut self, data: &[u8]) -> Result<(), Status> {
        self.said = self.said.saturating_add(self.messages.read(data).bytes);
        Limit::CallBytes.check(self.said, self.limits.bytes).map_err(|error| self.refuse(&error))
    }
}

fn broken(error: h2::Error) -> Status {
    Status::from_error(error.into())
}

impl http_body::Body for Incoming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Status::deadline_exceeded("the request did not end in time"))));
        }
        if let Some(data) = ready!(self.body.poll_data(cx)) {
            let counted = data.map_err(broken).and_then(|data| {
                self.count(&data)?;
                self.body.flow_control().release_capacity(data.len()).map_err(broken)?;
                Ok(Frame::data(data))
            });
            return Poll::Ready(Some(counted));
        }
        match ready!(self.body.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(Some(Err(broken(error)))),
        }
    }
}

/// Sends an answer's body.
pub(super) async fn send(mut body: Body, mut out: SendStream<Bytes>) -> Result<(), h2::Error> {
    while let Some(frame) = body.frame().await {
        // Services of this process: their bodies cannot fail.
        let Ok(frame) = frame else { break };
        match frame.into_data() {
            Ok(mut data) => {
                while !data.is_empty() {
                    out.reserve_capacity(data.len());
                    let room = std::future::poll_fn(|cx| out.poll_capacity(cx)).await;
                    let Some(room) = room.transpose()? else { return Ok(()) };
                    out.send_data(data.split_to(room.min(data.len())), false)?;
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return out.send_trailers(trailers);
                }
            }
        }
        if body.is_end_stream() {
            break;
        }
    }
    out.send_data(Bytes::new(), true)
}
