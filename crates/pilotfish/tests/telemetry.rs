//! What a serving Pilotfish tells others of a change: a trace to a collector, and a line of JSON in its log.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

use bytes::Bytes;
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_otlp::message::{ExportTraceServiceRequest, ExportTraceServiceResponse, Span};
use pilotfish_testkit::real::{LIMIT, Pilotfish, eventually};
use prost::Message;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: n0}\nspec: {clusterIP: 10.1.0.1, \
                       ports: [{name: http, port: 80}]}\n";
const ROUTE: &str = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: n0}\nspec:\n  hosts: [web]\n  \
                     http: [{timeout: 3s, route: [{destination: {host: web}}]}]\n";

/// Serves a folder with a Service, and has one proxy.
async fn serving(folder: &Path, more: &[&str]) -> (Pilotfish, Fleet) {
    std::fs::write(folder.join("shop.yaml"), SERVICE).unwrap();
    let arguments = [&[folder.to_str().unwrap()], more].concat();
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &arguments);
    pilotfish.ready().await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, vec![node(0, "n0")]);
    fleet.synced(LIMIT).await.unwrap();
    (pilotfish, fleet)
}

/// A collector that passes on what it is sent.
async fn collector() -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take(stream, taken.clone()));
        }
    });
    (address, requests)
}

/// Takes the calls of one connection.
async fn take(stream: TcpStream, taken: mpsc::UnboundedSender<ExportTraceServiceRequest>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let taken = taken.clone();
        tokio::spawn(async move {
            assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
            let mut body = request.into_body();
            let mut bytes = Vec::new();
            while let Some(part) = body.data().await {
                let part = part.unwrap();
                body.flow_control().release_capacity(part.len()).unwrap();
                bytes.extend_from_slice(&part);
            }
            // Behind the flag and the length of a gRPC message.
            taken.send(ExportTraceServiceRequest::decode(&bytes[5..]).unwrap()).unwrap();
            let head = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut answer = respond.send_response(head, false).unwrap();
            let message = ExportTraceServiceResponse::default().encode_to_vec();
            assert!(message.is_empty(), "all was taken");
            answer.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
            let status = http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            answer.send_trailers(status).unwrap();
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_a_trace_from_its_file_to_the_last_acknowledgement() {
    let (address, mut requests) = collector().await;
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("http://{address}");
    let (pilotfish, _fleet) = serving(folder.path(), &["--otlp-endpoint", &endpoint]).await;
    std::fs::write(folder.path().join("route.yaml"), ROUTE).unwrap();
    let find = async {
        loop {
            let request = requests.recv().await.unwrap();
            let resource = request.resource_spans.into_iter().next().unwrap();
            let service = &resource.resource.as_ref().unwrap().attributes[0];
            assert_eq!(service.key, "service.name");
            let spans: Vec<Span> = resource.scope_spans.into_iter().flat_map(|scope| scope.spans).collect();
            let is_ours = |span: &Span| format!("{span:?}").contains("VirtualService n0/web");
            if let Some(root) = spans.iter().find(|span| span.name == "change" && is_ours(span)) {
                return (root.clone(), spans);
            }
        }
    };
    let (root, spans) = tokio::time::timeout(LIMIT, find).await.expect("the trace of the route is sent");
    let parts: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == root.span_id).collect();
    let names: Vec<&str> = parts.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["wait", "compute", "deliver"]);
    assert!(parts.iter().all(|span| span.trace_id == root.trace_id));
    assert!(
        parts.windows(2).all(|two| two[0].end_time_unix_nano <= two[1].start_time_unix_nano),
        "{parts:?}"
    );
    assert_eq!(parts[2].end_time_unix_nano, root.end_time_unix_nano);
    eventually("it is counted as sent", || async {
        let text = pilotfish.page("/metrics").await?;
        if text.contains("pilotfish_otlp_spans_total{result=\"sent\"}") { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_a_line_of_json_with_its_revision() {
    let folder = tempfile::tempdir().unwrap();
    let (pilotfish, _fleet) = serving(folder.path(), &["--log-format", "json"]).await;
    std::fs::write(folder.path().join("route.yaml"), ROUTE).unwrap();
    let line = eventually("the change is in the log", || async {
        let printed = pilotfish.printed();
        let mut lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = lines.find(|line| line.to_string().contains("VirtualService n0/web"));
        found.ok_or(printed)
    })
    .await;
    assert_eq!(line["level"], "INFO", "{line}");
    let revision = line["fields"]["revision"].as_u64().unwrap_or_else(|| panic!("no revision: {line}"));
    // It is the id by which the change is asked for everywhere else.
    let change = pilotfish.json(&format!("/api/v1/history/{revision}")).await;
    assert_eq!(change["changes"][0]["what"], "VirtualService n0/web", "{change}");
}
