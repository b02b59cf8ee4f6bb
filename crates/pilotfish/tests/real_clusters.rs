//! Several clusters in one mesh, each with a real API server: Secrets bring them, change them and take them
//! away.

mod support;

use base64::Engine;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Authority, Authorization, Pilotfish, User, eventually,
};
use serde_json::Value;
use std::time::Duration;
use support::delta::{Proxy, node};
use support::kube::{BINARY, addresses, cluster, has_addresses, install_definitions};
use tokio::net::TcpListener;

const HOST: &str = "web.shop.svc.cluster.local";
const WEB: &str = "outbound|80||web.shop.svc.cluster.local";

fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A Secret with kubeconfigs by cluster.
fn secret(name: &str, clusters: &[(&str, &str)]) -> String {
    let data: String =
        clusters.iter().map(|(id, kubeconfig)| format!("  {id}: {}\n", base64(kubeconfig))).collect();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: istio-system, labels: {{istio/multiCluster: \
         'true'}}}}\ndata:\n{data}"
    )
}

fn service(name: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{selector: {{app: {name}}}, ports: [{{name: http, port: 80{more}}}]}}\n---\n"
    )
}

/// A ready Pod behind `web`, reachable with mutual TLS, with its slice.
fn pod(name: &str, address: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{app: web, security.istio.io/tlsMode: \
         istio}}}}\nspec: {{containers: [{{name: app, image: x}}]}}\n\
         status: {{phase: Running, podIP: {address}, podIPs: [{{ip: {address}}}], conditions: [{{type: Ready, status: 'True'}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: 8080}}]\n\
         endpoints: [{{addresses: [{address}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {name}, namespace: shop}}}}]\n---\n"
    )
}

/// The network of a whole cluster, and its gateway for the others.
fn network(name: &str, gateway: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: istio-system, labels: {{topology.istio.io/network: {name}}}}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: eastwest, namespace: istio-system, labels: {{topology.istio.io/network: \
         {name}}}}}\nspec: {{type: LoadBalancer, ports: [{{name: tls, port: 15443}}]}}\n\
         status: {{loadBalancer: {{ingress: [{{ip: {gateway}}}]}}}}\n---\n"
    )
}

fn serve(own: &ApiServer, more: &[&str]) -> Pilotfish {
    let kubeconfig = own.kubeconfig();
    let kubeconfig = kubeconfig.to_string_lossy();
    Pilotfish::launch(BINARY, &[&["--kubernetes", "--kubeconfig", &kubeconfig], more].concat())
}

/// How the registry of that name is; null when there is none.
async fn registry(pilotfish: &Pilotfish, name: &str) -> Value {
    find(&pilotfish.json("/debug/registryz?registries=true").await, name)
}

fn find(all: &Value, name: &str) -> Value {
    let mut all = all.as_array().into_iter().flatten();
    all.find(|registry| registry["name"] == name).cloned().unwrap_or_default()
}

async fn registry_is(pilotfish: &Pilotfish, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("{name} {what}"), || async {
        // Right after the start nothing listens yet.
        let page = pilotfish.page("/debug/registryz?registries=true").await?;
        let registry = find(&serde_json::from_str(&page).map_err(|error| error.to_string())?, name);
        if test(&registry) { Ok(registry) } else { Err(registry.to_string()) }
    })
    .await
}

/// A cluster with Istio's kinds, and one that has them as well, with `web` in both.
async fn two() -> Option<(ApiServer, ApiServer)> {
    let (own, other) = tokio::join!(cluster(), cluster());
    let (own, other) = (own?, other?);
    tokio::join!(
        own.apply_owned(service("web", "") + &pod("web-1", "10.1.0.1")),
        other.apply_owned(service("web", "") + &pod("web-2", "10.2.0.1")),
    );
    Some((own, other))
}

trait ApplyOwned {
    async fn apply_owned(&self, yaml: String);
}

