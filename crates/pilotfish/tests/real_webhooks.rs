//! The built `pilotfish` as the webhooks of a real API server, with the manifests and the rights of
//! `deploy/`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use pilotfish_model::Kind;
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Authorization, Program, Tool, User, eventually, free_port,
};
use std::path::Path;
use support::kube::token;
use tokio::process::Command;

const ACCOUNT: &str = "system:serviceaccount:istio-system:pilotfish";

/// What only a person or `pilotfish validate` can know to be wrong.
const BAD: &str = "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: catalog, namespace: shop}
spec:
  hosts: [catalog]
  http:
  - match: [{uri: {regex: '(unclosed'}}]
    route: [{destination: {host: catalog}}]
";

const POLICY: &str = "pilotfish-validator";

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// A cluster in which rights count, with the manifests of `deploy/`.
async fn cluster() -> Option<ApiServer> {
    let user = User { token: "pilotfish".into(), name: ACCOUNT.into(), groups: Vec::new() };
    let options = ApiServerOptions {
        authorization: Authorization::Rbac,
        users: vec![user],
        ..ApiServerOptions::default()
    };
    let server = ApiServer::start(options).await?;
    for kind in [Kind::VirtualService, Kind::WorkloadEntry] {
        let definition = pilotfish_crd::definition(kind).unwrap();
        server.apply(&serde_json::to_string(&definition).unwrap()).await;
    }
    for name in ["namespace.yaml", "rbac.yaml", "rbac-secrets.yaml", "webhooks.yaml"] {
        server.apply(&manifest(name)).await;
    }
    server.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}").await;
    Some(server)
}

/// Pilotfish outside of the cluster, with the rights of its service account.
fn serve(server: &ApiServer, arguments: &[&str]) -> Program {
    let kubeconfig = server.folder().join("pilotfish-kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig_of("pilotfish")).unwrap();
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    command.args(["serve", "--kubernetes", "--kubeconfig"]).arg(kubeconfig);
    command.args(["--xds-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"]);
    command.args(["--webhook-address", &format!("127.0.0.1:{port}")]);
    command.args(["--webhook-url", &format!("https://127.0.0.1:{port}")]);
    command.args(arguments);
    Program::start(&mut command, server.folder().join("pilotfish.log"))
}

async fn policy(server: &ApiServer) -> String {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(server.client());
    api.get(POLICY).await.unwrap().webhooks.unwrap()[0].failure_policy.clone().unwrap()
}

async fn create_bad(server: &ApiServer) -> Result<(), String> {
    let kind = Kind::VirtualService;
    let gvk = GroupVersionKind::gvk(kind.group(), "v1", kind.name());
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    let api: Api<DynamicObject> = Api::namespaced_with(server.client(), "shop", &resource);
    let object: DynamicObject = serde_saphyr::from_str(BAD).unwrap();
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&params, &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_what_validate_refuses() {
    let Some(server) = cluster().await else { return };
    assert_eq!(create_bad(&server).await, Ok(()));
    let mut pilotfish = serve(&server, &[]);
    eventually("the validator is strict", || async {
        let policy = policy(&server).await;
        (policy == "Fail").then_some(()).ok_or_else(|| pilotfish.printed())
    })
    .await;
    // What the API server reads of a configuration is a moment behind what it stores, here and below.
    let refusal = eventually("the webhook refuses", || async {
        match create_bad(&server).await {
            Err(refusal) if refusal.contains("denied the request") => Ok(refusal),
            other => Err(other),
        }
    })
    .await;
    let words = refusal.split_once("denied the request: ").unwrap().1;

    let file = server.folder().join("bad.yaml");
    std::fs::write(&file, BAD).unwrap();
    let validate =
        Command::new(env!("CARGO_BIN_EXE_pilotfish")).arg("validate").arg(&file).output().await.unwrap();
    let printed = String::from_utf8(validate.stdout).unwrap();
    assert!(printed.contains(&format!("VirtualService shop/catalog: {words}")), "{words:?} in {printed:?}");

    pilotfish.terminate().await;
    assert_eq!(pilotfish.ended().await, Some(0));
    assert_eq!(policy(&server).await, "Ignore");
    eventually("nothing is checked", || create_bad(&server)).await;
}

/// A Pod as a ReplicaSet makes it, without a name.
const POD: &str = r#"{"metadata": {"generateName": "catalog-7d9f-", "labels": {"app": "catalog", "pod-template-hash": "7d9f"},
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "catalog-7d9f", "uid": "u", "controller": true}]},
    "spec": {"serviceAccountName": "catalog", "initContainers": [{"name": "migrate", "image": "b"}],
        "containers": [{"name": "app", "image": "a"}]}}"#;

