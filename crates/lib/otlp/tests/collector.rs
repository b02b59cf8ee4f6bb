//! An exporter and a collector.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

use pilotfish_otlp::message::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use pilotfish_otlp::{Endpoint, Exporter, Observer, Outcome, Span, Trace, Traces, Value, exporter};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Answers each request with the next of these, and passes it on.
#[derive(Clone)]
struct Collector {
    answers: Arc<Mutex<Vec<Status>>>,
    taken: mpsc::UnboundedSender<ExportTraceServiceRequest>,
}

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl tower::Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        assert!(request.uri().path().ends_with("TraceService/Export"), "{:?}", request.uri());
        let this = self.clone();
        Box::pin(async move {
            let export = tower::service_fn(move |request: Request<ExportTraceServiceRequest>| {
                let this = this.clone();
                async move {
                    if let Some(status) = this.answers.lock().unwrap().pop() {
                        return Err(status);
                    }
                    this.taken.send(request.into_inner()).unwrap();
                    Ok(Response::new(ExportTraceServiceResponse::default()))
                }
            });
            Ok(tonic::server::Grpc::new(ProstCodec::default()).unary(export, request).await)
        })
    }
}

#[derive(Default)]
struct Counted(Mutex<Vec<(Outcome, usize)>>);

impl Observer for Counted {
    fn spans(&self, outcome: Outcome, count: usize) {
        self.0.lock().unwrap().push((outcome, count));
    }
}

fn at(address: SocketAddr) -> (Traces, Exporter, Arc<Counted>) {
    let counted = Arc::new(Counted::default());
    let endpoint = Endpoint::parse(&format!("http://{address}")).unwrap();
    let resource = vec![("service.name", Value::Text("pilotfish".into()))];
    let (traces, exporter) = exporter(&endpoint, None, "1", resource, counted.clone()).unwrap();
    (traces, exporter, counted)
}

fn trace(name: &'static str) -> Trace {
    let span = |name| Span::new(name, UNIX_EPOCH, UNIX_EPOCH + Duration::from_millis(1));
    Trace { root: span(name), parts: vec![span("part")] }
}

async fn collector(answers: Vec<Status>) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, requests) = mpsc::unbounded_channel();
    let collector = Collector { answers: Arc::new(Mutex::new(answers)), taken };
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(collector).serve_with_incoming(incoming));
    (address, requests)
}

#[tokio::test]
async fn a_collector_gets_traces_and_is_asked_again_when_it_is_busy() {
    let (address, mut requests) = collector(vec![Status::unavailable("busy")]).await;
    let (traces, exporter, counted) = at(address);
    traces.send(trace("first"));
    let task = tokio::spawn(exporter.run(std::future::pending()));
    let request = requests.recv().await.unwrap();
    let resource = &request.resource_spans[0];
    assert_eq!(resource.resource.as_ref().unwrap().attributes[0].key, "service.name");
    let spans = &resource.scope_spans[0].spans;
    assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["first", "part"]);
    drop(traces);
    task.await.unwrap();
    assert_eq!(*counted.0.lock().unwrap(), [(Outcome::Sent, 2)]);
}

#[tokio::test]
async fn what_a_collector_refuses_is_not_sent_again_and_the_rest_is_sent_at_the_end() {
    let (address, mut requests) = collector(vec![Status::invalid_argument("no")]).await;
    let (traces, exporter, counted) = at(address);
    traces.send(trace("refused"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(exporter.run(async {
        let _ = stopped.await;
    }));
    while counted.0.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    traces.send(trace("last"));
    stop.send(()).unwrap();
    task.await.unwrap();
    assert_eq!(requests.recv().await.unwrap().resource_spans[0].scope_spans[0].spans[0].name, "last");
    assert_eq!(*counted.0.lock().unwrap(), [(Outcome::Failed, 2), (Outcome::Sent, 2)]);
}

#[tokio::test(start_paused = true)]
async fn too_many_are_dropped_and_nothing_waits_for_a_collector_that_is_away() {
    // Nobody listens there.
    let (traces, exporter, counted) = at(SocketAddr::from(([127, 0, 0, 1], 1)));
    for _ in 0..1030 {
        traces.send(trace("many"));
    }
    assert_eq!(*counted.0.lock().unwrap(), [(Outcome::Dropped, 2); 6]);
    drop(traces);
    exporter.run(std::future::pending()).await;
    let failed = counted.0.lock().unwrap().iter().filter(|(outcome, _)| *outcome == Outcome::Failed).count();
    assert_eq!(failed, 8, "1,024 traces in batches of 128");
}
