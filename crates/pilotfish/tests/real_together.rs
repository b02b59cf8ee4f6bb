//! Kubernetes, ServiceEntry, Consul and ZooKeeper in one process, with hosts that several of them have: a
//! stock Envoy as sidecar and one as gateway reach all of it, routed by subsets of labels that came from
//! tags.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "real_grpc/peer.rs"]
#[allow(dead_code, reason = "tests of gRPC alone need more of it")]
mod peer;

use peer::{Credentials::Plain, Library, Peer};
use pilotfish_testkit::consul::Consul;
use pilotfish_testkit::real::{
    Backend, Envoy, EnvoyOptions, Load, Nodes, Pilotfish, Tally, ZooKeeper, eventually, free_port, get,
};
use serde_json::{Value, json};

const ORDERS: &str = "orders.shop.svc.cluster.local";
const WEB: &str = "web.shop.svc.cluster.local";
const OLD: &str = "old.shop.svc.cluster.local";

/// All servers and what they serve.
struct Stage {
    /// Where the sidecar listens.
    port: u16,
    /// Where the gateway listens.
    gateway: u16,
    consul: Consul,
    zookeeper: ZooKeeper,
    nodes: Nodes,
    backends: Vec<(&'static str, Backend)>,
    /// What Pilotfish reads as files.
    folder: tempfile::TempDir,
}

impl Stage {
    /// `None` where there is no ZooKeeper and it is not required.
    async fn start() -> Option<Self> {
        let zookeeper = ZooKeeper::start().await?;
        let nodes = zookeeper.nodes(None).await?;
        let names = ["kubernetes", "consul", "zookeeper", "web-v1", "web-v2", "old", "new"];
        let mut backends = Vec::new();
        for name in names {
            backends.push((name, Backend::start("127.0.0.1", name).await));
        }
        let consul = Consul::plain().await;
        let folder = tempfile::tempdir().unwrap();
        let mut stage =
            Self { port: free_port(), gateway: free_port(), consul, zookeeper, nodes, backends, folder };
        for (service, backend, tag) in [
            ("orders", "consul", "version|v2"),
            ("web", "web-v1", "version|v1"),
            ("web", "web-v2", "version|v2"),
            ("old", "old", "x|y"),
        ] {
            stage.consul.register(&stage.instance(service, backend, tag));
        }
        let at = stage.port_of("zookeeper");
        stage.nodes.run(&format!("curator orders 1 127.0.0.1 {at} UP")).await;
        Some(stage)
    }

    fn port_of(&self, name: &str) -> u16 {
        self.backends.iter().find(|(known, _)| *known == name).map_or(0, |(_, backend)| backend.port())
    }

    /// An instance in Consul.
    fn instance(&self, service: &str, backend: &str, tag: &str) -> Value {
        json!({
            "Node": "agent-1", "Address": "127.0.0.1",
            "Service": {"Service": service, "ID": backend, "Port": self.port_of(backend), "Meta": {"protocol": "http"}, "Tags": [tag]},
        })
    }