async fn create_pod(server: &ApiServer, namespace: &str, change: impl Fn(&mut serde_json::Value)) -> Pod {
    let mut pod: serde_json::Value = serde_json::from_str(POD).unwrap();
    change(&mut pod);
    let api: Api<Pod> = Api::namespaced(server.client(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
}

fn containers(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.as_ref().unwrap();
    let init = spec.init_containers.iter().flatten();
    init.chain(&spec.containers).map(|container| container.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_labelled_namespaces_get_a_sidecar() {
    let Some(server) = cluster().await else { return };
    server
        .apply(
            "{apiVersion: v1, kind: Namespace, metadata: {name: asks, labels: {istio-injection: enabled}}}",
        )
        .await;
    server.apply("{apiVersion: v1, kind: Namespace, metadata: {name: revision, labels: {istio.io/rev: pilotfish}}}").await;
    let pilotfish = serve(&server, &[]);
    injects(&server, &pilotfish, "asks").await;

    let with = ["istio-proxy", "migrate", "app"];
    let label = |value: &'static str| {
        move |pod: &mut serde_json::Value| pod["metadata"]["labels"]["sidecar.istio.io/inject"] = value.into()
    };
    let pod = create_pod(&server, "asks", |_| ()).await;
    assert_eq!(containers(&pod), with);
    assert_eq!(containers(&create_pod(&server, "revision", |_| ()).await), with);
    assert_eq!(containers(&create_pod(&server, "shop", label("true")).await), with);
    let without = ["migrate", "app"];
    assert_eq!(containers(&create_pod(&server, "shop", |_| ()).await), without);
    assert_eq!(containers(&create_pod(&server, "asks", label("false")).await), without);
    assert_eq!(containers(&create_pod(&server, "revision", label("false")).await), without);
    let host = |pod: &mut serde_json::Value| pod["spec"]["hostNetwork"] = true.into();
    assert_eq!(containers(&create_pod(&server, "asks", host).await), without);
    envoy_takes(&pod).await;
}

async fn try_pod(server: &ApiServer, namespace: &str, pod: serde_json::Value) -> Result<Pod, String> {
    let api: Api<Pod> = Api::namespaced(server.client(), namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let pod = serde_json::from_value(pod).unwrap();
    api.create(&params, &pod).await.map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_pilotfish_can_start_it_again() {
    let Some(server) = cluster().await else { return };
    for name in ["asks", "istio-system", "kube-system"] {
        let labels =
            "labels: {istio-injection: enabled, kubernetes.io/metadata.name: NAME}".replace("NAME", name);
        server
            .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, {labels}}}}}"))
            .await;
    }
    // Nobody answers, and the configuration is strict.
    let pod: serde_json::Value = serde_json::from_str(POD).unwrap();
    eventually("the webhook is called", || async {
        match try_pod(&server, "asks", pod.clone()).await {
            Err(refusal) if refusal.contains("failed calling webhook") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    try_pod(&server, "kube-system", pod).await.unwrap();
    let deployment: serde_json::Value =
        serde_saphyr::from_multiple(&manifest("deployment.yaml")).unwrap().remove(0);
    let mut pilotfish = deployment["spec"]["template"].clone();
    pilotfish["metadata"]["generateName"] = "pilotfish-".into();
    try_pod(&server, "istio-system", pilotfish).await.unwrap();
}

/// As strict as namespaces can be: the rest is in the sidecar's own fields.
const STRICT: &str = r#"{"metadata": {"name": "strict"}, "spec": {"containers": [{"name": "app", "image": "a", "securityContext": {
    "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"}}}]}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_keep_the_restricted_standard_and_their_revision() {
    let Some(server) = cluster().await else { return };
    let labels = "{istio-injection: enabled, pod-security.kubernetes.io/enforce: restricted}";
    server
        .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: strict, labels: {labels}}}}}"))
        .await;
    let _pilotfish = serve(&server, &[]);
    let strict = eventually("a strict Pod can be made", || async {
        try_pod(&server, "strict", serde_json::from_str(STRICT).unwrap()).await
    })
    .await;
    assert_eq!(containers(&strict), ["istio-proxy", "app"]);
    let labelled = async |labels: serde_json::Value| {
        let mut pod: serde_json::Value = serde_json::from_str(STRICT).unwrap();
        pod["metadata"]["labels"] = labels;
        containers(&try_pod(&server, "shop", pod).await.unwrap()).len()
    };
    use serde_json::json;
    assert_eq!(labelled(json!({"istio.io/rev": "pilotfish"})).await, 2);
    assert_eq!(labelled(json!({"istio.io/rev": "pilotfish", "sidecar.istio.io/inject": "false"})).await, 1);
    assert_eq!(labelled(json!({"istio.io/rev": "other", "sidecar.istio.io/inject": "true"})).await, 1);
    let mut wrong: serde_json::Value = serde_json::from_str(STRICT).unwrap();
    wrong["metadata"]["annotations"] = json!({"traffic.sidecar.istio.io/excludeInboundPorts": "http"});
    let refusal = try_pod(&server, "strict", wrong).await.unwrap_err();
    assert!(refusal.contains("traffic.sidecar.istio.io/excludeInboundPorts"), "{refusal}");
}

