//! What Istio's dashboards and Kiali ask for, by the table in docs/metrics.md, is there on a Pilotfish that
//! serves a real API server and a proxy.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use pilotfish_bench::connection::Connection;
use pilotfish_model::Kind;
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pilotfish_proto::google::rpc::Status;
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, Pilotfish, eventually, free_port};
use prost::Message;
use std::net::SocketAddr;
use std::path::Path;
use support::delta::node;
use support::kube::{BINARY, install_definitions};
use tokio::task::JoinHandle;

const PAGE: &str = include_str!("../../../docs/metrics.md");
const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

const SHOP: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: v1
kind: Service
metadata: {name: catalog, namespace: shop}
spec: {ports: [{name: http, port: 80}], selector: {app: catalog}}
";

/// What panels ask, in PromQL: those of Istio's control plane and performance dashboards and of Kiali that
/// the control plane answers. Labels that Prometheus adds (`app`, `pod`) are left out.
const EXPRESSIONS: &[&str] = &[
    "sum(istio_build) by (component, tag)",
    "sum(istio_build{component=\"pilot\"}) by (tag)",
    "sum(irate(pilot_xds_pushes[1m])) by (type)",
    "sum(irate(pilot_xds_pushes{type=\"cds\"}[1m]))",
    "sum(pilot_total_xds_rejects) by (type)",
    "sum(pilot_total_xds_rejects{type=\"cds\"})",
    "sum(pilot_total_xds_internal_errors)",
    "sum(pilot_xds)",
    "sum(rate(pilot_xds_push_time_bucket[1m])) by (le)",
    "sum(rate(pilot_xds_push_time_count{type=\"cds\"}[1m]))",
    "sum(rate(pilot_xds_config_size_bytes_bucket[1m])) by (le)",
    "sum(rate(pilot_k8s_reg_events[1m])) by (type, event)",
    "sum(rate(pilot_k8s_reg_events{event=\"add\", type=\"Services\"}[1m]))",
    "sum(rate(pilot_k8s_reg_events{event=\"update\", type=\"Services\"}[1m]))",
    "sum(rate(pilot_k8s_cfg_events[1m])) by (type, event)",
    "sum(rate(pilot_push_triggers[1m])) by (type)",
    "sum(rate(galley_validation_passed[1m]))",
    "sum(rate(galley_validation_failed[1m]))",
    "sum(rate(sidecar_injection_success_total[1m]))",
    "sum(rate(sidecar_injection_failure_total[1m]))",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "rate(process_cpu_seconds_total[1m])",
    "process_open_fds",
    "sum(rate(pilot_proxy_convergence_time_sum[1m])) / sum(rate(pilot_proxy_convergence_time_count[1m]))",
];

/// What an expression needs of a series: its name, values of labels, and labels that it is grouped by.
#[derive(Debug, PartialEq)]
struct Needs {
    name: String,
    values: Vec<String>,
    groups: Vec<String>,
}

