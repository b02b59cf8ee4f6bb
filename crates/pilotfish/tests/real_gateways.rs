//! Deployments and Services of Gateways on a real API server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Authority, Authorization, Backend, EnvoyPod, Host, Program, Tunnel, User,
    eventually, fetch, free_port,
};
use serde_json::{Value, json};
use std::path::Path;
use tokio::process::Command;

const ACCOUNT: &str = "system:serviceaccount:istio-system:pilotfish";

const GATEWAY: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec:
  gatewayClassName: pilotfish
  infrastructure: {labels: {team: edge}PARAMETERS}
  listeners: [{name: http, port: 80, protocol: HTTP}LISTENERS]
";

const PARAMETERS: &str = ", parametersRef: {group: '', kind: ConfigMap, name: front}";

const REPLICAS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: front, namespace: shop}
data: {deployment: 'spec: {replicas: 3}', podDisruptionBudget: 'spec: {minAvailable: 1}'}
";

/// Objects that a person made before the Gateway.
const BY_HAND: &str = "
apiVersion: v1
kind: Service
metadata: {name: old-pilotfish, namespace: shop}
spec: {ports: [{name: http, port: 80}], selector: {app: old}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: old, namespace: shop}
spec: {gatewayClassName: pilotfish, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: named, namespace: shop}
spec:
  gatewayClassName: pilotfish
  addresses: [{type: Hostname, value: old-pilotfish}]
  listeners: [{name: http, port: 80, protocol: HTTP}]
";

fn gateway(parameters: &str, listeners: &str) -> String {
    GATEWAY.replace("PARAMETERS", parameters).replace("LISTENERS", listeners)
}

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// A cluster in which rights count, with the roles of `deploy/`.
async fn cluster() -> Option<ApiServer> {
    cluster_with(&[]).await
}

async fn cluster_with(flags: &[String]) -> Option<ApiServer> {
    let user = User { token: "pilotfish".into(), name: ACCOUNT.into(), groups: Vec::new() };
    let options =
        ApiServerOptions { authorization: Authorization::Rbac, users: vec![user], flags: flags.to_vec() };
    let server = ApiServer::start(options).await?;
    server.apply_definitions().await;
    for name in ["namespace.yaml", "rbac.yaml", "rbac-secrets.yaml", "rbac-gateways.yaml", "webhooks.yaml"] {
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
    command.args(["--injection-xds-ca", "kept"]);
    command.args(arguments);
    Program::start(&mut command, server.folder().join("pilotfish.log"))
}

fn api(server: &ApiServer, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(server.client(), "shop", &resource)
}

/// Waits until an object is as asked; returns it.
async fn becomes(
    pilotfish: &Program,
    api: &Api<DynamicObject>,
    name: &str,
    is_right: impl Fn(&Value) -> bool,
) -> Value {
    eventually(&format!("{name} is right"), || async {
        let object = api.get_opt(name).await.unwrap().ok_or_else(|| pilotfish.printed())?;
        let object = serde_json::to_value(object).unwrap();
        if is_right(&object) { Ok(object) } else { Err(format!("{object:#}\n{}", pilotfish.printed())) }
    })
    .await
}

fn condition<'a>(gateway: &'a Value, name: &str) -> &'a str {
    let conditions = gateway["status"]["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == name);
    found.next().and_then(|condition| condition["reason"].as_str()).unwrap_or_default()
}

