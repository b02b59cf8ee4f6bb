//! Which facets of a proxy its views hold: each facet is varied alone, in a world that makes no use of it and
//! in worlds that do.

mod worlds;

use crate::credentials::CertificateSource;
use crate::proxy::{InterceptionMode, Metadata, PodPort, Proxy, ProxyKind};
use crate::testing::{labels, sidecar, world};
use crate::translator::{Client, Snapshot, Translator};
use pilotfish_model::{ChangeSet, Fact, Locality, Update};
use pilotfish_proto::ResourceType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use worlds::*;

/// Resource types by letter: `C`lusters, `E`ndpoints, `L`isteners, `R`outes, `S`ecrets, e`X`tensions, `N`ame
/// table.
const TYPES: [(char, ResourceType); 7] = [
    ('C', ResourceType::Cluster),
    ('E', ResourceType::Endpoint),
    ('L', ResourceType::Listener),
    ('R', ResourceType::Route),
    ('S', ResourceType::Secret),
    ('X', ResourceType::ExtensionConfig),
    ('N', ResourceType::NameTable),
];

const WEB: &str = "outbound|80||web.shop.svc.cluster.local";
const KINDS: [ProxyKind; 3] = [ProxyKind::Sidecar, ProxyKind::Router, ProxyKind::Grpc];

/// What is subscribed by name.
fn names(resource_type: ResourceType) -> &'static [&'static str] {
    match resource_type {
        ResourceType::Cluster | ResourceType::Endpoint => &[WEB],
        ResourceType::Listener => &["web:80", "xds.istio.io/grpc/lds/inbound/10.0.99.1:8080"],
        ResourceType::Route => &["80", "http.80", "http.8080", WEB],
        ResourceType::Secret => &["kubernetes://web"],
        ResourceType::ExtensionConfig => {
            &["extensions.istio.io/trafficextension/shop.w~istio-translated-wasmplugin"]
        }
        _ => &[],
    }
}

fn base(kind: ProxyKind) -> Proxy {
    let proxy = sidecar("client-0", "shop");
    Proxy { kind, proxy_config: "{}".into(), ..proxy }
        .with_identities(["spiffe://cluster.local/ns/shop/sa/web"])
        .unwrap()
}

fn meta(pairs: &[(&str, &str)]) -> Metadata {
    pairs.iter().copied().collect()
}

/// Metadata that some resource depends on: the key and a value that makes a difference.
const METADATA: [(&str, &[(&str, &str)]); 14] = [
    ("ANYTHING", &[("ANYTHING", "else")]),
    ("SERVICE_ACCOUNT", &[("SERVICE_ACCOUNT", "else")]),
    ("NODE_NAME", &[("NODE_NAME", "node-b")]),
    ("ISTIO_VERSION", &[("ISTIO_VERSION", "1.29.0")]),
    ("MESH_ID", &[("MESH_ID", "mesh-b")]),
    ("REQUESTED_NETWORK_VIEW", &[("REQUESTED_NETWORK_VIEW", "net-b")]),
    ("DNS", &[("DNS_CAPTURE", "true"), ("DNS_AUTO_ALLOCATE", "true")]),
    ("IDLE_TIMEOUT", &[("IDLE_TIMEOUT", "10s")]),
    ("HTTP10", &[("HTTP10", "1")]),
    ("UNPRIVILEGED_POD", &[("UNPRIVILEGED_POD", "true")]),
    ("HTTP_PROXY_PORT", &[("HTTP_PROXY_PORT", "8888")]),
    ("ENVOY_STATUS_PORT", &[("ENVOY_STATUS_PORT", "8080")]),
    (
        "EXACT_BALANCE",
        &[("INBOUND_LISTENER_EXACT_BALANCE", "true"), ("OUTBOUND_LISTENER_EXACT_BALANCE", "true")],
    ),
    (
        "TLS_CLIENT",
        &[("TLS_CLIENT_ROOT_CERT", "/r"), ("TLS_CLIENT_CERT_CHAIN", "/c"), ("TLS_CLIENT_KEY", "/k")],
    ),
];

