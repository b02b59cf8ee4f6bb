//! Two Pilotfishes of different revisions on one real API server, with the chart's objects and rights: each
//! leaves alone what belongs to the other, and istioctl's rules find both.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilotfish_testkit::istioctl;
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Authorization, Program, Tool, User, eventually, fetch, free_port,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use tokio::process::Command;

const ROOT: &str = "istio-system";
const GATEWAY_API: &str = "gateway.networking.k8s.io";
const ISTIO: &str = "networking.istio.io";

const MESH: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: istio.io/gateway-controller}
";

/// A configuration of istiod, which nobody serves here: its webhook selects no Pod of these tests.
const ISTIOD: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: NAME, labels: {app: sidecar-injector, LABELS}}
webhooks:
- name: rev.namespace.sidecar-injector.istio.io
  clientConfig: {service: {name: istiod, namespace: istio-system, path: /inject, port: 443}}
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {istio.io/rev: nobody}}
  rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
";

fn labels(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!(", labels: {{istio.io/rev: {label}}}") }
}

/// A ServiceEntry that is named after its label `istio.io/rev`.
fn entry(name: &str, label: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: shop{}}}\nspec: {{hosts: \
         [{name}.example.com], resolution: DNS, ports: [{{number: 80, name: http, protocol: HTTP}}]}}\n",
        labels(label)
    )
}

fn gateway(name: &str, label: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}, namespace: shop{}}}\nspec: \
         {{gatewayClassName: istio, listeners: [{{name: http, port: 80, protocol: HTTP}}]}}\n",
        labels(label)
    )
}

/// A Gateway, a route to it and a ServiceEntry without addresses, each with that name and label.
fn with_statuses(name: &str, label: &str) -> String {
    let route = format!(
        "{{apiVersion: {GATEWAY_API}/v1, kind: HTTPRoute, metadata: {{name: {name}, namespace: shop{}}}, spec: {{parentRefs: \
         [{{name: {name}}}], rules: [{{}}]}}}}",
        labels(label)
    );
    [gateway(name, label), route, entry(name, label)].join("\n---\n")
}

/// Kinds of the objects of [`with_statuses`].
const WITH_STATUSES: [(&str, &str); 3] =
    [(GATEWAY_API, "Gateway"), (GATEWAY_API, "HTTPRoute"), (ISTIO, "ServiceEntry")];

