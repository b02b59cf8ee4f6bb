//! Admission reviews through the paths that API servers call.

use crate::input::Input;
use crate::{generate, render, schemas};
use axum::Router;
use axum::body::Body;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use pilotfish_model::Kind;
use pilotfish_webhook::inject::{DEFAULT_TEMPLATE, Injector};
use pilotfish_webhook::{Observer, Outcome, Validator, router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// Reviews are computed on threads of a runtime.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime without sockets"));
static ROUTER: LazyLock<Router> = LazyLock::new(|| {
    let bootstrap =
        Arc::new(|workload: &pilotfish_webhook::inject::Workload<'_>| json!({"node": {"id": workload.name}}));
    let injector = Injector::new(DEFAULT_TEMPLATE, BTreeMap::new(), bootstrap).expect("the default template");
    let observer: Arc<dyn Observer> = Arc::new(Unobserved);
    router(Validator::new(vec![pilotfish_translate::check_object]), injector, &observer)
});

struct Unobserved;

impl Observer for Unobserved {
    fn reviewed(&self, _: &'static str, _: Outcome) {}
}

/// Kinds with a Pod template, and the path of the template.
const OWNERS: &[(&str, &str, &str)] = &[
    ("", "Pod", ""),
    ("apps", "Deployment", "spec.template"),
    ("apps", "StatefulSet", "spec.template"),
    ("batch", "CronJob", "spec.jobTemplate.spec.template"),
    ("", "Service", ""),
];

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let is_injection = input.flag();
    let path = if is_injection { "/inject" } else { "/validate" };
    let (uid, body) = match input.below(8) {
        0 => (None, input.all().to_vec()),
        _ => {
            let uid = input.text(8);
            let review = review(&uid, is_injection, &mut input);
            (Some(uid), render::json(&review).into_bytes())
        }
    };
    let is_review = uid.is_some();
    let (status, answer) = ask(path, body);
    assert!(matches!(status, 200 | 400) && (status == 200 || !is_review), "{status}: {answer:?}");
    if status != 200 {
        return;
    }
    let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    let response = &answer["response"];
    assert!(response["allowed"].is_boolean(), "{answer}");
    if let Some(uid) = uid {
        assert_eq!(response["uid"], uid.as_str());
    }
    let refused = response["allowed"] == false;
    assert_eq!(
        refused,
        response["status"]["message"].as_str().is_some_and(|why| !why.is_empty()),
        "{answer}"
    );
    assert!(!refused || response["patch"].is_null(), "{answer}");
    assert_eq!(response["patch"].is_string(), response["patchType"] == "JSONPatch", "{answer}");
}

fn ask(path: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
    let request = http::Request::post(path).header(CONTENT_TYPE, "application/json").body(Body::from(body));
    RUNTIME.block_on(async {
        let response = ROUTER.clone().oneshot(request.expect("a request")).await;
        let response = response.expect("the paths never fail");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body in memory").to_bytes();
        (status, body.to_vec())
    })
}

fn review(uid: &str, is_injection: bool, input: &mut Input<'_>) -> Value {
    let (group, kind, object) = if is_injection { owner(input) } else { written(input) };
    let operation = input.pick(&["CREATE", "UPDATE", "CREATE", "DELETE", "CONNECT", ""]).unwrap_or_default();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid, "kind": {"group": group, "version": "v1", "kind": kind}, "name": input.text(6),
            "namespace": input.pick(&["shop", "kube-system", ""]), "operation": operation, "object": object,
        },
    })
}

/// An object of a validated kind.
fn written(input: &mut Input<'_>) -> (String, String, Value) {
    let all = schemas::all();
    let schema = all.get(input.below(all.len())).unwrap_or_else(|| schemas::of(Kind::VirtualService));
    let mut object = generate::object(schema, input);
    if input.once_in(8) {
        object["metadata"]["deletionTimestamp"] = "2024-05-01T14:00:00Z".into();
    }
    if input.once_in(16) {
        object = json!([object]);
    }
    (schema.kind.group().to_owned(), schema.kind.name().to_owned(), object)
}

/// A Pod, or an object with a Pod template.
fn owner(input: &mut Input<'_>) -> (String, String, Value) {
    const ANNOTATIONS: &[&str] = &[
        "sidecar.istio.io/inject",
        "sidecar.istio.io/interceptionMode",
        "sidecar.istio.io/proxyCPU",
        "sidecar.istio.io/proxyImage",
        "traffic.sidecar.istio.io/excludeOutboundPorts",
        "traffic.sidecar.istio.io/includeInboundPorts",
        "prometheus.io/port",
        "sidecar.istio.io/status",
        "sidecar.istio.io/logLevel",
        "traffic.sidecar.istio.io/includeOutboundIPRanges",
    ];
    const VALUES: &[&str] =
        &["true", "false", "NONE", "TPROXY", "80,443", "*", "", "100m", "x\"y: {", "10.0.0.0/8", "99999"];
    let (group, kind, place) = OWNERS.get(input.below(OWNERS.len())).copied().unwrap_or(("", "Pod", ""));
    let mut pod = generate::object(schemas::of(Kind::Pod), input);
    for _ in 0..input.below(4) {
        let (name, value) =
            (input.pick(ANNOTATIONS).unwrap_or_default(), input.pick(VALUES).unwrap_or_default());
        let value = if input.once_in(8) { input.text(12) } else { value.to_owned() };
        pod["metadata"]["annotations"][name] = value.into();
    }
    if pod["spec"].is_object() || pod["spec"].is_null() {
        containers(&mut pod["spec"], input);
    }
    let mut object = pod;
    for step in place.rsplit('.').filter(|step| !step.is_empty()) {
        object = json!({step: object});
    }
    (group.to_owned(), kind.to_owned(), object)
}

fn containers(spec: &mut Value, input: &mut Input<'_>) {
    let container = |input: &mut Input<'_>| {
        let name = input.pick(&["web", "istio-proxy", "istio-init", ""]);
        match input.below(8) {
            0 => json!(input.text(4)),
            1 => {
                let env = json!([{"name": "A", "value": input.text(4)}]);
                json!({"name": name, "image": "auto", "env": env, "lifecycle": null})
            }
            2 => json!({"name": name, "ports": [{"containerPort": input.byte(), "name": "http-envoy-prom"}]}),
            _ => {
                let mounts = json!([{"name": "tmp", "mountPath": "/tmp"}]);
                json!({"name": name, "image": "web:1", "volumeMounts": mounts})
            }
        }
    };
    for list in ["containers", "initContainers"] {
        let made: Vec<Value> = (0..input.below(4)).map(|_| container(input)).collect();
        if !made.is_empty() {
            spec[list] = made.into();
        }
    }
    if input.once_in(8) {
        spec["hostNetwork"] = true.into();
    }
    if input.once_in(8) {
        spec["volumes"] = json!([{"name": "workload-socket", "emptyDir": {}}, {"name": input.text(5)}]);
    }
}