/// Settings of a proxy that make a difference.
const CONFIGS: [(&str, &str); 2] = [
    ("tracing", r#"{"tracing": {"sampling": 7}}"#),
    ("headers", r#"{"proxyHeaders": {"attemptCount": {"disabled": true}, "preserveHttp1HeaderCase": true}}"#),
];

/// A proxy that differs from another in every facet but its kind.
fn other(proxy: &Proxy) -> Proxy {
    Proxy {
        id: "else".into(),
        kind: proxy.kind,
        ips: Arc::from(["10.0.99.9".parse().unwrap()]),
        name: "else-1".into(),
        service_cluster: "else.shop".into(),
        namespace: "pay".into(),
        dns_domain: "pay.svc.cluster.local".into(),
        cluster: "east".into(),
        network: "net-b".into(),
        labels: labels(&[("app", "other"), ("pod-template-hash", "1")]),
        static_labels: labels(&[("app", "other")]),
        locality: Locality::parse("eu/eu-1/a"),
        interception: InterceptionMode::Tproxy,
        istio_filters: !proxy.istio_filters,
        wasm: crate::proxy::WasmSupport { http: !proxy.wasm.http, network: !proxy.wasm.network },
        dubbo_proxy: !proxy.dubbo_proxy,
        certificate_source: match proxy.certificate_source {
            CertificateSource::Agent => CertificateSource::Nobody,
            _ => CertificateSource::Agent,
        },
        refuses_least_request: !proxy.refuses_least_request,
        metadata: Metadata::default(),
        identity: crate::proxy::Identity::parse("spiffe://cluster.local/ns/pay/sa/web"),
        secret_access: crate::proxy::SecretAccess::Foreign,
        proxy_config: r#"{"concurrency": 2}"#.into(),
        span_service: "else".into(),
        pod_ports: Arc::from([PodPort { name: "web".into(), number: 8080, protocol: "TCP".into() }]),
    }
}

/// The proxy with one facet varied, for every facet but its kind. A new field of [`Proxy`] does not compile
/// until it is here.
fn varied(proxy: &Proxy) -> Vec<(&'static str, Proxy)> {
    #[rustfmt::skip]
    let Proxy {
        id, kind: _, ips, name, service_cluster, namespace, dns_domain, cluster, network, labels, static_labels, locality,
        interception, istio_filters, wasm, dubbo_proxy, certificate_source, refuses_least_request, metadata: _, identity, secret_access,
        proxy_config, span_service, pod_ports,
    } = other(proxy);
    let old = || proxy.clone();
    let mut out = vec![
        ("id", Proxy { id, ..old() }),
        ("ips", Proxy { ips, ..old() }),
        ("family", Proxy { ips: Arc::from(["fd00::9".parse().unwrap()]), ..old() }),
        ("name", Proxy { name, ..old() }),
        ("service_cluster", Proxy { service_cluster, ..old() }),
        ("refuses_least_request", Proxy { refuses_least_request, ..old() }),
        ("namespace", Proxy { namespace, ..old() }),
        ("dns_domain", Proxy { dns_domain, ..old() }),
        ("cluster", Proxy { cluster, ..old() }),
        ("network", Proxy { network, ..old() }),
        ("labels", Proxy { labels, ..old() }),
        ("static_labels", Proxy { static_labels, ..old() }),
        ("locality", Proxy { locality, ..old() }),
        ("interception", Proxy { interception, ..old() }),
        ("istio_filters", Proxy { istio_filters, ..old() }),
        ("wasm", Proxy { wasm, ..old() }),
        ("dubbo_proxy", Proxy { dubbo_proxy, ..old() }),
        ("certificate_source", Proxy { certificate_source, ..old() }),
        ("identity", Proxy { identity, ..old() }),
        ("secret_access", Proxy { secret_access, ..old() }),
        ("proxy_config", Proxy { proxy_config, ..old() }),
        ("span_service", Proxy { span_service, ..old() }),
        ("pod_ports", Proxy { pod_ports, ..old() }),
    ];
    out.extend(CONFIGS.map(|(facet, own)| (facet, Proxy { proxy_config: own.into(), ..old() })));
    out.into_iter()
        .chain(METADATA.map(|(facet, pairs)| (facet, Proxy { metadata: meta(pairs), ..old() })))
        .collect()
}

/// The types whose views hold a facet in a world that makes no special use of it: of a sidecar, a router and
/// a gRPC client. A facet that is not listed is held by none.
const HELD: [(&str, [&str; 3]); 24] = [
    ("family", ["CLRN", "CL", "LR"]),
    ("namespace", ["CELRXN", "CELRX", "CELR"]),
    ("dns_domain", ["R", "", "LR"]),
    ("cluster", ["LRN", "", "LR"]),
    ("MESH_ID", ["L", "L", ""]),
    ("interception", ["L", "", ""]),
    ("istio_filters", ["CL", "CL", ""]),
    ("wasm", ["L", "L", ""]),
    ("dubbo_proxy", ["L", "", ""]),
    ("certificate_source", ["CL", "C", ""]),
    ("refuses_least_request", ["", "", "C"]),
    ("identity", ["S", "S", "S"]),
    ("secret_access", ["S", "S", "S"]),
    ("tracing", ["L", "L", ""]),
    ("headers", ["CLR", "CLR", "R"]),
    ("REQUESTED_NETWORK_VIEW", ["E", "E", "E"]),
    ("DNS", ["LRN", "", "LR"]),
    ("IDLE_TIMEOUT", ["L", "L", ""]),
    ("HTTP10", ["L", "L", ""]),
    ("UNPRIVILEGED_POD", ["L", "L", ""]),
    ("HTTP_PROXY_PORT", ["L", "", ""]),
    ("ENVOY_STATUS_PORT", ["L", "", ""]),
    ("EXACT_BALANCE", ["L", "", ""]),
    ("TLS_CLIENT", ["C", "C", ""]),
];

/// What makes a facet count: the facet, what is added to the world, and the types whose resources differ
/// then: of a sidecar, a router and a gRPC client.
type Use = (&'static str, fn() -> Vec<Update>, [&'static str; 3]);

#[rustfmt::skip]
const USES: [Use; 52] = [
    ("ips", own_endpoint, ["L", "", ""]),
    ("ips", declared_ports, ["CL", "", ""]),
    ("family", plain, ["CLRN", "L", "R"]),
    ("family", dual_stack, ["CLRN", "L", "LR"]),
    ("family", resolved, ["CLRN", "CL", "R"]),
    ("name", own_pod, ["CL", "LR", "L"]),
    ("service_cluster", opentelemetry, ["L", "L", ""]),
    ("span_service", spans_by_conventions, ["L", "L", ""]),
    ("ISTIO_VERSION", untraced_headers, ["L", "L", ""]),
    ("namespace", private, ["CELRN", "CELR", "CELR"]),
    ("namespace", plugin, ["LX", "LX", ""]),
    ("dns_domain", plain, ["R", "", "LR"]),
    ("cluster", addresses_by_cluster, ["LRN", "", "LR"]),
    ("cluster", cluster_local, ["E", "E", "E"]),
    ("cluster", own_pod, ["CL", "LR", "L"]),
    ("network", headless, ["N", "", ""]),
    ("network", gateways_between_networks, ["E", "E", "E"]),
    ("labels", policy, ["L", "L", ""]),
    ("labels", script, ["L", "L", ""]),
    ("labels", rule_for_clients, ["CELR", "CELR", "CER"]),
    ("labels", route_by_source, ["R", "R", "R"]),
    ("labels", stream_by_source, ["L", "", ""]),
    ("labels", narrow_scope, ["CELRN", "", "CELR"]),
    ("labels", gateway, ["", "LRS", ""]),
    ("labels", patch_by_label, ["CLR", "CLR", ""]),
    ("static_labels", policy_for_pods, ["L", "L", "L"]),
    ("locality", distribute, ["E", "E", "E"]),
    ("interception", plain, ["L", "", ""]),
    ("istio_filters", plain, ["CL", "CL", ""]),
    ("wasm", plugin_with_secret, ["L", "L", ""]),
    ("dubbo_proxy", calls_of_dubbo, ["L", "", ""]),
    ("certificate_source", own_pod, ["CL", "C", ""]),
    ("refuses_least_request", least_request, ["", "", "C"]),
    ("identity", secret, ["S", "S", "S"]),
    ("identity", plugin_with_secret, ["X", "X", ""]),
    ("secret_access", secret, ["S", "S", "S"]),
    ("secret_access", plugin_with_secret, ["X", "X", ""]),
    ("tracing", traced, ["L", "L", ""]),
    ("headers", plain, ["CLR", "CLR", "R"]),
    ("NODE_NAME", node_local, ["E", "E", "E"]),
    ("ISTIO_VERSION", patch_by_version, ["CLR", "CLR", ""]),
    ("ANYTHING", patch_by_metadata, ["CLR", "CLR", ""]),
    ("MESH_ID", traced, ["L", "L", ""]),
    ("REQUESTED_NETWORK_VIEW", networks, ["E", "E", "E"]),
    ("DNS", allocated, ["LRN", "", "LR"]),
    ("IDLE_TIMEOUT", streams, ["L", "L", ""]),
    ("HTTP10", plain, ["L", "L", ""]),
    ("UNPRIVILEGED_POD", low_ports, ["L", "L", ""]),
    ("HTTP_PROXY_PORT", plain, ["L", "", ""]),
    ("ENVOY_STATUS_PORT", own_pod, ["L", "", ""]),
    ("EXACT_BALANCE", plain, ["L", "", ""]),
    ("TLS_CLIENT", mutual_tls, ["C", "C", ""]),
];

/// One world with two proxies, the second of which differs in one facet.
struct Pair {
    translator: Translator,
    clients: [Client; 2],
}

impl Pair {
    fn new(updates: Vec<Update>, one: &Proxy, other: &Proxy) -> Self {
        let translator = Translator::new();
        let world = world(plain().into_iter().chain(updates));
        translator.publish(world, &ChangeSet { facts: [Fact::Services].into() });
        let clients = [one, other].map(|proxy| translator.connect(proxy.clone()));
        Self { translator, clients }
    }

    /// Whether both have one view, so that what is generated for the first is taken from the memo for the
    /// second.
    fn is_shared(&self, resource_type: ResourceType) -> bool {
        let snapshot = self.translator.snapshot();
        let [one, other] = self.clients.each_ref().map(|client| snapshot.view(client, resource_type));
        if one != other {
            return false;
        }
        resources(&snapshot, &self.clients[0], resource_type);
        let computed = self.translator.computed();
        resources(&snapshot, &self.clients[1], resource_type);
        assert_eq!(self.translator.computed(), computed, "one view is generated once");
        true
    }

    fn are_equal(&self, resource_type: ResourceType) -> bool {
        let snapshot = self.translator.snapshot();
        let [one, other] = self.clients.each_ref().map(|client| resources(&snapshot, client, resource_type));
        one == other
    }
}

/// The resources of a type, with hashes of their content.
fn resources(snapshot: &Snapshot<'_>, client: &Client, of: ResourceType) -> BTreeMap<Arc<str>, u64> {
    let Some(view) = snapshot.view(client, of) else { return BTreeMap::new() };
    let listed = snapshot.names(view);
    let names = listed.iter().cloned().chain(names(of).iter().map(|name| Arc::from(*name)));
    names.filter_map(|name| Some((name.clone(), snapshot.get(view, &name)?.version))).collect()
}

fn held(facet: &str, kind: usize) -> &'static str {
    HELD.iter().find(|(held, _)| *held == facet).map_or("", |(_, types)| types[kind])
}