/// The series of an expression of those above.
fn needs(expression: &str) -> Vec<Needs> {
    let groups = expression.split_once(" by (").map_or("", |(_, groups)| groups.trim_end_matches(')'));
    let list =
        |text: &str| text.split(", ").filter(|one| !one.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let text = expression.split(" by (").next().unwrap();
    let mut at = 0;
    while at < text.len() {
        let end = text[at..].find(|c| !is_name(c)).map_or(text.len(), |length| at + length);
        let (word, rest) = (&text[at..end], &text[end..]);
        // Of words with an underscore, all are names of series here.
        if word.contains('_') {
            let values = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let (values, behind) = values.unwrap_or(("", rest));
            found.push(Needs { name: word.to_owned(), values: list(values), groups: list(groups) });
            at = text.len() - behind.len();
        } else {
            at = end.max(at + 1);
        }
    }
    found
}

#[test]
fn expressions_are_taken_apart() {
    let one = |name: &str, values: &[&str], groups: &[&str]| Needs {
        name: name.into(),
        values: values.iter().map(|&text| text.into()).collect(),
        groups: groups.iter().map(|&text| text.into()).collect(),
    };
    for (expression, found) in [
        ("sum(a_b{x=\"y\", z=\"1\"})", vec![one("a_b", &["x=\"y\"", "z=\"1\""], &[])]),
        ("sum(irate(a_b[1m])) by (x, y)", vec![one("a_b", &[], &["x", "y"])]),
        (
            "sum(rate(a_sum[1m])) / sum(rate(a_count[1m]))",
            vec![one("a_sum", &[], &[]), one("a_count", &[], &[])],
        ),
    ] {
        assert_eq!(needs(expression), found, "{expression}");
    }
}

/// Whether a page of metrics has a series as it is needed.
fn has(page: &str, needs: &Needs) -> bool {
    let of_name =
        |line: &&str| line.strip_prefix(&*needs.name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    page.lines().filter(of_name).any(|line| {
        let is_there =
            |what: &String| line.contains(&format!("{{{what}")) || line.contains(&format!(",{what}"));
        needs.values.iter().all(is_there) && needs.groups.iter().all(|group| is_there(&format!("{group}=\"")))
    })
}

/// Names and labels that are asked for, and whether they are to be found.
fn asked() -> Vec<(String, Vec<String>, bool)> {
    let table = PAGE.split("## What Istio's dashboards and Kiali ask for").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    let names =
        |cell: &str| cell.split(", ").map(|name| name.trim_matches('`').to_owned()).collect::<Vec<_>>();
    let rows = rows.filter(|cells| ["yes", "no"].contains(&cells[3]));
    rows.map(|cells| {
        // Prometheus adds these.
        let ours =
            |label: &String| !label.is_empty() && !["app", "pod", "container"].contains(&label.as_str());
        (names(cells[0]).remove(0), names(cells[2]).into_iter().filter(ours).collect(), cells[3] == "yes")
    })
    .collect()
}

/// A proxy that refuses the first response and stays, and a stream that begins with nonsense.
async fn refuse(port: u16) -> JoinHandle<()> {
    let target = SocketAddr::from(([127, 0, 0, 1], port));
    let first = DeltaDiscoveryRequest {
        node: Some(node("sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local", &[("NAMESPACE", "shop")])),
        type_url: CLUSTERS.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    let mut proxy =
        Connection::open_with(target, PATH, &[], vec![Bytes::from(first.encode_to_vec())]).await.unwrap();
    let response = DeltaDiscoveryResponse::decode(proxy.next().await.unwrap().unwrap()).unwrap();
    let refusal = DeltaDiscoveryRequest {
        type_url: CLUSTERS.to_owned(),
        response_nonce: response.nonce,
        error_detail: Some(Status { code: 13, message: "no".to_owned(), ..Status::default() }),
        ..DeltaDiscoveryRequest::default()
    };
    proxy.send(&refusal.encode_to_vec()).unwrap();
    let nonsense = vec![Bytes::from_static(&[0xff; 4])];
    if let Ok(mut nobody) = Connection::open_with(target, PATH, &[], nonsense).await {
        assert!(nobody.next().await.is_err(), "the stream is refused");
    }
    tokio::spawn(async move { while let Ok(Some(_)) = proxy.next().await {} })
}

/// Applies what validation refuses. The answer is that of the API server.
async fn is_refused(server: &ApiServer) -> Result<(), String> {
    let kind = Kind::VirtualService;
    let gvk = GroupVersionKind::gvk(kind.group(), "v1", kind.name());
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    let api: Api<DynamicObject> = Api::namespaced_with(server.client(), "shop", &resource);
    let object = |regex: &str| -> DynamicObject {
        let spec = serde_json::json!({"hosts": ["catalog"], "http": [{"match": [{"uri": {"regex": regex}}],
            "route": [{"destination": {"host": "catalog"}}]}]});
        let object = serde_json::json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": "catalog", "namespace": "shop"}, "spec": spec});
        serde_json::from_value(object).unwrap()
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&params, &object("/a.*")).await.map_err(|error| error.to_string())?;
    match api.create(&params, &object("(unclosed")).await {
        Ok(_) => Err("it was taken".to_owned()),
        Err(_) => Ok(()),
    }
}

/// Makes a Pod, which gets a sidecar.
async fn is_injected(server: &ApiServer) -> Result<(), String> {
    let pod = serde_json::json!({"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "app", "image": "a"}]}});
    let pods: Api<Pod> = Api::namespaced(server.client(), "shop");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let pod = pods
        .create(&params, &serde_json::from_value(pod).unwrap())
        .await
        .map_err(|error| error.to_string())?;
    let init = pod.spec.unwrap().init_containers.unwrap_or_default();
    if init.iter().any(|container| container.name == "istio-proxy") {
        Ok(())
    } else {
        Err("no sidecar".to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn istios_dashboards_find_what_the_page_says() {
    let Some(server) = ApiServer::start(ApiServerOptions::default()).await else { return };
    install_definitions(&server).await;
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
    for name in ["namespace.yaml", "webhooks.yaml"] {
        server.apply(&std::fs::read_to_string(manifests.join(name)).unwrap()).await;
    }
    server.apply(SHOP).await;
    server.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}}").await;
    let webhooks = free_port();
    let kubeconfig = server.kubeconfig();
    let (address, url) = (format!("127.0.0.1:{webhooks}"), format!("https://127.0.0.1:{webhooks}"));
    let arguments = ["--kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let arguments = [&arguments[..], &["--webhook-address", &address, "--webhook-url", &url]].concat();
    let pilotfish = Pilotfish::launch(BINARY, &arguments);
    pilotfish.ready().await;
    let proxy = refuse(pilotfish.xds_port()).await;
    server.apply(&SHOP.replace("port: 80", "port: 81")).await;
    eventually("validation is strict", || is_refused(&server)).await;
    eventually("sidecars are added", || is_injected(&server)).await;

    for (name, labels, found) in asked() {
        let wanted: Vec<String> = labels.iter().map(|label| format!("{label}=\"")).collect();
        let line = |text: &str| {
            let lines = text
                .lines()
                .filter(|line| line.strip_prefix(&*name).is_some_and(|rest| rest.starts_with(['{', ' '])));
            lines.into_iter().any(|line| wanted.iter().all(|label| line.contains(&**label)))
        };
        if found {
            eventually(&format!("{name} with {labels:?}"), || async {
                let text = pilotfish.page("/metrics").await?;
                if line(&text) { Ok(()) } else { Err(text) }
            })
            .await;
        } else {
            assert!(!line(&pilotfish.page("/metrics").await.unwrap()), "{name} is there: say so on the page");
        }
    }
    let text = eventually("the change of the Service reached the proxy", || async {
        let text = pilotfish.page("/metrics").await?;
        if value(&text, "pilot_proxy_convergence_time_count") >= 1.0 { Ok(text) } else { Err(text) }
    })
    .await;
    measured(&text);
    for expression in EXPRESSIONS {
        for needed in needs(expression) {
            assert!(has(&text, &needed), "{expression}: {needed:?} in {text}");
        }
    }
    proxy.abort();
}

/// The value of a series, by its name and labels.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{name} in {text}"))
}

/// What was measured is no constant, and what comes later is no less.
fn measured(text: &str) {
    let value = |name: &str| value(text, name);
    assert!(value("pilot_xds_send_time_count") >= 1.0);
    assert_eq!(value("pilot_xds_send_time_count"), value("pilot_xds_push_time_count{type=\"cds\"}"));
    assert!(value("pilot_xds_push_time_sum{type=\"cds\"}") > value("pilot_xds_send_time_sum"));
    assert!(value("pilot_proxy_convergence_time_sum") > value("pilot_proxy_queue_time_sum"));
    assert_eq!(value("pilot_k8s_reg_events{event=\"add\",type=\"Services\"}"), 2.0, "kubernetes and catalog");
    assert_eq!(value("pilot_k8s_reg_events{event=\"update\",type=\"Services\"}"), 1.0);
    assert!(value("process_open_fds") > 5.0 && value("process_virtual_memory_bytes") > 1e6);
}
