//! A workload of a registry that has no objects gets what a Pod in its place would get, and so do its
//! clients.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_model::{
    ChangeSet, Fact, Hostname, Kind, Locality, Origin, Port, Protocol, Provider, Service, ServiceKey,
    ShardKey, SpiffeId, TlsMode, Workload,
};
use pilotfish_registry::RegistryBatch;
use pilotfish_registry::testing::Scene;
use pilotfish_testkit::cases::ProxyEntry;
use pilotfish_testkit::dump::dump;
use pilotfish_translate::{Proxy, Translator};
use serde_json::{Value as Json, json};
use std::sync::Arc;

const HOST: &str = "web.shop.svc.cluster.local";
const ADDRESS: &str = "10.1.0.1";
const IDENTITY: &str = "spiffe://cluster.local/ns/shop/sa/web";

/// What selects the workload by its labels, and what concerns its clients.
const POLICIES: &str = "
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: shop}
spec: {selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: only-readers, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/reader]}}], to: [{operation: {methods: [GET]}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: of-others, namespace: shop}
spec: {selector: {matchLabels: {app: other}}, action: DENY, rules: [{}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  egress: [{hosts: [./db.example.com]}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db, namespace: shop}
spec:
  hosts: [db.example.com]
  resolution: STATIC
  ports: [{name: http, number: 80, protocol: HTTP}]
  endpoints: [{address: 10.9.0.1}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web.shop.svc.cluster.local
  trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}, loadBalancer: {simple: LEAST_REQUEST}}
  subsets: [{name: v1, labels: {version: v1}}]
---
";

const POD: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web, version: v1, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: web, nodeName: n1, containers: [{name: app, image: x}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}], conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1], targetRef: {kind: Pod, name: web-1, namespace: shop}}]
---
";

/// The Pod and its Service as a registry without objects has them. `change` sets what a registry may or may
/// not know.
fn registered(change: impl FnOnce(&mut Workload)) -> (ShardKey, RegistryBatch) {
    let shard = ShardKey::new(Provider::new(2, "test"), "Kubernetes");
    let port = Port { number: 80, name: "http".into(), protocol: Protocol::Http, target_port: None };
    let hostname = Hostname::parse(HOST).unwrap();
    let key = ServiceKey { hostname: hostname.clone(), namespace: "shop".into() };
    let origin = Origin::registered(shard.clone(), "web");
    let mut service = Service::registered(shard.provider, hostname, "shop", vec![port.clone()], origin);
    service.name = "web".into();
    let mut workload = Workload::registered(&shard, "shop", "web-1", vec![Arc::from(ADDRESS)]);
    workload.labels = Arc::new([("app", "web"), ("version", "v1")].into_iter().collect());
    change(&mut workload);
    let mut batch = RegistryBatch::complete();
    batch.set_endpoints(key, vec![Arc::new(workload.endpoint(&port, 8080))]);
    batch.set_workload(workload);
    batch.set_service(service);
    (shard, batch)
}

/// All that a registry can know of the workload of [`POD`].
fn all(workload: &mut Workload) {
    workload.locality = Locality { region: "r".into(), zone: "z".into(), sub_zone: Arc::default() };
    workload.identity = Some(SpiffeId::parse(IDENTITY).unwrap());
    workload.service_account = "web".into();
    workload.tls_mode = TlsMode::Istio;
}

fn translator(mut scene: Scene) -> Translator {
    scene.apply(POLICIES).unwrap();
    let translator = Translator::new();
    translator.publish(scene.world(), &ChangeSet { facts: [Fact::Kind(Kind::MeshConfig)].into() });
    translator
}

fn as_pod() -> Translator {
    let mut scene = Scene::new();
    scene.apply(POD).unwrap();
    translator(scene)
}

fn as_registered(change: impl FnOnce(&mut Workload)) -> Translator {
    let mut scene = Scene::new();
    let (shard, batch) = registered(change);
    scene.controller.add_live(shard.clone());
    scene.controller.registry_batch(&shard, batch).unwrap();
    scene.controller.registry_synced(&shard).unwrap();
    translator(scene)
}

/// Everything that a sidecar of the namespace is sent. Its node says nothing about labels unless `metadata`
/// does.
fn sidecar(translator: &Translator, pod: &str, ip: &str, metadata: &Json) -> Json {
    let entry: ProxyEntry = serde_json::from_value(
        json!({"name": pod, "namespace": "shop", "ip": ip, "locality": "r/z", "metadata": metadata}),
    )
    .unwrap();
    let client = translator.connect(Proxy::from_node(&entry.node()).unwrap());
    dump(&translator.snapshot(), &client, None).unwrap()
}