impl ApplyOwned for ApiServer {
    async fn apply_owned(&self, yaml: String) {
        self.apply(&yaml).await;
    }
}

fn admin(server: &ApiServer) -> String {
    server.remote_kubeconfig("admintoken")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_networks_and_workload_entries_of_two_clusters_are_one_mesh() {
    let Some((own, other)) = two().await else { return };
    own.apply(&network("n1", "192.0.2.1")).await;
    other.apply(&network("n2", "192.0.2.2")).await;
    let entry = |name: &str, host: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{hosts: [{host}], resolution: STATIC, ports: [{{name: http, number: 80, protocol: HTTP}}], \
             workloadSelector: {{labels: {{app: vm}}}}}}\n---\n"
        )
    };
    own.apply(&entry("selecting", "vm.example.com")).await;
    other
        .apply_owned(
            entry("ignored", "ignored.example.com")
                + &service("legacy", "").replace("app: legacy", "app: vm")
                + "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, namespace: shop}\n\
                   spec: {address: 10.2.0.99, labels: {app: vm}}\n",
        )
        .await;
    own.apply(&secret("remote", &[("c2", &admin(&other)), ("Kubernetes", "the own cluster is left out")]))
        .await;
    let pilotfish = serve(&own, &[]);
    pilotfish.ready().await;

    assert_eq!(addresses(&pilotfish, HOST).await, ["10.1.0.1", "10.2.0.1"], "ready means that both are read");
    let shards = pilotfish.json("/debug/endpointz").await[HOST]["shop"]["Shards"].clone();
    let shards: Vec<&String> = shards.as_object().into_iter().flat_map(|shards| shards.keys()).collect();
    assert_eq!(shards, ["Kubernetes/Kubernetes", "Kubernetes/c2"]);
    assert_eq!(addresses(&pilotfish, "vm.example.com").await, ["10.2.0.99"]);
    assert_eq!(addresses(&pilotfish, "legacy.shop.svc.cluster.local").await, ["10.2.0.99"]);
    let services = pilotfish.page("/debug/registryz").await.unwrap_or_default();
    assert!(!services.contains("ignored.example.com"), "ServiceEntries of other clusters do not count");
    assert!((pilotfish.metric("istiod_managed_clusters").await - 1.0).abs() < f64::EPSILON);

    let at = |cluster, network| {
        let metadata = [("CLUSTER_ID", cluster), ("NETWORK", network), ("NAMESPACE", "shop")];
        node("sidecar~10.9.9.9~client.shop~shop.svc.cluster.local", &metadata)
    };
    let mut here = Proxy::connect(&pilotfish, at("Kubernetes", "n1"), &[WEB]).await.expect("it is served");
    let mut there = Proxy::connect(&pilotfish, at("c2", "n2"), &[WEB]).await.expect("it is served");
    here.has_endpoints(WEB, &["10.1.0.1:8080 1", "192.0.2.2:15443 1"]).await;
    there.has_endpoints(WEB, &["10.2.0.1:8080 1", "192.0.2.1:15443 1"]).await;
    other.apply(&pod("web-3", "10.2.0.3")).await;
    there.has_endpoints(WEB, &["10.2.0.1:8080 1", "10.2.0.3:8080 1", "192.0.2.1:15443 1"]).await;
    here.has_endpoints(WEB, &["10.1.0.1:8080 1", "192.0.2.2:15443 2"]).await;
    own.delete(&secret("remote", &[])).await;
    here.has_endpoints(WEB, &["10.1.0.1:8080 1"]).await;
}

