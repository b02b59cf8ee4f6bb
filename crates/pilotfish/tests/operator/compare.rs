//! What proxies of istiod have, against what they would be sent.

use super::forwarding::{self, ForwardingServer};
use super::{Operator, with_proxies};
use pilotfish_bench::fleet::node;
use pilotfish_proto::to_json;
use pilotfish_testkit::cases::{Case, ProxyEntry};
use pilotfish_testkit::istiod::{Istiod, IstiodTls, ServedProxy};
use pilotfish_testkit::oracle::cases_folder;
use pilotfish_testkit::real::{Authority, Pilotfish};
use prost::Message;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// Sections of Envoy's dump: kind, message, list, and field of a resource.
const SECTIONS: [(&str, &str, &str, &str); 4] = [
    ("clusters", "ClustersConfigDump", "dynamic_active_clusters", "cluster"),
    ("listeners", "ListenersConfigDump", "dynamic_listeners", "listener"),
    ("routes", "RoutesConfigDump", "dynamic_route_configs", "route_config"),
    ("endpoints", "EndpointsConfigDump", "dynamic_endpoint_configs", "endpoint_config"),
];

/// An Envoy's dump with a node and resources by kind and name.
fn dump(node: &Value, resources: &Value) -> Value {
    let message = |name: &str| format!("type.googleapis.com/envoy.admin.v3.{name}");
    let mut configs = vec![json!({
        "@type": message("BootstrapConfigDump"),
        "bootstrap": {"node": node, "static_resources": {"clusters": [{"name": "agent"}]}},
        "last_updated": "2026-11-23T13:05:00.000Z",
    })];
    for (kind, name, list, field) in SECTIONS {
        let entry = |(name, resource): (&String, &Value)| {
            let state =
                json!({"version_info": "7", field: resource, "last_updated": "2026-11-23T13:05:00.000Z"});
            if kind == "listeners" { json!({"name": name, "active_state": state}) } else { state }
        };
        let entries: Vec<Value> = resources[kind].as_object().into_iter().flatten().map(entry).collect();
        configs.push(json!({"@type": message(name), "static_clusters": [], list: entries}));
    }
    json!({ "configs": configs })
}

fn write(folder: &Path, name: &str, dump: &Value) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(name), dump.to_string()).unwrap();
}

fn node_json(proxy: &ProxyEntry) -> Value {
    to_json("type.googleapis.com/envoy.config.core.v3.Node", &proxy.node().encode_to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recordings_of_istiod_differ_in_known_ways_only() {
    for (name, known) in [
        ("dr-connection-pool", 0),
        ("dr-http2-keep-alive", 3),
        ("se-hosts-in-capital-letters", 2),
        ("gwapi-backend-tls-policy-invalid", 6),
    ] {
        let case = Case::read(&cases_folder().join(name)).unwrap();
        let config = case.file("config.yaml").unwrap().unwrap();
        let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("config.yaml", &config)]).await;
        let folder = pilotfish.folder().join("dumps");
        let mut resources = 0;
        for proxy in &case.proxies {
            let golden = case.golden(proxy).unwrap();
            resources +=
                SECTIONS.iter().map(|(kind, ..)| golden[kind].as_object().map_or(0, Map::len)).sum::<usize>();
            write(&folder, &format!("{}.json", proxy.name), &dump(&node_json(proxy), &golden));
        }
        let operator = Operator::of(&pilotfish);
        let arguments = ["compare", "--dumps", folder.to_str().unwrap()];
        let (code, text) = operator.ask(&arguments);
        assert_eq!(code, Some(0), "{name}: {text}");
        let report = operator.json(&arguments);
        assert_eq!(
            (sum(&report, "equal") as usize, sum(&report, "known"), sum(&report, "unknown")),
            (resources - known, known as u64, 0),
            "{name}: {report:#}"
        );
    }
}

/// Sum of a field of a report's proxies.
fn sum(report: &Value, field: &str) -> u64 {
    report["proxies"].as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
}