#[test]
fn views_hold_no_facet_that_nothing_uses() {
    let mut wrong = Vec::new();
    for (index, kind) in KINDS.into_iter().enumerate() {
        let base = base(kind);
        for (facet, other) in varied(&base) {
            let pair = Pair::new(Vec::new(), &base, &other);
            for (letter, resource_type) in TYPES {
                if pair.is_shared(resource_type) == held(facet, index).contains(letter) {
                    wrong.push(format!("{letter} of {kind:?} and {facet}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "held, but not in the table, or the other way round: {wrong:#?}");
}

#[test]
fn facets_that_something_uses_make_other_views_and_resources() {
    let mut wrong = Vec::new();
    for (index, kind) in KINDS.into_iter().enumerate() {
        let base = base(kind);
        for (row, (facet, uses, types)) in USES.into_iter().enumerate() {
            let other = varied(&base).into_iter().find(|(name, _)| *name == facet).unwrap().1;
            let pair = Pair::new(uses(), &base, &other);
            for (letter, resource_type) in TYPES {
                let (used, held) = (types[index].contains(letter), held(facet, index).contains(letter));
                let (shared, equal) = (pair.is_shared(resource_type), pair.are_equal(resource_type));
                if shared == (used || held) || equal == used {
                    wrong.push(format!(
                        "row {row}: {letter} of {kind:?} and {facet}: shared {shared}, equal {equal}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_facet_that_a_view_holds_is_used() {
    let all: BTreeSet<&str> = varied(&base(ProxyKind::Sidecar)).into_iter().map(|(facet, _)| facet).collect();
    let named = HELD.iter().map(|(facet, _)| *facet).chain(USES.iter().map(|(facet, ..)| *facet));
    assert!(named.into_iter().all(|facet| all.contains(facet)));
    for (facet, types) in HELD {
        for (index, types) in types.iter().enumerate() {
            let uses = |letter| USES.iter().any(|(used, _, by)| *used == facet && by[index].contains(letter));
            let unused: String = types.chars().filter(|letter| !uses(*letter)).collect();
            assert_eq!(unused, "", "{facet} of {:?}", KINDS[index]);
        }
    }
}