fn own(translator: &Translator) -> Json {
    sidecar(translator, "web-1", ADDRESS, &json!({}))
}

/// The chains of the inbound listener for a port.
fn chains(dump: &Json, port: u32) -> Vec<&Json> {
    let chains = dump["listeners"]["virtualInbound"]["filter_chains"].as_array().unwrap();
    chains.iter().filter(|chain| chain["filter_chain_match"]["destination_port"] == port).collect()
}

fn names(dump: &Json, kind: &str) -> Vec<String> {
    dump[kind].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_inbound_side_is_that_of_a_pod() {
    let (pod, registered) = (own(&as_pod()), own(&as_registered(all)));
    let inbound = chains(&registered, 8080);
    assert_eq!(inbound.len(), 1, "STRICT: there is no chain for plain text: {inbound:?}");
    let chain = inbound[0].to_string();
    assert_eq!(inbound[0]["transport_socket"]["typed_config"]["require_client_certificate"], true, "{chain}");
    for part in ["cluster.local/ns/shop/sa/reader", "ns[shop]-policy[only-readers]-rule[0]", "inbound|8080||"]
    {
        assert!(chain.contains(part), "{part:?} in {chain}");
    }
    assert!(!chain.contains("of-others"), "{chain}");
    assert!(registered["clusters"]["inbound|8080||"].is_object());
    let virtual_inbound = |dump: &Json| dump["listeners"]["virtualInbound"].clone();
    assert_eq!(virtual_inbound(&registered), virtual_inbound(&pod));
    assert_eq!(registered["clusters"]["inbound|8080||"], pod["clusters"]["inbound|8080||"]);
    assert_eq!(names(&registered, "clusters"), names(&pod, "clusters"), "the Sidecar selects by labels, too");
    assert!(names(&registered, "clusters").contains(&"outbound|80||db.example.com".to_owned()));
    assert!(!names(&registered, "clusters").contains(&format!("outbound|80||{HOST}")));
}

#[test]
fn labels_of_the_node_do_not_hide_those_of_the_registry() {
    let registered = as_registered(all);
    let from_registry = own(&registered);
    let labels = json!({"LABELS": {"app": "web", "version": "v1"}});
    let from_both = sidecar(&registered, "web-1", ADDRESS, &labels);
    let virtual_inbound = |dump: &Json| chains(dump, 8080).into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(virtual_inbound(&from_registry), virtual_inbound(&from_both));
    // Another workload of the namespace is not selected.
    let other = sidecar(&registered, "other-1", "10.1.0.9", &json!({}));
    assert!(chains(&other, 8080).is_empty());
    assert!(!other.to_string().contains("only-readers"));
    assert!(names(&other, "clusters").contains(&format!("outbound|80||{HOST}")));
}

#[test]
fn clients_get_its_endpoints_with_place_and_identity() {
    let (pod, registered) = (as_pod(), as_registered(all));
    let client = |translator| sidecar(translator, "client", "10.1.0.9", &json!({}));
    let (pod, registered) = (client(&pod), client(&registered));
    for name in [format!("outbound|80||{HOST}"), format!("outbound|80|v1|{HOST}")] {
        let assignment = &registered["endpoints"][&name];
        let localities = assignment["endpoints"].as_array().unwrap();
        assert_eq!(localities.len(), 1, "{assignment}");
        assert_eq!(localities[0]["locality"], json!({"region": "r", "zone": "z"}));
        let endpoint = &localities[0]["lb_endpoints"][0];
        let socket = &endpoint["endpoint"]["address"]["socket_address"];
        assert_eq!((&socket["address"], &socket["port_value"]), (&json!(ADDRESS), &json!(8080)));
        assert!(
            endpoint.to_string().contains("tlsMode"),
            "mutual TLS is for endpoints of the mesh: {endpoint}"
        );
        let cluster = &registered["clusters"][&name];
        assert!(cluster.to_string().contains(IDENTITY), "servers are known by their identity: {cluster}");
        assert_eq!(cluster["circuit_breakers"]["thresholds"][0]["max_connections"], 7, "{cluster}");
        assert_eq!(*assignment, pod["endpoints"][&name]);
    }
}

#[test]
fn a_registry_that_knows_neither_place_nor_identity_has_plain_endpoints() {
    let client = sidecar(&as_registered(|_| ()), "client", "10.1.0.9", &json!({}));
    let name = format!("outbound|80||{HOST}");
    let localities = client["endpoints"][&name]["endpoints"].as_array().unwrap();
    assert_eq!(localities.len(), 1);
    let text = localities[0].to_string();
    assert!(text.contains(ADDRESS) && !text.contains("tlsMode"), "{text}");
    assert!(!client["clusters"][&name].to_string().contains("spiffe://"));
}
