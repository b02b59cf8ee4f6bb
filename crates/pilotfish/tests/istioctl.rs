//! What `istioctl` asks over xDS with `--xds-address`: requests as the tool sends them (built from its
//! sources of August 2026), on a stream of state of the world.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

use bytes::Bytes;
use pilotfish_bench::connection::Connection;
use pilotfish_bench::fleet::{Fleet, node as client};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use pilotfish_proto::{Struct, Value, ValueKind};
use pilotfish_testkit::real::{LIMIT, Pilotfish};
use prost::Message;
use std::net::SocketAddr;
use std::time::Duration;

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

const SHOP: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: n0}\nspec: {clusterIP: 10.1.0.1, selector: {app: web}, \
                    ports: [{name: http, port: 80}]}\n";

/// The node of istioctl's client: it asks for `event`s, calls itself a sidecar of the newest version, and has
/// the machine's address.
fn node() -> Node {
    let text = |text: &str| Value { kind: Some(ValueKind::StringValue(text.to_owned())) };
    let fields = [
        ("GENERATOR", "event"),
        ("ISTIO_VERSION", "65536.65536.65536"),
        ("NAMESPACE", "istio-system"),
        ("SERVICE_ACCOUNT", "default"),
    ];
    let fields = fields.map(|(key, value)| (key.to_owned(), text(value)));
    Node {
        id: "sidecar~192.0.2.2~test-1.default~default.svc.cluster.local".into(),
        metadata: Some(Struct { fields: fields.into() }),
        ..Node::default()
    }
}

/// The answer to one request, or why the stream ended. It comes within seconds either way.
async fn ask(target: SocketAddr, type_url: &str, names: &[&str]) -> Result<DiscoveryResponse, String> {
    let request = DiscoveryRequest {
        node: Some(node()),
        type_url: type_url.to_owned(),
        resource_names: names.iter().map(|&name| name.to_owned()).collect(),
        // Its first request answers nothing, and has a nonce all the same: the time.
        response_nonce: "2026-11-23 20:30:05.486633337 +0000 UTC m=+0.194330120".into(),
        ..DiscoveryRequest::default()
    };
    let first = vec![Bytes::from(request.encode_to_vec())];
    let mut connection =
        Connection::open_with(target, PATH, &[], first).await.map_err(|error| format!("{error:#}"))?;
    match tokio::time::timeout(Duration::from_secs(20), connection.next()).await.expect("it is answered") {
        Ok(Some(message)) => Ok(DiscoveryResponse::decode(message).unwrap()),
        Ok(None) => panic!("the stream ended well"),
        Err(error) => Err(format!("{error:#}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn istioctl_is_answered_or_told_at_once_that_it_is_not() {
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("shop.yaml", SHOP)]).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, (0..2).map(|index| client(index, "n0")).collect());
    fleet.synced(LIMIT).await.unwrap();

    // proxy-status
    let status = ask(target, "istio.io/debug/syncz", &[]).await.unwrap();
    assert_eq!((status.resources.len(), status.type_url.as_str()), (2, "istio.io/debug/syncz"));
    let names: Vec<bool> = status
        .resources
        .iter()
        .map(|any| {
            assert_eq!(any.type_url, "type.googleapis.com/envoy.service.status.v3.ClientConfig");
            let text = String::from_utf8_lossy(&any.value).into_owned();
            text.contains(".n0") && text.contains("type.googleapis.com/envoy.config.cluster.v3.Cluster")
        })
        .collect();
    assert_eq!(names, [true, true]);
    // Who answered: it keeps one answer of each ID.
    let identifier = status.control_plane.unwrap().identifier;
    let identifier: serde_json::Value = serde_json::from_str(&identifier).unwrap();
    assert_eq!(identifier["Info"]["version"], env!("CARGO_PKG_VERSION"), "{identifier}");
    assert!(!identifier["ID"].as_str().unwrap().is_empty(), "{identifier}");

    // x internal-debug
    let page = ask(target, "istio.io/debug", &["syncz"]).await.unwrap();
    let json: serde_json::Value = serde_json::from_slice(&page.resources[0].value).unwrap();
    // Without whoever asks: it is no proxy.
    let proxies: Vec<&str> =
        json.as_array().unwrap().iter().map(|proxy| proxy["proxy"].as_str().unwrap()).collect();
    assert_eq!(proxies, ["client-0.n0", "client-1.n0"], "{json:#}");
    assert_eq!(page.resources[0].type_url, "istio.io/debug");
    let nobody = ask(target, "istio.io/debug", &["config_dump?proxyID=nobody.n0"]).await.unwrap();
    let text = String::from_utf8_lossy(&nobody.resources[0].value).into_owned();
    assert!(text.starts_with("Proxy not connected to this Pilot instance"), "{text}");

    // proxy-status NAME
    let dump = ask(target, "istio.io/debug/config_dump", &["client-0.n0"]).await.unwrap();
    let types: Vec<&str> =
        dump.resources.iter().map(|any| any.type_url.rsplit('.').next().unwrap()).collect();
    assert_eq!(
        types,
        ["ClustersConfigDump", "EndpointsConfigDump", "ListenersConfigDump", "RoutesConfigDump"]
    );
    assert!(
        String::from_utf8_lossy(&dump.resources[0].value).contains("outbound|80||web.n0.svc.cluster.local")
    );

    // proxy-status of a proxy that another replica has: from these words it knows that it has to ask there.
    let elsewhere = ask(target, "istio.io/debug/config_dump", &["web-0.shop"]).await.unwrap();
    assert_eq!(elsewhere.resources.len(), 1);
    let text = String::from_utf8_lossy(&elsewhere.resources[0].value).into_owned();
    assert!(text.contains("It may be connected to another instance"), "{text}");

    // The list of pages, each of which can be asked for by its name.
    let list = ask(target, "istio.io/debug", &["list"]).await.unwrap();
    let names: Vec<String> = serde_json::from_slice(&list.resources[0].value).unwrap();
    assert!(names.len() > 5 && names.iter().all(|name| !name.contains('/')), "{names:?}");

    // Older versions ask for nodes.
    let connections = ask(target, "istio.io/connections", &[]).await.unwrap();
    let nodes: Vec<Node> =
        connections.resources.iter().map(|any| Node::decode(&*any.value).unwrap()).collect();
    assert!(nodes.len() == 2 && nodes.iter().all(|node| node.id.contains("client-")), "{nodes:?}");

    // What is not served.
    for (type_url, names, message) in [
        ("istio.io/debug", &["mesh"][..], "there is no debug page"),
        ("istio.io/debug", &[], "asked for with one name"),
        ("istio.io/event", &[], "istio.io/event is not served"),
    ] {
        let error = ask(target, type_url, names).await.unwrap_err();
        assert!(error.contains(message), "{type_url}: {error}");
    }
    // Proxies have not noticed any of it.
    assert_eq!(fleet.synced(LIMIT).await.ok().map(drop), Some(()));
}
