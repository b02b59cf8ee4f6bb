//! The queue, and the task that empties it.

use crate::Endpoint;
use crate::message::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope, Resource, ResourceSpans,
    ScopeSpans, Span,
};
use crate::trace::{Trace, Value, attributes};
use pilotfish_registry_client::grpc_channel;
use pilotfish_source::{Backoff, BackoffPolicy, Jitter};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Traces that wait; more are dropped. One takes a few kilobytes.
const QUEUE: usize = 1024;
/// Traces of a request.
const BATCH: usize = 128;
/// For one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a batch is tried.
const TRIES: u32 = 4;
/// Between these.
const PAUSES: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(10));
/// For what is left at the end.
const FLUSH: Duration = Duration::from_secs(2);
const PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// What became of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The collector has them.
    Sent,
    /// The collector did not take them, or could not be reached.
    Failed,
    /// There were too many at once.
    Dropped,
}

impl Outcome {
    /// As a label of metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// Counts spans.
pub trait Observer: Send + Sync {
    /// That became of so many spans.
    fn spans(&self, outcome: Outcome, count: usize);
}

/// Takes traces. Cheap to clone.
#[derive(Clone)]
pub struct Traces {
    queue: mpsc::Sender<Trace>,
    observer: Arc<dyn Observer>,
}

impl Traces {
    /// Hands a trace over, or drops it where too many wait.
    pub fn send(&self, trace: Trace) {
        let spans = trace.spans();
        if self.queue.try_send(trace).is_err() {
            self.observer.spans(Outcome::Dropped, spans);
        }
    }
}

/// Sends traces to a collector.
pub struct Exporter {
    queue: mpsc::Receiver<Trace>,
    client: Grpc<Channel>,
    resource: Resource,
    scope: InstrumentationScope,
    observer: Arc<dyn Observer>,
    backoff: Backoff,
    is_failing: bool,
    /// What is being sent: when that is broken off at the end, it is sent again.
    unsent: Vec<Span>,
}

/// The two ends of a queue for a collector. Nothing is connected yet. `resource` says what process this is, as `service.name`.
///
/// # Errors
/// When the endpoint is no host and port of a URI.
pub fn exporter(
    endpoint: &Endpoint,
    ca: Option<PathBuf>,
    version: &str,
    resource: Vec<(&'static str, Value)>,
    observer: Arc<dyn Observer>,
) -> Result<(Traces, Exporter), tonic::transport::Error> {
    let channel = grpc_channel(endpoint.connector(ca), endpoint.server())?;
    let (sender, queue) = mpsc::channel(QUEUE);
    let exporter = Exporter {
        queue,
        client: Grpc::new(channel),
        resource: Resource { attributes: attributes(resource) },
        scope: InstrumentationScope { name: "pilotfish".to_owned(), version: version.to_owned() },
        observer: observer.clone(),
        backoff: Backoff::new(PAUSES, Jitter::default()),
        is_failing: false,
        unsent: Vec::new(),
    };
    Ok((Traces { queue: sender, observer }, exporter))
}

impl Exporter {
    /// Sends what is handed over until `stop`, and then for two more seconds what is left.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        {
            let this = &mut self;
            tokio::select! {
                () = stop => {}
                () = this.send_all() => return,
            }
        }
        self.queue.close();
        let _ = timeout(FLUSH, self.send_all()).await;
    }

    /// Returns when nobody hands anything over any more.
    async fn send_all(&mut self) {
        let mut batch = Vec::new();
        while !self.unsent.is_empty() || self.queue.recv_many(&mut batch, BATCH).await > 0 {
            self.unsent.extend(batch.drain(..).flat_map(Trace::messages));
            let outcome = self.send(self.unsent.clone()).await;
            self.observer.spans(outcome, self.unsent.len());
            self.unsent.clear();
        }
    }

    async fn send(&mut self, spans: Vec<Span>) -> Outcome {
        let scope_spans = vec![ScopeSpans { scope: Some(self.scope.clone()), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(self.resource.clone()), scope_spans }];
        let request = ExportTraceServiceRequest { resource_spans };
        for number in 1..=TRIES {
            let answer = timeout(TIMEOUT, self.call(request.clone())).await;
            let error = match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in 10 s"))) {
                Ok(answer) => {
                    self.answered(&answer);
                    return Outcome::Sent;
                }
                Err(error) => error,
            };
            if !std::mem::replace(&mut self.is_failing, true) {
                tracing::warn!(code = ?error.code(), reason = error.message(), "traces cannot be exported");
            }
            if !may_pass(error.code()) || number == TRIES {
                break;
            }
            sleep(self.backoff.wait()).await;
        }
        Outcome::Failed
    }

    async fn call(
        &mut self,
        request: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, Status> {
        self.client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::from_static(PATH);
        let answer = self.client.unary(Request::new(request), path, ProstCodec::default()).await?;
        Ok(answer.into_inner())
    }

    fn answered(&mut self, answer: &ExportTraceServiceResponse) {
        self.backoff.reset();
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("traces are exported again");
        }
        if let Some(refused) = answer.partial_success.as_ref().filter(|it| it.rejected_spans > 0) {
            let (spans, reason) = (refused.rejected_spans, &refused.error_message);
            tracing::debug!(spans, %reason, "a collector refused spans");
        }
    }
}

/// The codes after which OTLP says that a client tries again.
fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted
    )
}