const EXPORT: &str = "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: {name: web, namespace: shop}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_and_imports_cross_clusters() {
    let Some((own, other)) = two().await else { return };
    own.apply(&secret("remote", &[("c2", &admin(&other))])).await;
    let pilotfish = serve(&own, &["--multi-cluster-services", "hosts"]);
    pilotfish.ready().await;
    const SET: &str = "outbound|80||web.shop.svc.clusterset.local";
    let client = node(
        "sidecar~10.9.9.9~client.shop~shop.svc.cluster.local",
        &[("CLUSTER_ID", "Kubernetes"), ("NAMESPACE", "shop")],
    );
    let mut proxy = Proxy::connect(&pilotfish, client, &[WEB, SET]).await.expect("it is served");
    proxy.has_endpoints(WEB, &["10.1.0.1:8080 1"]).await;
    other.apply(EXPORT).await;
    proxy.has_endpoints(WEB, &["10.1.0.1:8080 1", "10.2.0.1:8080 1"]).await;
    let import = "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\nmetadata: {name: web, namespace: shop}\n\
                  spec: {type: ClusterSetIP, ips: [10.96.77.77], ports: [{port: 80}]}\n";
    own.apply(import).await;
    proxy.has_endpoints(SET, &["10.1.0.1:8080 1", "10.2.0.1:8080 1"]).await;
    other.delete(EXPORT).await;
    proxy.has_endpoints(SET, &["10.1.0.1:8080 1"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_dies_keeps_its_endpoints_and_shows_since_when() {
    let Some((own, mut other)) = two().await else { return };
    let pilotfish = serve(&own, &[]);
    pilotfish.ready().await;
    assert_eq!(addresses(&pilotfish, HOST).await, ["10.1.0.1"]);
    own.apply(&secret("remote", &[("c2", &admin(&other))])).await;
    has_addresses(&pilotfish, HOST, 2).await;
    registry_is(&pilotfish, "Kubernetes/c2", "is in sync", |status| status["synced"] == true).await;

    other.kill().await;
    let failing =
        registry_is(&pilotfish, "Kubernetes/c2", "fails", |status| status["failure"].is_string()).await;
    assert!(failing["failingSince"].is_string() && failing["synced"] == true, "{failing}");
    assert!(registry(&pilotfish, "Kubernetes/Kubernetes").await["failure"].is_null());
    assert_eq!(addresses(&pilotfish, HOST).await, ["10.1.0.1", "10.2.0.1"]);
    own.apply(&pod("web-3", "10.1.0.3")).await;
    has_addresses(&pilotfish, HOST, 3).await;
    let later = registry(&pilotfish, "Kubernetes/c2").await;
    assert_eq!(later["failingSince"], failing["failingSince"], "the first moment is kept");
    assert!(pilotfish.page("/ready").await.is_ok());

    other.restart().await;
    other.apply(&pod("web-4", "10.2.0.4")).await;
    has_addresses(&pilotfish, HOST, 4).await;
    registry_is(&pilotfish, "Kubernetes/c2", "recovers", |status| status["failure"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_rotated_without_a_gap_and_dangerous_ones_refused() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("clients.pem");
    std::fs::write(&root, authority.root()).expect("the folder can be written");
    let user = User { token: "second".into(), name: "reader".into(), groups: Vec::new() };
    let options = ApiServerOptions {
        users: vec![user],
        flags: vec![format!("--client-ca-file={}", root.display())],
        ..ApiServerOptions::default()
    };
    let (own, other) = tokio::join!(cluster(), ApiServer::start(options));
    let (Some(own), Some(other)) = (own, other) else { return };
    other.apply_owned(service("web", "") + &pod("web-2", "10.2.0.1")).await;
    own.apply(&secret("remote", &[("c2", &admin(&other))])).await;
    let pilotfish = serve(&own, &[]);
    pilotfish.ready().await;
    has_addresses(&pilotfish, HOST, 1).await;

    // A Pod that is new after each rotation shows that the new credentials are in use; until then the old
    // ones serve.
    let (certificate, key) = authority.client("certified");
    let certified = other.remote_kubeconfig("TOKEN").replace(
        "token: TOKEN",
        &format!("{{client-certificate-data: {}, client-key-data: {}}}", base64(&certificate), base64(&key)),
    );
    for (count, kubeconfig) in [other.remote_kubeconfig("second"), certified.clone()].iter().enumerate() {
        let rotated = async {
            own.apply(&secret("remote", &[("c2", kubeconfig)])).await;
            let n = count + 4;
            other.apply(&pod(&format!("web-{n}"), &format!("10.2.0.{n}"))).await;
            has_addresses(&pilotfish, HOST, count + 2).await;
            registry_is(&pilotfish, "Kubernetes/c2", "was replaced", |status| status["replacing"].is_null())
                .await;
        };
        tokio::select! {
            () = rotated => {}
            () = never_below(&pilotfish, count + 1) => {}
        }
    }

    let dangerous = certified.replace("client-key-data: ", "exec: {command: steal}, client-key-data: ");
    own.apply(&secret("remote", &[("c2", &dangerous)])).await;
    let problems = eventually("the refusal is reported", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("exec of user") { Ok(ready) } else { Err(ready) }
    })
    .await;
    assert!(problems.contains("--insecure-kubeconfig-options exec"), "{problems}");
    assert!(!problems.contains("steal"), "nothing of a Secret is shown: {problems}");
    other.apply(&pod("web-9", "10.2.0.9")).await;
    has_addresses(&pilotfish, HOST, 4).await;

    own.delete(&secret("remote", &[])).await;
    has_addresses(&pilotfish, HOST, 0).await;
    registry_is(&pilotfish, "Kubernetes/c2", "is gone", Value::is_null).await;
    registry_is(&pilotfish, "ServiceEntry/c2", "is gone", Value::is_null).await;
    eventually("the refusal is forgotten", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("exec of user") { Err(ready) } else { Ok(()) }
    })
    .await;
    own.apply(&secret("again", &[("c2", &certified)])).await;
    has_addresses(&pilotfish, HOST, 4).await;
}

/// Looks again and again; fails when the service has fewer addresses.
async fn never_below(pilotfish: &Pilotfish, count: usize) {
    loop {
        let found = addresses(pilotfish, HOST).await;
        assert!(found.len() >= count, "{found:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_the_manifest_are_enough() {
    let reader = User {
        token: "reader".into(),
        name: "system:serviceaccount:istio-system:pilotfish-reader".into(),
        groups: Vec::new(),
    };
    let options = ApiServerOptions {
        authorization: Authorization::Rbac,
        users: vec![reader],
        ..ApiServerOptions::default()
    };
    let (own, other) = tokio::join!(cluster(), ApiServer::start(options));
    let (Some(own), Some(other)) = (own, other) else { return };
    install_definitions(&other).await;
    other.apply_owned(service("web", "") + &pod("web-2", "10.2.0.1")).await;
    own.apply(&secret("remote", &[("c2", &other.remote_kubeconfig("reader"))])).await;
    let pilotfish = serve(&own, &[]);
    // Nothing is granted yet.
    let refused =
        registry_is(&pilotfish, "Kubernetes/c2", "is refused", |status| status["failure"].is_string()).await;
    assert!(refused["failure"].as_str().is_some_and(|reason| reason.contains("403")), "{refused}");
    other.apply(include_str!("../../../deploy/remote-cluster/rbac.yaml")).await;
    let status =
        registry_is(&pilotfish, "Kubernetes/c2", "is in sync", |status| status["synced"] == true).await;
    assert_eq!(status["givenUp"], Value::Null, "{status}");
    registry_is(&pilotfish, "Kubernetes/c2", "is well", |status| status["failure"].is_null()).await;
    pilotfish.ready().await;
    assert_eq!(addresses(&pilotfish, HOST).await, ["10.2.0.1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_never_answers_delays_readiness_by_its_timeout_only() {
    let Some(own) = cluster().await else { return };
    own.apply_owned(service("web", "") + &pod("web-1", "10.1.0.1")).await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    // Accepts connections and never answers.
    let silent = tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            taken.push(stream);
        }
    });
    let silent_config = admin(&own).replace(&own.url(), &format!("https://127.0.0.1:{port}"));
    own.apply(&secret("remote", &[("silent", &silent_config)])).await;
    let pilotfish = serve(&own, &["--remote-cluster-timeout", "1s"]);
    pilotfish.ready().await;
    let status = registry(&pilotfish, "Kubernetes/silent").await;
    assert_eq!(status["givenUp"], true, "{status}");
    assert_eq!(status["synced"], false, "{status}");
    assert!(status["failingSince"].is_string(), "{status}");
    assert_eq!(addresses(&pilotfish, HOST).await, ["10.1.0.1"]);
    assert!(pilotfish.metric("remote_cluster_sync_timeouts_total").await >= 1.0);
    silent.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_printed_secret_and_files_of_its_kubeconfig_bring_a_cluster() {
    let options = ApiServerOptions { authorization: Authorization::Rbac, ..ApiServerOptions::default() };
    let (own, other) = tokio::join!(cluster(), ApiServer::start(options));
    let (Some(own), Some(other)) = (own, other) else { return };
    install_definitions(&other).await;
    other.apply_owned(service("web", "") + &pod("web-2", "10.2.0.1")).await;
    other.apply(include_str!("../../../deploy/remote-cluster/rbac.yaml")).await;
    let mesh = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\n\
                data: {mesh: 'trustDomain: west.example.com'}\n";
    other.apply(mesh).await;
    let printed = tokio::process::Command::new(BINARY)
        .args(["remote-secret", "--name", "c2", "--expires", "1h", "--kubeconfig"])
        .arg(other.kubeconfig())
        .output()
        .await
        .expect("it runs");
    let secret = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    own.apply(&secret).await;
    let pilotfish = serve(&own, &[]);
    pilotfish.ready().await;
    assert_eq!(addresses(&pilotfish, HOST).await, ["10.2.0.1"]);
    assert!(registry(&pilotfish, "Kubernetes/c2").await["failure"].is_null(), "its rights are enough");
    let endpoints = pilotfish.page("/debug/endpointz").await.unwrap_or_default();
    assert!(endpoints.contains("spiffe://west.example.com/ns/shop/sa/"), "its own trust domain: {endpoints}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("c3.yaml");
    let secret: Value = serde_saphyr::from_str(&secret).expect("it is YAML");
    let kubeconfig = secret["stringData"]["c2"].as_str().expect("it has a kubeconfig");
    std::fs::write(&file, kubeconfig).expect("the folder can be written");
    let pilotfish = serve(&own, &["--remote-kubeconfigs", &folder.path().to_string_lossy()]);
    pilotfish.ready().await;
    assert_eq!(addresses(&pilotfish, HOST).await, ["10.2.0.1"]);
    assert!(registry(&pilotfish, "Kubernetes/c2").await.is_null(), "Secrets do not count then");
    assert_eq!(registry(&pilotfish, "Kubernetes/c3").await["synced"], true);
    std::fs::remove_file(&file).expect("it is there");
    has_addresses(&pilotfish, HOST, 0).await;
    std::fs::write(&file, kubeconfig).expect("the folder can be written");
    has_addresses(&pilotfish, HOST, 1).await;
}

/// Many clusters that come, change and go at once leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_that_come_and_go_leave_nothing() {
    let Some((own, other)) = two().await else { return };
    let pilotfish = serve(&own, &[]);
    pilotfish.ready().await;
    let before = pilotfish.open_files();
    let (good, dead) = (admin(&other), admin(&other).replace(&other.url(), "https://127.0.0.1:9"));
    let ids: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let all = |config: &str| {
        let pairs: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), config)).collect();
        secret("many", &pairs)
    };
    for round in 0..3 {
        own.apply(&all(&good)).await;
        if round > 0 {
            has_addresses(&pilotfish, HOST, 21).await;
            own.apply(&all(&dead)).await;
            own.apply(&all(&good.replace("current-context", "# again\ncurrent-context"))).await;
        }
        own.delete(&secret("many", &[])).await;
    }
    eventually("all of them are gone", || async {
        let all = pilotfish.json("/debug/registryz?registries=true").await;
        let left = all.as_array().map_or(0, Vec::len);
        if left == 2 { Ok(()) } else { Err(all.to_string()) }
    })
    .await;
    // Registries are reported at once, endpoints when their bucket is due.
    has_addresses(&pilotfish, HOST, 1).await;
    assert_eq!(addresses(&pilotfish, HOST).await, ["10.1.0.1"]);
    eventually("their connections are closed", || async {
        let now = pilotfish.open_files();
        if now <= before + 20 { Ok(()) } else { Err(format!("{now} files are open, {before} were")) }
    })
    .await;
    eventually("their counters are forgotten", || async {
        let metrics = pilotfish.page("/metrics").await?;
        if metrics.contains("cluster=\"c1\"") { Err(metrics) } else { Ok(()) }
    })
    .await;
    let ready = pilotfish.page("/ready").await.expect("it is ready");
    assert!(!ready.contains("many"), "{ready}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_are_exported_where_that_is_wanted() {
    let user = |token: &str, name: &str| User {
        token: token.into(),
        name: format!("system:serviceaccount:istio-system:{name}"),
        groups: Vec::new(),
    };
    let with = |user: User| ApiServerOptions {
        authorization: Authorization::Rbac,
        users: vec![user],
        ..ApiServerOptions::default()
    };
    let servers = tokio::join!(
        ApiServer::start(with(user("server", "pilotfish"))),
        ApiServer::start(with(user("reader", "pilotfish-reader"))),
    );
    let (Some(own), Some(other)) = servers else { return };
    tokio::join!(install_definitions(&own), install_definitions(&other));
    own.apply(include_str!("../../../deploy/kubernetes/rbac.yaml")).await;
    own.apply(include_str!("../../../deploy/kubernetes/rbac-exports.yaml")).await;
    other.apply(include_str!("../../../deploy/remote-cluster/rbac.yaml")).await;
    other.apply(include_str!("../../../deploy/remote-cluster/rbac-exports.yaml")).await;
    own.apply_owned(service("web", "") + &pod("web-1", "10.1.0.1")).await;
    other.apply_owned(service("web", "") + &pod("web-2", "10.2.0.1")).await;
    own.apply(&secret("remote", &[("c2", &other.remote_kubeconfig("reader"))])).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, own.kubeconfig_of("server")).expect("the folder can be written");
    let kubeconfig = kubeconfig.to_string_lossy().into_owned();
    let pilotfish = Pilotfish::launch(
        BINARY,
        &[
            "--kubernetes",
            "--kubeconfig",
            &kubeconfig,
            "--multi-cluster-services",
            "discovery",
            "--export-services",
        ],
    );
    pilotfish.ready().await;
    for server in [&own, &other] {
        let kind = GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ServiceExport");
        let resource = ApiResource::from_gvk(&kind);
        let exports: Api<DynamicObject> = Api::namespaced_with(server.client(), "shop", &resource);
        let made = eventually("web is exported", || async {
            exports.get("web").await.map_err(|error| error.to_string())
        })
        .await;
        let owner = made.metadata.owner_references.unwrap_or_default();
        assert_eq!((&*owner[0].kind, &*owner[0].name), ("Service", "web"));
        let system: Api<DynamicObject> = Api::namespaced_with(server.client(), "default", &resource);
        assert!(system.get_opt("kubernetes").await.is_ok_and(|export| export.is_none()), "it is local");
    }
    let client = node(
        "sidecar~10.9.9.9~client.shop~shop.svc.cluster.local",
        &[("CLUSTER_ID", "Kubernetes"), ("NAMESPACE", "shop")],
    );
    let mut proxy = Proxy::connect(&pilotfish, client, &[WEB]).await.expect("it is served");
    proxy.has_endpoints(WEB, &["10.1.0.1:8080 1", "10.2.0.1:8080 1"]).await;
}