/// The chart's objects for a release.
fn chart(settings: &[&str]) -> Option<String> {
    let mut helm = std::process::Command::new(Tool::Helm.find()?);
    helm.args(["template", "pilotfish", "pilotfish", "--namespace", ROOT, "--kube-version", "1.34.0"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm");
    let output = helm.args(settings).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A cluster in which rights count, with the chart of both revisions; `stable` is the default one.
async fn cluster() -> Option<ApiServer> {
    let stable = chart(&["--set=revision=stable", "--set=revisionTags={default}"])?;
    let canary = chart(&["--set=revision=canary"])?;
    let user = |revision: &str| User {
        token: revision.into(),
        name: format!("system:serviceaccount:{ROOT}:pilotfish-{revision}"),
        groups: Vec::new(),
    };
    let options = ApiServerOptions {
        authorization: Authorization::Rbac,
        users: vec![user("stable"), user("canary")],
        ..ApiServerOptions::default()
    };
    let server = ApiServer::start(options).await?;
    server.apply_definitions().await;
    server.apply(MESH).await;
    server.apply(&stable).await;
    server.apply(&canary).await;
    Some(server)
}

/// A Pilotfish outside of the cluster, with the rights of its release.
struct Revision {
    admin: u16,
    program: Program,
}

impl Revision {
    async fn start(server: &ApiServer, name: &str) -> Self {
        let kubeconfig = server.folder().join(format!("{name}-kubeconfig"));
        std::fs::write(&kubeconfig, server.kubeconfig_of(name)).unwrap();
        let (admin, webhook) = (free_port(), free_port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
        command.args(["serve", "--write-status=all", "--revision", name, "--kubernetes", "--kubeconfig"]);
        command.arg(kubeconfig);
        command.args(["--xds-address", "127.0.0.1:0", "--admin-address", &format!("127.0.0.1:{admin}")]);
        command.args(["--webhook-address", &format!("127.0.0.1:{webhook}")]);
        command.args(["--webhook-url", &format!("https://127.0.0.1:{webhook}")]);
        let program = Program::start(&mut command, server.folder().join(format!("{name}.log")));
        let this = Self { admin, program };
        eventually("it is ready", || async {
            this.get("/ready").await.map_err(|error| format!("{error}\n{}", this.program.printed()))
        })
        .await;
        this
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        fetch(&format!("http://127.0.0.1:{}{path}", self.admin)).await
    }

    /// Waits until these are the hosts of ServiceEntries, and that many objects are left to others.
    async fn has(&self, names: &[&str], left: u64) {
        let wanted: BTreeSet<String> = names.iter().map(|name| format!("{name}.example.com")).collect();
        eventually(&format!("its hosts are {names:?}"), || async {
            let services: Value = serde_json::from_str(&self.get("/debug/registryz").await?).unwrap();
            let hosts = services.as_array().unwrap().iter().filter_map(|one| one["hostname"].as_str());
            let hosts = hosts.filter(|host| host.ends_with(".example.com")).map(str::to_owned);
            let hosts: BTreeSet<String> = hosts.collect();
            let status: Value = serde_json::from_str(&self.get("/api/v1/status").await?).unwrap();
            let now = status["leftToOtherRevisions"].as_u64().unwrap_or_default();
            if hosts == wanted && now == left { Ok(()) } else { Err(format!("{hosts:?}, {now} left")) }
        })
        .await;
    }
}

fn objects(server: &ApiServer, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(server.client(), "shop", &resource)
}

/// True if a status was written: conditions of a generation (the definition's default has none), or
/// addresses.
fn is_written(status: &Value) -> bool {
    match status {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            name == "observedGeneration" && value.as_i64().is_some_and(|at| at > 0)
                || name == "addresses" && value.as_array().is_some_and(|all| !all.is_empty())
                || is_written(value)
        }),
        Value::Array(values) => values.iter().any(is_written),
        _ => false,
    }
}

/// Waits until the three objects of that name have statuses.
async fn have_statuses(server: &ApiServer, name: &str) {
    for (group, kind) in WITH_STATUSES {
        let api = objects(server, group, kind);
        eventually(&format!("{kind} {name} has a status"), || async {
            let object = api.get(name).await.map_err(|error| error.to_string())?;
            let status = &object.data["status"];
            if is_written(status) { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }
}

/// Asserts that none of the three objects of that name has a status.
async fn have_no_statuses(server: &ApiServer, name: &str) {
    for (group, kind) in WITH_STATUSES {
        let status = objects(server, group, kind).get(name).await.unwrap().data["status"].clone();
        assert!(!is_written(&status), "{kind} {name}: {status}");
    }
}

async fn relabel(api: &Api<DynamicObject>, name: &str, label: &str) {
    let patch = json!({"metadata": {"labels": {"istio.io/rev": label}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn configurations(server: &ApiServer) -> Vec<Value> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(server.client());
    let list = api.list(&ListParams::default()).await.unwrap();
    list.items.iter().map(|one| serde_json::to_value(one).unwrap()).collect()
}

/// `istioctl tag set`.
async fn tag(server: &ApiServer, tag: &str, revision: &str) {
    let configuration = istioctl::tag_set(&configurations(server).await, tag, revision).unwrap();
    server.apply(&configuration.to_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_revisions_divide_the_objects_of_a_cluster() {
    let Some(server) = cluster().await else { return };
    for (name, label) in [("free", ""), ("s", "stable"), ("c", "canary"), ("p", "prod")] {
        server.apply(&entry(name, label)).await;
    }
    let (stable, canary) =
        (Revision::start(&server, "stable").await, Revision::start(&server, "canary").await);
    stable.has(&["free", "s"], 2).await;
    canary.has(&["free", "c"], 2).await;

    tag(&server, "prod", "canary").await;
    canary.has(&["free", "c", "p"], 1).await;
    tag(&server, "prod", "stable").await;
    canary.has(&["free", "c"], 2).await;
    stable.has(&["free", "s", "p"], 1).await;

    let entries = objects(&server, ISTIO, "ServiceEntry");
    relabel(&entries, "c", "stable").await;
    canary.has(&["free"], 3).await;
    stable.has(&["free", "s", "p", "c"], 0).await;
    relabel(&entries, "c", "canary").await;
    canary.has(&["free", "c"], 2).await;

    // An object has its status from its revision; one without a label from the default revision.
    for (name, label) in [("other", "other"), ("of-canary", "canary"), ("of-stable", "stable"), ("plain", "")]
    {
        server.apply(&with_statuses(name, label)).await;
    }
    for name in ["of-canary", "of-stable", "plain"] {
        have_statuses(&server, name).await;
    }
    have_no_statuses(&server, "other").await;
    let leases: Api<Lease> = Api::namespaced(server.client(), ROOT);
    for name in ["pilotfish-status-leader-stable", "pilotfish-status-leader-canary"] {
        leases.get(name).await.unwrap();
    }
    assert!(leases.get_opt("pilotfish-status-leader").await.unwrap().is_none());

    // Without the canary nobody writes for it.
    let mut canary = canary;
    canary.program.terminate().await;
    assert_eq!(canary.program.ended().await, Some(0));
    server.apply(&with_statuses("later-canary", "canary")).await;
    server.apply(&with_statuses("later-stable", "stable")).await;
    have_statuses(&server, "later-stable").await;
    have_no_statuses(&server, "later-canary").await;
}

/// Waits until a Pod of that namespace gets a sidecar of that revision, or none.
async fn injects(server: &ApiServer, namespace: &str, revision: Option<&str>) {
    let api: Api<Pod> = Api::namespaced(server.client(), namespace);
    let pod =
        json!({"metadata": {"generateName": "a-"}, "spec": {"containers": [{"name": "app", "image": "a"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let params = PostParams { dry_run: true, ..PostParams::default() };
    eventually(&format!("{namespace} is injected by {revision:?}"), || async {
        let made = api.create(&params, &pod).await.map_err(|error| error.to_string())?;
        let annotations = made.metadata.annotations.unwrap_or_default();
        let status = annotations.get("sidecar.istio.io/status").cloned().unwrap_or_default();
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let found = annotations.get("istio.io/rev").map(String::as_str);
        let is_right = found == revision && status["revision"].as_str() == revision;
        if is_right { Ok(()) } else { Err(format!("{annotations:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_and_tags_choose_the_injector() {
    let Some(server) = cluster().await else { return };
    let _stable = Revision::start(&server, "stable").await;
    let _canary = Revision::start(&server, "canary").await;
    // An istiod of the revision `default`, with a tag of its own.
    for (name, label) in [
        ("istio-sidecar-injector", "istio.io/rev: default"),
        ("istio-revision-tag-old", "istio.io/rev: default, istio.io/tag: old"),
    ] {
        server.apply(&ISTIOD.replace("NAME", name).replace("LABELS", label)).await;
    }
    let of_istiod = |one: &Value| istioctl::label(one, "istio.io/rev") == "default";
    let istiods: Vec<Value> = configurations(&server).await.into_iter().filter(of_istiod).collect();
    assert_eq!(istiods.len(), 2);
    let trusted = || async {
        let all: Vec<Value> =
            configurations(&server).await.into_iter().filter(|one| !of_istiod(one)).collect();
        let known = |one: &Value| one["webhooks"][0]["clientConfig"]["caBundle"].is_string();
        if all.len() == 3 && all.iter().all(known) { Ok(all) } else { Err(format!("{all:#?}")) }
    };
    let all = eventually("the authorities are announced", trusted).await;
    assert_eq!(istioctl::injector_list(&all).len(), 3);
    let secrets: Api<Secret> = Api::namespaced(server.client(), ROOT);
    for name in ["pilotfish-webhook-certificate-stable", "pilotfish-webhook-certificate-canary"] {
        secrets.get(name).await.unwrap();
    }

    let cases = [
        ("asks", ("istio-injection", "enabled"), Some("stable")),
        ("tagged", ("istio.io/rev", "default"), Some("stable")),
        ("moves", ("istio.io/rev", "canary"), Some("canary")),
        ("other", ("istio.io/rev", "other"), None),
        ("prod", ("istio.io/rev", "prod"), None),
    ];
    for (name, (key, value), revision) in cases {
        let object = format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{{key}: {value}}}}}}}"
        );
        server.apply(&object).await;
        injects(&server, name, revision).await;
        // What istioctl would say of the same Pod.
        let said = istioctl::check_inject(&all, &[(key, value)], &[]);
        assert_eq!(said.values().next().copied(), revision, "{name}");
    }

    // A canary upgrade: the namespace moves, then the tag.
    let namespaces: Api<Namespace> = Api::all(server.client());
    let patch = json!({"metadata": {"labels": {"istio.io/rev": "stable"}}});
    namespaces.patch("moves", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    injects(&server, "moves", Some("stable")).await;
    for revision in ["stable", "canary"] {
        tag(&server, "prod", revision).await;
        assert_eq!(istioctl::tag_list(&configurations(&server).await)["prod"], revision);
        injects(&server, "prod", Some(revision)).await;
    }
    let now: Vec<Value> = configurations(&server).await.into_iter().filter(of_istiod).collect();
    assert_eq!(now, istiods, "what belongs to istiod is as it was");
}