fn ports(service: &Value) -> Vec<u64> {
    let ports = service["spec"]["ports"].as_array().unwrap().iter();
    ports.map(|port| port["port"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_gets_its_objects_and_they_follow_it() {
    let Some(server) = cluster().await else { return };
    let pilotfish = serve(&server, &["--gateway-deployments", "on"]);
    let gateways = api(&server, "gateway.networking.k8s.io", "v1", "Gateway");
    let (deployments, services) =
        (api(&server, "apps", "v1", "Deployment"), api(&server, "", "v1", "Service"));
    let budgets = api(&server, "policy", "v1", "PodDisruptionBudget");
    let name = "front-pilotfish";

    server.apply(&gateway("", "")).await;
    let service = becomes(&pilotfish, &services, name, |it| ports(it) == [15021, 80]).await;
    let deployment = becomes(&pilotfish, &deployments, name, |_| true).await;
    let uid = gateways.get("front").await.unwrap().metadata.uid.unwrap();
    for object in [&service, &deployment] {
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], json!(uid));
        assert_eq!(object["metadata"]["labels"]["team"], "edge");
    }
    let pod = &deployment["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["service.istio.io/canonical-name"], name);
    assert_eq!(pod["spec"]["serviceAccountName"], name);
    let bootstrap: Value =
        serde_json::from_str(pod["spec"]["containers"][0]["args"][1].as_str().unwrap()).unwrap();
    assert!(bootstrap["node"]["id"].as_str().unwrap().starts_with("router~"), "{bootstrap}");
    assert!(bootstrap.to_string().contains("BEGIN CERTIFICATE"), "it verifies Pilotfish");
    let accounts = api(&server, "", "v1", "ServiceAccount");
    becomes(&pilotfish, &accounts, name, |_| true).await;

    // Nobody gives the load balancer an address yet.
    becomes(&pilotfish, &gateways, "front", |it| condition(it, "Programmed").starts_with("Address")).await;

    server.apply(&gateway("", ", {name: tcp, port: 90, protocol: TCP}")).await;
    becomes(&pilotfish, &services, name, |it| ports(it) == [15021, 80, 90]).await;
    let after = becomes(&pilotfish, &deployments, name, |_| true).await;
    assert_eq!(after["metadata"]["generation"], deployment["metadata"]["generation"], "no Pod is replaced");

    let by_hand = json!({"metadata": {"labels": {"team": "other"}}});
    services.patch(name, &PatchParams::default(), &Patch::Merge(by_hand)).await.unwrap();
    becomes(&pilotfish, &services, name, |it| it["metadata"]["labels"]["team"] == "edge").await;

    server.apply(&gateway(PARAMETERS, "")).await;
    becomes(&pilotfish, &gateways, "front", |it| condition(it, "Accepted") == "InvalidParameters").await;
    server.apply(REPLICAS).await;
    becomes(&pilotfish, &deployments, name, |it| it["spec"]["replicas"] == 3).await;
    becomes(&pilotfish, &budgets, name, |it| it["spec"]["minAvailable"] == 1).await;
    becomes(&pilotfish, &gateways, "front", |it| condition(it, "Accepted") == "Accepted").await;
    server.apply(&gateway("", "")).await;
    eventually("the budget is deleted", || async {
        let budget = budgets.get_opt(name).await.unwrap();
        budget.map_or(Ok(()), |_| Err(pilotfish.printed()))
    })
    .await;
    let printed = pilotfish.printed();
    assert!(!printed.contains("forbidden"), "{printed}");
}

/// Address of the gateway's Pod and of its load balancer, and of a backend: endpoints may not be on loopback.
const POD: &str = "10.77.0.2";

/// Backend of the Gateway, with its route.
const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: http, port: 80, targetPort: PORT}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: PORT}]
endpoints: [{addresses: [10.77.0.2], conditions: {ready: true}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: web, port: 80}]}]}
";

const TLS: &str = ", {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: front}]}}";

/// Waits for the backend's answer.
async fn answers(pod: &EnvoyPod, pilotfish: &Program, url: &str) {
    eventually("the backend answers", || async {
        match fetch(url).await {
            Ok(answer) if answer == "web" => Ok(()),
            other => Err(format!("{other:?}\n{}\n{}", pod.printed(), pilotfish.printed())),
        }
    })
    .await;
}

