//! The bounded queue of traces, and the task that exports them in batches.

use crate::Endpoint;
use crate::message::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope, Resource, ResourceSpans,
    ScopeSpans, Span,
};
use crate::trace::{Trace, Value, attributes};
use pilotfish_connect::grpc_channel;
use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter};
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

/// Capacity of the queue in traces; more are dropped. A trace takes a few kilobytes.
const QUEUE: usize = 1024;
/// Maximum number of traces in an export request.
const BATCH: usize = 128;
/// Timeout of an export request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of attempts to export a batch.
const TRIES: u32 = 4;
/// Delays between the attempts to export a batch.
const PAUSES: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(10));
/// Time to export queued traces at shutdown.
const FLUSH: Duration = Duration::from_secs(2);
const PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Result of exporting spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted by the collector.
    Sent,
    /// Rejected by the collector, or the collector was unreachable.
    Failed,
    /// Not queued because the queue was full.
    Dropped,
}

impl Outcome {
    /// Value of the metric label.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// Receives the counts of exported and dropped spans.
pub trait Observer: Send + Sync {
    /// Called with the number of spans that had this outcome.
    fn spans(&self, outcome: Outcome, count: usize);
}

/// Sender of traces to the exporter's queue. Cheap to clone.
#[derive(Clone)]
pub struct Traces {
    queue: mpsc::Sender<Trace>,
    observer: Arc<dyn Observer>,
}

impl Traces {
    /// Queues a trace, or drops it if the queue is full.
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
    /// Spans of the batch being exported. If shutdown interrupts the request, they are exported again.
    unsent: Vec<Span>,
}

/// Returns the two ends of an export queue; the exporter connects at its first request. `resource` holds the
/// resource attributes of this process, such as `service.name`.
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
    /// Exports queued traces until `stop` resolves, then for two more seconds the remaining ones.
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

    /// Exports until all senders are dropped.
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
                tracing::warn!(code = ?error.code(), reason = error.message(), "cannot export traces");
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
            tracing::info!("exporting traces again");
        }
        if let Some(refused) = answer.partial_success.as_ref().filter(|it| it.rejected_spans > 0) {
            let (spans, reason) = (refused.rejected_spans, &refused.error_message);
            tracing::debug!(spans, %reason, "the collector rejected spans");
        }
    }
}

/// True for the codes that OTLP defines as retryable.
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