    /// Kubernetes' Service and its slice, routes for the host that Consul has, and a ServiceEntry for another
    /// one of Consul's.
    fn files(&self) -> String {
        let (port, gateway) = (self.port, self.gateway);
        format!(
            "apiVersion: v1
kind: Service
metadata: {{name: orders, namespace: shop}}
spec: {{clusterIP: 127.0.1.1, ports: [{{name: http, port: {port}, targetPort: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: orders, namespace: shop, labels: {{kubernetes.io/service-name: orders}}}}
addressType: IPv4
ports: [{{name: http, port: {kubernetes}, protocol: TCP}}]
endpoints: [{{addresses: [127.0.0.1], conditions: {{ready: true}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: shop}}
spec:
  hosts: [{WEB}]
  gateways: [mesh, shop]
  http:
  - match: [{{headers: {{x-user: {{exact: tester}}}}}}]
    route: [{{destination: {{host: {WEB}, subset: v2}}}}]
  - route: [{{destination: {{host: {WEB}, subset: v1}}}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: web, namespace: shop}}
spec:
  host: {WEB}
  subsets: [{{name: v1, labels: {{version: v1}}}}, {{name: v2, labels: {{version: v2}}}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: shop, namespace: shop}}
spec:
  selector: {{app: router}}
  servers: [{{port: {{number: {gateway}, name: http, protocol: HTTP}}, hosts: ['*']}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: old, namespace: shop}}
spec:
  hosts: [{OLD}]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{{name: http, number: {port}, protocol: HTTP}}]
  endpoints: [{{address: 127.0.0.1, ports: {{http: {new}}}}}]
",
            kubernetes = self.port_of("kubernetes"),
            new = self.port_of("new"),
        )
    }

    /// Pilotfish with all of them.
    async fn serve(&self, more: &[&str]) -> Pilotfish {
        std::fs::write(self.folder.path().join("all.yaml"), self.files()).unwrap();
        let (port, path) = (self.port, self.folder.path().to_string_lossy());
        let consul = format!(
            "consul={}?port={port}&namespace=shop&host={{service}}.shop.svc.cluster.local&exceptServices=consul&guard=off",
            self.consul.url()
        );
        let zookeeper = format!(
            "zookeeper=zk://{}?port={port}&namespace=shop&domain=shop.svc.cluster.local&protocol=http&guard=off",
            self.zookeeper.address()
        );
        let all = ["--registry", &consul, "--registry", &zookeeper];
        let pilotfish =
            Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &[&[&*path][..], &all, more].concat());
        pilotfish.ready().await;
        pilotfish
    }
}

/// Waits until exactly these answer, each of them.
async fn answer(port: u16, host: &str, headers: &[(&str, &str)], names: &[&str]) {
    eventually(&format!("{host} is answered by {names:?}"), || async {
        let mut tally = Tally::new();
        for _ in 0..30 {
            let who = get(port, host, headers).await.unwrap_or_else(|error| error);
            *tally.entry(who).or_default() += 1;
        }
        if tally.keys().map(String::as_str).eq(names.iter().copied()) { Ok(()) } else { Err(tally) }
    })
    .await;
}

/// An Envoy with an address of its own: what registries have is all at 127.0.0.1, and a proxy there would be
/// one of their workloads.
fn envoy(kind: &str, ip: &str) -> EnvoyOptions {
    let label = format!("app={kind}");
    let arguments = ["--kind", kind, "--name", kind, "--namespace", "shop", "--ip", ip, "--label", &label];
    EnvoyOptions { protocol: "delta", arguments: arguments.map(str::to_owned).to_vec(), xds_port: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_host_has_the_endpoints_of_all_registries_and_each_may_die() {
    let Some(mut stage) = Stage::start().await else { return };
    let pilotfish = stage.serve(&[]).await;
    let Some(_sidecar) = Envoy::start(&pilotfish, &envoy("sidecar", "127.0.0.21")).await else { return };
    let Some(_gateway) = Envoy::start(&pilotfish, &envoy("router", "127.0.0.22")).await else { return };
    answer(stage.port, ORDERS, &[], &["consul", "kubernetes", "zookeeper"]).await;
    for port in [stage.port, stage.gateway] {
        answer(port, WEB, &[], &["web-v1"]).await;
        answer(port, WEB, &[("x-user", "tester")], &["web-v2"]).await;
    }
    // Both have the host; the ServiceEntry describes it, and endpoints of both are used.
    answer(stage.port, OLD, &[], &["new", "old"]).await;

    let load = Load::start(stage.port, ORDERS);
    stage.consul.kill().await;
    stage.zookeeper.kill().await;
    eventually("both failures are told", || async {
        let (_, text) = pilotfish.answer("/ready").await?;
        let told = ["Consul/Kubernetes: cannot be read", "zookeeper/Kubernetes: cannot be read"];
        if told.iter().all(|line| text.contains(line)) { Ok(()) } else { Err(text) }
    })
    .await;
    load.answers(50).await;
    // What is alive changes on.
    let kubernetes = stage.files().replace("{addresses: [127.0.0.1], conditions: {ready: true}}", "");
    std::fs::write(stage.folder.path().join("all.yaml"), kubernetes).unwrap();
    answer(stage.port, ORDERS, &[], &["consul", "zookeeper"]).await;
    stage.consul.resume().await;
    stage.consul.deregister(&json!({"Node": "agent-1", "ServiceID": "consul"}));
    answer(stage.port, ORDERS, &[], &["zookeeper"]).await;
    let tally = load.stop().await;
    let known = |name: &String| ["consul", "kubernetes", "zookeeper"].contains(&name.as_str());
    assert!(tally.keys().all(known), "nothing failed: {tally:?}");
}

/// A host in Kubernetes, whose port has the name that it has in the other registries, with a route by header
/// to a subset of labels that come from Consul's tags.
fn echo_files(port: u16, target: u16) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: echo, namespace: shop}}
spec: {{clusterIP: 127.0.1.2, ports: [{{name: http, port: {port}, targetPort: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: echo, namespace: shop, labels: {{kubernetes.io/service-name: echo}}}}
addressType: IPv4
ports: [{{name: http, port: {target}, protocol: TCP}}]
endpoints: [{{addresses: [127.0.0.1], conditions: {{ready: true}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: echo, namespace: shop}}
spec:
  hosts: [echo.shop.svc.cluster.local]
  http:
  - match: [{{headers: {{x-user: {{exact: tester}}}}}}]
    route: [{{destination: {{host: echo.shop.svc.cluster.local, subset: v2}}}}]
  - route: [{{destination: {{host: echo.shop.svc.cluster.local}}}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: echo, namespace: shop}}
spec: {{host: echo.shop.svc.cluster.local, subsets: [{{name: v2, labels: {{version: v2}}}}]}}
"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxyless_grpc_client_reaches_all_registries_and_their_subsets() {
    let Some(mut stage) = Stage::start().await else { return };
    let pilotfish = stage.serve(&[]).await;
    let Some(peer) = Peer::start(Library::Python, &pilotfish, "client", &[]).await else { return };
    let mut ports = Vec::new();
    for name in ["consul", "kubernetes", "zookeeper"] {
        ports.push(peer.serve("127.0.0.1:0", name, Plain).await);
    }
    stage.consul.register(&json!({
        "Node": "agent-1", "Address": "127.0.0.1",
        "Service": {"Service": "echo", "ID": "echo", "Port": ports[0], "Meta": {"protocol": "http"}, "Tags": ["version|v2"]},
    }));
    std::fs::write(stage.folder.path().join("echo.yaml"), echo_files(stage.port, ports[1])).unwrap();
    stage.nodes.run(&format!("curator echo echo-1 127.0.0.1 {} UP", ports[2])).await;
    let target = format!("xds:///echo.shop.svc.cluster.local:{}", stage.port);
    eventually("all three answer", || async {
        let tally = peer.ask(&target, Plain, 30, &[]).await;
        if tally.keys().eq(&["consul", "kubernetes", "zookeeper"]) { Ok(()) } else { Err(tally) }
    })
    .await;
    let tally = peer.ask(&target, Plain, 20, &[("x-user", "tester")]).await;
    assert_eq!(tally, Tally::from([("consul".into(), 20)]), "the subset has what Consul tagged");

    // Consul is gone, and what it had stays; an instance of ZooKeeper goes, and the client follows.
    peer.load(&target, Plain).await;
    stage.consul.kill().await;
    stage.nodes.run("leave echo echo-1").await;
    eventually("two are left", || async {
        let tally = peer.ask(&target, Plain, 30, &[]).await;
        if tally.keys().eq(&["consul", "kubernetes"]) { Ok(()) } else { Err(tally) }
    })
    .await;
    peer.answers(100).await;
    let tally = peer.stop().await;
    let known = |name: &String| ["consul", "kubernetes", "zookeeper"].contains(&name.as_str());
    assert!(tally.keys().all(known), "nothing failed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_fails_over_from_the_locality_of_one_registry_to_that_of_another() {
    let Some(mut stage) = Stage::start().await else { return };
    let pilotfish = stage.serve(&[]).await;
    // Consul's data centre is the region; ZooKeeper's instance names its own.
    let in_consul = |status: &str| {
        let mut instance = stage.instance("pay", "consul", "version|v1");
        instance["Check"] =
            json!({"CheckID": "pay", "Name": "alive", "ServiceID": "consul", "Status": status});
        instance
    };
    let near = in_consul("passing");
    let ill = in_consul("critical");
    stage.consul.register(&near);
    let metadata = r#"{"instance_status":"UP","region":"west","zone":"w1"}"#;
    let data = format!(
        r#"{{"name":"pay","id":"1","address":"127.0.0.1","port":{},"payload":{{"metadata":{metadata}}},"serviceType":"DYNAMIC"}}"#,
        stage.port_of("zookeeper")
    );
    stage.nodes.run(&format!("put /services/pay/1 {data}")).await;
    let rule = "apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: pay, namespace: shop}
spec:
  host: pay.shop.svc.cluster.local
  trafficPolicy:
    outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s}
    loadBalancer: {localityLbSetting: {enabled: true, failover: [{from: dc1, to: west}]}}
";
    std::fs::write(stage.folder.path().join("pay.yaml"), rule).unwrap();
    let mut options = envoy("sidecar", "127.0.0.21");
    options.arguments.extend(["--locality", "dc1/a/1"].map(str::to_owned));
    let Some(_sidecar) = Envoy::start(&pilotfish, &options).await else { return };
    let host = "pay.shop.svc.cluster.local";
    answer(stage.port, host, &[], &["consul"]).await;
    let load = Load::start(stage.port, host);
    stage.consul.register(&ill);
    answer(stage.port, host, &[], &["zookeeper"]).await;
    stage.consul.register(&near);
    answer(stage.port, host, &[], &["consul"]).await;
    load.answers(30).await;
    let tally = load.stop().await;
    let known = |name: &String| ["consul", "zookeeper"].contains(&name.as_str());
    assert!(tally.keys().all(known), "nothing failed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_registry_alone_has_a_host_where_merging_says_so() {
    let Some(stage) = Stage::start().await else { return };
    let pilotfish =
        stage.serve(&["--merge-services", "first", "--registry-order", "ServiceEntry,zookeeper"]).await;
    let Some(_sidecar) = Envoy::start(&pilotfish, &envoy("sidecar", "127.0.0.21")).await else { return };
    answer(stage.port, OLD, &[], &["new"]).await;
    answer(stage.port, ORDERS, &[], &["zookeeper"]).await;
    let all = pilotfish.json("/debug/registryz?registries=true").await;
    let losers: Vec<String> = all
        .as_array()
        .into_iter()
        .flatten()
        .filter(|registry| registry["losers"].as_array().is_some_and(|losers| !losers.is_empty()))
        .map(|registry| registry["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(losers, ["Kubernetes/Kubernetes", "Consul/Kubernetes"], "{all:#}");
}