async fn envoy_of_the_pod_template_serves() {
    // Without a default route, an API server knows no address of its own.
    let Some(server) = cluster_with(&[format!("--advertise-address={POD}")]).await else { return };
    let backend = Backend::start(POD, "web").await;
    server.apply(&SHOP.replace("PORT", &backend.port().to_string())).await;
    server.apply(&gateway("", "")).await;
    let xds = format!("127.0.0.1:{}", free_port());
    let xds = ["--secure-xds-address", &xds, "--injection-xds-address", &xds];
    let pilotfish = serve(&server, &[&["--gateway-deployments", "on"], &xds[..]].concat());
    let gateways = api(&server, "gateway.networking.k8s.io", "v1", "Gateway");
    let (deployments, services) =
        (api(&server, "apps", "v1", "Deployment"), api(&server, "", "v1", "Service"));
    let name = "front-pilotfish";
    let service = becomes(&pilotfish, &services, name, |it| ports(it) == [15021, 80]).await;
    let deployment = becomes(&pilotfish, &deployments, name, |_| true).await;
    becomes(&pilotfish, &gateways, "front", |it| condition(it, "Programmed") == "AddressNotUsable").await;

    let Some(pod) = EnvoyPod::start(&server, &deployment, POD).await else { return };
    eventually("the Pod is ready", || async {
        pod.ready().await.map_err(|error| format!("{error}\n{}", pilotfish.printed()))
    })
    .await;
    pod.serve(&server, &service).await;
    becomes(&pilotfish, &gateways, "front", |it| condition(it, "Programmed") == "AddressNotAssigned").await;
    let address = json!({"status": {"loadBalancer": {"ingress": [{"ip": POD}]}}});
    services.patch_status(name, &PatchParams::default(), &Patch::Merge(address)).await.unwrap();
    let front =
        becomes(&pilotfish, &gateways, "front", |it| condition(it, "Programmed") == "Programmed").await;
    assert_eq!(front["status"]["addresses"], json!([{"type": "IPAddress", "value": POD}]));
    answers(&pod, &pilotfish, &format!("http://{POD}/")).await;

    let authority = Authority::new();
    let (certificate, key) = authority.server();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "front", "namespace": "shop"},
        "data": {"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)},
    });
    server.apply(&secret.to_string()).await;
    server.apply(&gateway("", TLS)).await;
    let service = becomes(&pilotfish, &services, name, |it| ports(it) == [15021, 80, 443]).await;
    pod.serve(&server, &service).await;
    let tunnel = Tunnel::of_http1(443, authority.root()).await;
    answers(&pod, &pilotfish, &format!("http://127.0.0.1:{}/", tunnel.port())).await;
    let after = becomes(&pilotfish, &deployments, name, |_| true).await;
    assert_eq!(after["metadata"]["generation"], deployment["metadata"]["generation"], "no Pod is replaced");
}

/// In a network of its own, where the ports of the Gateway are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pod_template_runs_as_written_and_serves_the_gateway() {
    let Some(host) = Host::new() else { return };
    host.give(&format!("{POD}/32"), "lo").await;
    host.here(envoy_of_the_pod_template_serves()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_others_are_left_alone() {
    let Some(server) = cluster().await else { return };
    server.apply(BY_HAND).await;
    let pilotfish = serve(&server, &["--gateway-deployments", "on"]);
    let deployments = api(&server, "apps", "v1", "Deployment");
    // Gateways are handled in the order of their names, and this one comes last.
    server.apply(&gateway("", "").replace("front", "zone")).await;
    becomes(&pilotfish, &deployments, "zone-pilotfish", |_| true).await;
    eventually("the problem is reported", || async {
        let printed = pilotfish.printed();
        let is_reported =
            printed.contains("Service shop/old-pilotfish exists and is not owned by the Gateway");
        if is_reported { Ok(()) } else { Err(printed) }
    })
    .await;
    let printed = pilotfish.printed();
    let admin = printed.split("admin=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let problems = fetch(&format!("http://{admin}/api/v1/problems")).await.unwrap();
    assert_eq!(problems.matches("is not owned by the Gateway").count(), 1, "{problems}");
    let service = api(&server, "", "v1", "Service").get("old-pilotfish").await.unwrap();
    assert!(service.metadata.owner_references.is_none() && service.metadata.labels.is_none());
    let names: Vec<String> = deployments
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|object| object.metadata.name)
        .collect();
    assert_eq!(names, ["zone-pilotfish"], "neither `old` nor `named` has a Deployment");
}

/// Field manager of an istiod.
const ISTIOD: &str = "istio.io/gateway-controller";

/// Gateway of an istiod, whose port 90 is new.
const OF_ISTIOD: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front, namespace: shop, annotations: {note: a}}
spec:
  gatewayClassName: istio
  listeners: [{name: http, port: 80, protocol: HTTP}, {name: tcp, port: 90, protocol: TCP}]