/// Waits until the API server has sidecars added in that namespace.
async fn injects(server: &ApiServer, pilotfish: &Program, namespace: &str) {
    eventually("the injector's authorities are announced", || async {
        let api: Api<MutatingWebhookConfiguration> = Api::all(server.client());
        let webhooks = api.get("pilotfish-sidecar-injector").await.unwrap().webhooks.unwrap();
        let all = webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.is_some());
        all.then_some(()).ok_or_else(|| pilotfish.printed())
    })
    .await;
    eventually("a Pod can be made", || async {
        let api: Api<Pod> = Api::namespaced(server.client(), namespace);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        api.create(&params, &serde_json::from_str(POD).unwrap()).await.map_err(|error| error.to_string())
    })
    .await;
}

/// A sidecar over TLS, as the webhook makes it: with the token of its Pod, it is served what its account
/// gets.
#[tokio::test(flavor = "multi_thread")]
async fn sidecars_show_the_token_of_their_pod() {
    let Some(server) = cluster().await else { return };
    server
        .apply(
            "{apiVersion: v1, kind: Namespace, metadata: {name: asks, labels: {istio-injection: enabled}}}",
        )
        .await;
    let address = format!("127.0.0.1:{}", free_port());
    let over_tls =
        ["--secure-xds-address", &address, "--injection-xds-ca", "kept", "--injection-xds-address", &address];
    let pilotfish = serve(&server, &over_tls);
    injects(&server, &pilotfish, "asks").await;
    let pod = create_pod(&server, "asks", |_| ()).await;
    let volumes = serde_json::to_value(&pod.spec.as_ref().unwrap().volumes).unwrap();
    let source = &volumes[0]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(
        (source["audience"].as_str(), source["path"].as_str()),
        (Some("istio-ca"), Some("istio-token"))
    );
    let mounts = serde_json::to_value(&pod.spec.as_ref().unwrap().init_containers).unwrap();
    assert_eq!(mounts[0]["volumeMounts"][0]["mountPath"], "/var/run/secrets/tokens");

    // What a kubelet does, with ports that are free here.
    let file = server.folder().join("istio-token");
    std::fs::write(&file, token(&server, "catalog", "catalog", "istio-ca").await).unwrap();
    let mut arguments = filled(&pod, "127.0.0.1");
    arguments[1] = arguments[1].replace("/var/run/secrets/tokens/istio-token", file.to_str().unwrap());
    for port in ["15000", "15021", "15090"] {
        arguments[1] = arguments[1].replace(port, &free_port().to_string());
    }
    let Some(envoy) = Tool::Envoy.find() else { return };
    let mut command = Command::new(envoy);
    let envoy = Program::start(command.args(&arguments), server.folder().join("envoy.log"));
    eventually("the sidecar is connected", || async {
        let printed = pilotfish.printed();
        let connected = printed.contains("sidecar~127.0.0.1~catalog.catalog~catalog.svc.cluster.local-");
        connected.then_some(()).ok_or_else(|| format!("{printed}\n{}", envoy.printed()))
    })
    .await;
}

/// The arguments of the sidecar, as a kubelet fills them in.
fn filled(pod: &Pod, ip: &str) -> Vec<String> {
    let sidecar = &pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0];
    let ips = format!("{ip},fd00::1");
    let filled = |name: &str| match name {
        "POD_IP" => ip,
        "POD_IPS" => &ips,
        _ => "catalog",
    };
    let environment = sidecar.env.as_ref().unwrap();
    let fill = |argument: &String| {
        environment.iter().fold(argument.clone(), |text, variable| {
            text.replace(&format!("$({})", variable.name), filled(&variable.name))
        })
    };
    sidecar.args.as_ref().unwrap().iter().map(fill).collect()
}

/// Lets a real Envoy check what a sidecar is started with.
async fn envoy_takes(pod: &Pod) {
    let arguments = filled(pod, "10.1.0.1");
    let bootstrap: serde_json::Value = serde_json::from_str(&arguments[1]).unwrap();
    assert!(!arguments[1].contains("$("), "{}", arguments[1]);
    assert_eq!(bootstrap["node"]["id"], "sidecar~10.1.0.1~catalog.catalog~catalog.svc.cluster.local");
    assert_eq!(bootstrap["node"]["metadata"]["WORKLOAD_NAME"], "catalog");
    let Some(envoy) = Tool::Envoy.find() else { return };
    let output = Command::new(envoy).args(["--mode", "validate"]).args(&arguments).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