/// A stand-in for istiod that serves a case, and a Pilotfish with its objects.
async fn istiod_of(case: &str, refused: &[&str]) -> (Istiod, Pilotfish, Operator) {
    let case = Case::read(&cases_folder().join(case)).unwrap();
    let config = case.file("config.yaml").unwrap().unwrap();
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("config.yaml", &config)]).await;
    let served = case.proxies.iter().map(|proxy| ServedProxy::of(&case, proxy).unwrap()).collect();
    let operator = Operator::of(&pilotfish);
    (Istiod::start(served, refused).await.unwrap(), pilotfish, operator)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_of_an_istiod_differ_in_known_ways_only_and_are_saved() {
    for (name, known) in
        [("dr-connection-pool", 0), ("gwapi-backend-tls-policy-invalid", 6), ("grpc-client-subsets", 0)]
    {
        let (istiod, pilotfish, operator) = istiod_of(name, &[]).await;
        let (xds, debug) = (istiod.xds.to_string(), istiod.debug.to_string());
        let saved = pilotfish.folder().join("saved");
        let saved = saved.to_str().unwrap();
        let arguments = ["compare", "--istiod", &xds, "--istiod-debug", &debug, "--at-a-time", "2"];
        let (code, text) = operator.ask(&[&arguments[..], &["--save", saved]].concat());
        assert_eq!(code, Some(0), "{name}: {text}");
        let report = operator.json(&arguments);
        let case = Case::read(&cases_folder().join(name)).unwrap();
        let recorded = |proxy| {
            let golden = case.golden(proxy).unwrap();
            SECTIONS.iter().map(|(kind, ..)| golden[kind].as_object().map_or(0, Map::len)).sum::<usize>()
        };
        let resources: usize = case.proxies.iter().map(recorded).sum();
        assert_eq!(
            (sum(&report, "equal") as usize, sum(&report, "known"), sum(&report, "unknown")),
            (resources - known, known as u64, 0),
            "{name}: {report:#}"
        );
        assert_eq!(operator.json(&["compare", "--dumps", saved]), report, "{name}");
        for node in istiod.nodes() {
            let metadata = node.metadata.unwrap().fields;
            assert!(
                metadata.contains_key("PILOTFISH_COMPARE") && node.user_agent_name == "pilotfish-compare"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_that_istiod_refuses_are_not_compared_and_named() {
    let case = Case::read(&cases_folder().join("dr-connection-pool")).unwrap();
    let node = case.proxies[0].node();
    let (istiod, pilotfish, operator) = istiod_of("dr-connection-pool", &[&node.id]).await;
    let (xds, debug) = (istiod.xds.to_string(), istiod.debug.to_string());
    let (code, text) = operator.ask(&["compare", "--istiod", &xds, "--istiod-debug", &debug]);
    let name = node.id.split('~').nth(2).unwrap();
    let line = format!("  {name}: grpc-status 16: authentication failure; port 15012 takes --mint-tokens");
    assert!(code == Some(2) && text.lines().any(|it| it == line), "{line:?} in {text}");

    // A file names the proxies without istiod's pages.
    let nodes = pilotfish.folder().join("nodes");
    let entries: Vec<Value> = case.proxies.iter().map(node_json).collect();
    std::fs::write(&nodes, json!(entries).to_string()).unwrap();
    let (code, text) =
        operator.ask(&["compare", "--istiod", &xds, "--nodes", nodes.to_str().unwrap(), "nobody.shop"]);
    assert!(code == Some(2) && text.contains("istiod has no proxy nobody.shop"), "{text}");
    let (code, text) = operator.ask(&["compare", "--istiod", &xds, "--nodes", nodes.to_str().unwrap()]);
    assert!(code == Some(2) && text.contains(&line), "{text}");
    let (code, text) = operator.ask(&["compare", "--istiod", &xds, "--istiod-debug", &xds]);
    assert!(code == Some(2) && text.contains("--istiod-debug names"), "{text}");
}

/// A Pod with the proxy of a case.
fn pod_of(proxy: &ProxyEntry) -> Value {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    json!({
        "metadata": {"name": proxy.pod.as_ref().unwrap_or(&proxy.name), "namespace": proxy.namespace, "labels": proxy.labels},
        "spec": {"serviceAccountName": "default", "containers": [{
            "name": "istio-proxy", "image": "istio/proxyv2:1.31.0", "args": ["proxy", "sidecar"],
            "env": [variable("ISTIO_META_CLUSTER_ID", "Kubernetes"), variable("ISTIO_META_MESH_ID", "cluster.local"),
                variable("ISTIO_META_INTERCEPTION_MODE", "REDIRECT")],
        }]},
        "status": {"phase": "Running", "podIP": proxy.ip, "podIPs": [{"ip": proxy.ip}]},
    })
}

/// A cluster with the Pods of a case's proxies, and a Pod that leads to a Pilotfish.
async fn cluster_of(case: &Case, pilotfish: &Pilotfish) -> ForwardingServer {
    let admin = SocketAddr::from(([127, 0, 0, 1], pilotfish.admin_port()));
    let pods = case.proxies.iter().map(pod_of).chain([forwarding::pod("pilotfish-0", true)]).collect();
    ForwardingServer::start(pods, Some(admin)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_are_those_of_the_pods_of_a_cluster() {
    let (istiod, pilotfish, operator) = istiod_of("dr-connection-pool", &[]).await;
    let case = Case::read(&cases_folder().join("dr-connection-pool")).unwrap();
    let cluster = cluster_of(&case, &pilotfish).await;
    let kubeconfig = cluster.kubeconfig(pilotfish.folder());
    let xds = istiod.xds.to_string();
    let at = ["--pods", "--kubeconfig", kubeconfig.to_str().unwrap(), "--context", "here"];
    let arguments = [&["compare", "--istiod", &xds][..], &at].concat();
    let report = operator.json(&arguments);
    let proxies: Vec<&str> =
        report["proxies"].as_array().unwrap().iter().map(|row| row["proxy"].as_str().unwrap()).collect();
    assert_eq!(proxies, ["catalog-0.shop", "client.default"], "{report:#}");
    let none = Value::Array(Vec::new());
    assert_eq!((sum(&report, "unknown"), &report["failed"]), (0, &none), "{report:#}");
    let one = operator.json(&[&arguments[..], &["client.default"]].concat());
    assert_eq!(one["proxies"].as_array().unwrap().len(), 1, "{one:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tls_port_of_istiod_is_read_with_tokens_of_service_accounts_only_if_asked_to() {
    let case = Case::read(&cases_folder().join("dr-connection-pool")).unwrap();
    let config = case.file("config.yaml").unwrap().unwrap();
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("config.yaml", &config)]).await;
    let operator = Operator::of(&pilotfish);
    let cluster = cluster_of(&case, &pilotfish).await;
    let kubeconfig = cluster.kubeconfig(pilotfish.folder());
    let authority = Authority::new();
    let ca = pilotfish.folder().join("root.pem");
    std::fs::write(&ca, authority.root()).unwrap();
    // The cluster's token of `shop/default` is another one than istiod expects.
    let tokens = [("default/default", "default/default"), ("shop/default", "expired")];
    let tokens = tokens.map(|(account, token)| (account.to_owned(), token.to_owned())).into();
    let served = case.proxies.iter().map(|proxy| ServedProxy::of(&case, proxy).unwrap()).collect();
    let tls = IstiodTls { certificate: authority.server(), tokens };
    let istiod = Istiod::start_with(served, &[], Some(tls)).await.unwrap();
    let xds = istiod.xds.to_string();
    let at = ["--pods", "--kubeconfig", kubeconfig.to_str().unwrap(), "--context", "here"];
    let plain = [&["compare", "--istiod", &xds][..], &at].concat();

    let (code, text) = operator.ask(&plain);
    let lines = || text.lines().filter(|line| line.ends_with("; port 15012 takes --mint-tokens"));
    assert!(code == Some(2) && lines().count() == 2 && text.contains("2 proxies not compared"), "{text}");
    let requests = |cluster: &ForwardingServer| {
        let asked = cluster.asked.lock().unwrap();
        let mut tokens: Vec<String> = asked.iter().filter(|path| path.ends_with("/token")).cloned().collect();
        tokens.sort();
        tokens
    };
    assert_eq!(requests(&cluster), [""; 0]);

    let tls = ["--mint-tokens", "--istiod-ca", ca.to_str().unwrap(), "--istiod-name", "localhost"];
    let (code, text) = operator.ask(&[&plain[..], &tls].concat());
    assert!(code == Some(2) && text.contains("1 proxy not compared"), "{text}");
    assert!(text.contains("catalog-0.shop: grpc-status 16: authentication failure"), "{text}");
    assert!(text.contains("client.default") && !text.contains("unknown "), "{text}");
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    assert_eq!(requests(&cluster), ["default", "shop"].map(path));

    // A certificate of another name gets no token.
    let other = ["--mint-tokens", "--istiod-ca", ca.to_str().unwrap()];
    let nodes = istiod.nodes().len();
    let (code, text) = operator.ask(&[&plain[..], &other].concat());
    assert!(code == Some(2) && text.contains("2 proxies not compared"), "{text}");
    assert_eq!(istiod.nodes().len(), nodes, "no stream was opened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pilotfish_in_the_place_of_istiod_sends_what_another_one_would() {
    let (first, _fleet, _) = with_proxies(2).await;
    let second = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("shop.yaml", super::SHOP)]).await;
    let (xds, debug) = (first.xds_port(), first.admin_port());
    let (xds, debug) = (format!("127.0.0.1:{xds}"), format!("127.0.0.1:{debug}"));
    let (code, text) = Operator::of(&second).ask(&["compare", "--istiod", &xds, "--istiod-debug", &debug]);
    assert!(code == Some(0) && text.ends_with("\n2 proxies would get what they have now\n"), "{text}");
}

/// What a proxy of the fleet was sent, as the dump of an Envoy.
fn dump_of_first(operator: &Operator) -> Value {
    let sent = operator.json(&["config", "client-0.n0"]);
    let mut resources = json!({});
    for resource in sent["resources"].as_array().unwrap() {
        let (section, name) = (resource["section"].as_str().unwrap(), resource["name"].as_str().unwrap());
        resources[section][name] = resource["resource"].clone();
    }
    let node = node(0, "n0");
    let ip = node.id.split('~').nth(1).unwrap();
    let metadata = json!({"NAME": "client-0", "NAMESPACE": "n0", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": ip,
        "ISTIO_VERSION": "1.29.1", "LABELS": {"app": "client"}, "MESH_ID": "cluster.local", "SERVICE_ACCOUNT": "default"});
    let node = json!({"id": node.id, "cluster": node.cluster, "metadata": metadata, "extensions": [{"name": "x", "unknown": 1}]});
    dump(&node, &resources)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_differences_are_named_with_their_field_and_the_objects_behind_it() {
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    let folder = pilotfish.folder().join("dumps");
    let path = folder.to_str().unwrap();
    let nothing = operator.ask(&["compare", "--dumps", path]);
    assert!(nothing.0 == Some(2) && nothing.1.contains("No such file or directory"), "{nothing:?}");
    let mut dump = dump_of_first(&operator);
    write(&folder, "client.json", &dump);
    let (code, text) = operator.ask(&["compare", "--dumps", path]);
    assert!(code == Some(0) && text.ends_with("\n1 proxy would get what it has now\n"), "{text}");

    let clusters = dump["configs"][1]["dynamic_active_clusters"].as_array_mut().unwrap();
    let web = clusters.iter_mut().find(|it| it["cluster"]["name"] == "outbound|80||web.n0.svc.cluster.local");
    web.unwrap()["cluster"]["connect_timeout"] = "77s".into();
    write(&folder, "client.json", &dump);
    write(&folder, "broken.json", &json!({"configs": []}));
    let saved = pilotfish.folder().join("saved");
    let (code, text) = operator.ask(&["compare", "--dumps", path, "--save", saved.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{text}");
    for line in [
        "unknown clusters: connect_timeout",
        "  1 difference in 1 proxy: client-0.n0",
        "  such as client-0.n0 clusters outbound|80||web.n0.svc.cluster.local: connect_timeout",
        "    istiod     \"77s\"",
        "    Pilotfish  \"10s\"",
        "    made by    Service n0/web",
        "1 proxy not compared:",
        "1 of 1 proxy would get other configuration, in 1 way not known",
    ] {
        assert!(
            text.lines().any(|it| it == line || it.starts_with(&format!("{line} "))),
            "{line:?} in {text}"
        );
    }
    assert!(text.contains("broken.json: it has no bootstrap with the node of the proxy"), "{text}");

    let again = operator.json(&["compare", "--dumps", saved.to_str().unwrap(), "client-0.n0"]);
    assert_eq!(again["causes"][0]["example"]["istiod"], "77s", "{again:#}");
    assert_eq!(
        (&again["causes"][0]["isKnown"], again["failed"].as_array().unwrap().len()),
        (&false.into(), 0)
    );
    let (code, text) = operator.ask(&["compare", "--dumps", saved.to_str().unwrap(), "web-0.shop"]);
    assert!(code == Some(2) && text.contains("has no dump of web-0.shop"), "{text}");
}