";

/// Objects that an istiod made for it when it had the ports 80 and 81, with the selector of old releases.
fn objects_of_istiod(uid: &str) -> [(&'static str, &'static str, &'static str, Value); 3] {
    let metadata = json!({
        "name": "front-istio", "namespace": "shop",
        "labels": {"gateway.istio.io/managed": "istio.io-gateway-controller",
                   "gateway.networking.k8s.io/gateway-class-name": "istio",
                   "gateway.networking.k8s.io/gateway-name": "front"},
        "annotations": {"of": "istiod"},
        "ownerReferences": [{"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "Gateway",
                             "name": "front", "uid": uid}],
    });
    let labels = json!({"gateway.networking.k8s.io/gateway-name": "front", "istio.io/gateway-name": "front"});
    let container = json!({
        "name": "istio-proxy", "image": "istio/proxyv2:1.31.0", "args": ["proxy", "router"],
        "env": [{"name": "CA_ADDR", "value": "istiod.istio-system.svc:15012"}],
        "volumeMounts": [{"name": "istiod-ca-cert", "mountPath": "/var/run/secrets/istio"}],
    });
    let deployment = json!({
        "replicas": 3,
        "selector": {"matchLabels": {"istio.io/gateway-name": "front"}},
        "template": {"metadata": {"labels": labels}, "spec": {
            "serviceAccountName": "front-istio", "containers": [container],
            "volumes": [{"name": "istiod-ca-cert", "configMap": {"name": "istio-ca-root-cert"}}],
        }},
    });
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "protocol": "TCP"});
    let service = json!({
        "type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack",
        "selector": {"gateway.networking.k8s.io/gateway-name": "front"},
        "ports": [port("status-port", 15021), port("http", 80), port("old", 81)],
    });
    [
        ("", "v1", "ServiceAccount", json!({"metadata": metadata})),
        ("", "v1", "Service", json!({"metadata": metadata, "spec": service})),
        ("apps", "v1", "Deployment", json!({"metadata": metadata, "spec": deployment})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_an_istiod_are_taken_over_in_place() {
    let Some(server) = cluster().await else { return };
    server.apply(&CLASS.replace("name: pilotfish", "name: istio").replace("pilotfish.io", "istio.io")).await;
    server.apply(OF_ISTIOD).await;
    let gateways = api(&server, "gateway.networking.k8s.io", "v1", "Gateway");
    let uid = gateways.get("front").await.unwrap().metadata.uid.unwrap();
    for (group, version, kind, mut object) in objects_of_istiod(&uid) {
        object["apiVersion"] =
            json!(if group.is_empty() { version.into() } else { format!("{group}/{version}") });
        object["kind"] = json!(kind);
        let apply = PatchParams::apply(ISTIOD).force();
        api(&server, group, version, kind)
            .patch("front-istio", &apply, &Patch::Apply(&object))
            .await
            .unwrap();
    }
    let (deployments, services) =
        (api(&server, "apps", "v1", "Deployment"), api(&server, "", "v1", "Service"));
    let stored = async |api: &Api<DynamicObject>| -> Value {
        serde_json::to_value(api.get("front-istio").await.unwrap()).unwrap()
    };
    let (service, deployment) = (stored(&services).await, stored(&deployments).await);

    let mut pilotfish = serve(&server, &["--gateway-deployments", "on"]);
    eventually("the istiod's objects are reported", || async {
        let printed = pilotfish.printed();
        if printed.contains("front-istio is applied by an istiod") { Ok(()) } else { Err(printed) }
    })
    .await;
    assert_eq!((stored(&services).await, stored(&deployments).await), (service.clone(), deployment.clone()));
    pilotfish.terminate().await;
    pilotfish.ended().await;

    let pilotfish = serve(&server, &["--gateway-deployments", "on", "--gateway-istio-class", "on"]);
    let name = "front-istio";
    let of_istiod = |object: &Value| object["metadata"]["managedFields"].to_string().contains(ISTIOD);
    let after = becomes(&pilotfish, &services, name, |it| ports(it) == [15021, 80, 90]).await;
    assert!(!of_istiod(&after), "{after:#}");
    assert_eq!(
        (&after["spec"]["clusterIP"], &after["metadata"]["uid"]),
        (&service["spec"]["clusterIP"], &service["metadata"]["uid"])
    );
    let after =
        becomes(&pilotfish, &deployments, name, |it| it["metadata"]["annotations"]["note"] == "a").await;
    assert_eq!(after["spec"]["template"], deployment["spec"]["template"], "no Pod is replaced");
    assert!(of_istiod(&after), "its Pod template is still the istiod's");
    is_corrected_after_an_edit(&pilotfish, &deployments, &after).await;

    let annotation = json!({"metadata": {"annotations": {"gateway.pilotfish.io/proxy": "envoy"}}});
    gateways.patch("front", &PatchParams::default(), &Patch::Merge(annotation)).await.unwrap();
    let after = becomes(&pilotfish, &deployments, name, |it| {
        !of_istiod(it) && it["spec"]["template"]["spec"]["containers"][0]["args"][0] == "--config-yaml"
    })
    .await;
    assert_eq!(after["spec"]["selector"], deployment["spec"]["selector"]);
    let pod = &after["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&pod["volumes"]), ["istio-token"], "{pod:#}");
    assert!(!names(&pod["containers"][0]["env"]).contains(&"CA_ADDR".to_owned()), "{pod:#}");
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);

    is_rolled_by_no_restart(&server, pilotfish, &after).await;
}

/// Edits a Deployment that was taken over with its Pods.
async fn is_corrected_after_an_edit(pilotfish: &Program, api: &Api<DynamicObject>, deployment: &Value) {
    assert_eq!(deployment["metadata"]["annotations"]["of"], Value::Null, "{deployment:#}");
    assert_eq!(deployment["spec"]["replicas"], 3, "nobody applies them");
    let name = deployment["metadata"]["name"].as_str().unwrap();
    let by_hand = json!({"metadata": {"annotations": {"note": "b"}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(by_hand)).await.unwrap();
    let is_corrected = |it: &Value| it["metadata"]["annotations"]["note"] == "a";
    let after = becomes(pilotfish, api, name, is_corrected).await;
    assert_eq!(after["spec"], deployment["spec"]);
}

/// Restarts Pilotfish, as an upgrade that renders the same objects.
async fn is_rolled_by_no_restart(server: &ApiServer, mut pilotfish: Program, deployment: &Value) {
    pilotfish.terminate().await;
    pilotfish.ended().await;
    // The log is one of both processes.
    let applied =
        |pilotfish: &Program| pilotfish.printed().matches("applied the objects of a Gateway").count();
    let before = applied(&pilotfish);
    let pilotfish = serve(server, &["--gateway-deployments", "on", "--gateway-istio-class", "on"]);
    eventually("the objects are applied again", || async {
        if applied(&pilotfish) > before { Ok(()) } else { Err(pilotfish.printed()) }
    })
    .await;
    let name = deployment["metadata"]["name"].as_str().unwrap();
    let again = api(server, "apps", "v1", "Deployment").get(name).await.unwrap();
    assert_eq!(json!(again.metadata.generation), deployment["metadata"]["generation"], "no Pod is replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_where_that_is_off() {
    let Some(server) = cluster().await else { return };
    server
        .apply(&format!("{GATEWAY}---\n{CLASS}").replace("PARAMETERS", PARAMETERS).replace("LISTENERS", ""))
        .await;
    let pilotfish = serve(&server, &["--gateway-deployments", "off"]);
    let gateways = api(&server, "gateway.networking.k8s.io", "v1", "Gateway");
    becomes(&pilotfish, &gateways, "front", |it| condition(it, "Accepted") == "Accepted").await;
    for (group, kind) in [("apps", "Deployment"), ("", "Service")] {
        let found = api(&server, group, "v1", kind).list(&Default::default()).await.unwrap().items;
        assert!(found.is_empty(), "{found:?}");
    }
}

const CLASS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: pilotfish}
spec: {controllerName: pilotfish.io/gateway-controller}
";
