//! A destination is reported exactly where some proxy has a route to a cluster that it does not have.

use super::{analyzer, object};
use crate::analysis::Known;
use crate::proxy::{Proxy, ProxyKind};
use crate::testing::{EXTERNAL, endpoint, labels, pod, service, sidecar, world, yaml};
use crate::translator::{Client, Snapshot, Translator};
use pilotfish_model::{
    ChangeSet, ExportTo, Hostname, KubernetesAttributes, Port, Protocol, Resolution, Service, ShardKey,
    Update,
};
use pilotfish_proto::envoy::config::core::v3::Metadata;
use pilotfish_proto::envoy::config::listener::v3::{Listener, filter::ConfigType};
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use pilotfish_proto::envoy::config::route::v3::{RouteAction, RouteConfiguration};
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy;
use pilotfish_proto::{Any, ResourceType};
use proptest::prelude::*;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PORTS: [(u32, Protocol); 4] =
    [(80, Protocol::Http), (8080, Protocol::Http), (443, Protocol::Https), (9000, Protocol::Tcp)];

/// Hosts that routes lead to.
const DESTINATIONS: [&str; 11] = [
    "s0",
    "s1",
    "s2",
    "v0",
    "gone",
    "b0.bank.svc.cluster.local",
    "b1.bank.svc.cluster.local",
    "of-s0",
    "of-outside",
    "of-of-s0",
    "www.example.org",
];

fn ports(mask: u8) -> Arc<[Port]> {
    let chosen = PORTS.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
    let port = |(number, protocol): (u32, Protocol)| Port {
        number,
        name: format!("p{number}").into(),
        protocol,
        target_port: None,
    };
    chosen.map(|(_, one)| port(*one)).collect()
}

fn of_ports(name: &str, namespace: &str, mask: u8, export_to: ExportTo, number: usize) -> Update {
    let made = service(name, namespace).with(|service: &mut Service| {
        service.ports = ports(mask);
        service.export_to = export_to;
        service.default_address = format!("10.1.0.{number}").into();
    });
    made.update()
}

fn alias(name: &str, to: &str) -> Update {
    let made = service(name, "shop").with(|service| {
        service.resolution = Resolution::Alias;
        let attributes =
            KubernetesAttributes { external_name: Some(to.into()), ..KubernetesAttributes::default() };
        service.kubernetes = Some(Arc::new(attributes));
    });
    made.update()
}

fn wildcard() -> Update {
    let made = service("wild", "shop").with(|service| {
        service.hostname = Hostname::parse("*.example.org").unwrap();
        service.provider = EXTERNAL;
    });
    made.update()
}

fn exports() -> impl Strategy<Value = ExportTo> {
    let to = |names: &[&str]| ExportTo::namespaces(names.iter().copied());
    prop_oneof![
        3 => Just(ExportTo::Unset),
        1 => Just(ExportTo::Nobody),
        1 => Just(to(&["bank"])),
        1 => Just(to(&["shop"])),
        1 => Just(to(&["edge"])),
    ]
}

fn destination() -> impl Strategy<Value = String> {
    let port = prop_oneof![2 => Just(None), 1 => (0..PORTS.len()).prop_map(|at| Some(PORTS[at].0))];
    (0..DESTINATIONS.len(), port, prop::option::weighted(0.3, 1..3_u8)).prop_map(|(host, port, subset)| {
        let port = port.map(|port| format!(", port: {{number: {port}}}")).unwrap_or_default();
        let subset = subset.map(|n| format!(", subset: v{n}")).unwrap_or_default();
        format!("{{host: {}{port}{subset}}}", DESTINATIONS[host])
    })
}

fn http_route() -> impl Strategy<Value = String> {
    let weighted = prop_oneof![
        3 => destination().prop_map(|to| format!("route: [{{destination: {to}}}]")),
        1 => (destination(), destination(), 0..2_u8).prop_map(|(a, b, weight)| {
            format!("route: [{{destination: {a}, weight: 1}}, {{destination: {b}, weight: {weight}}}]")
        }),
        1 => (destination(), 0..2_u8).prop_map(|(to, share)| {
            format!("route: [{{destination: {{host: v1, port: {{number: 80}}}}}}], mirror: {to}, mirrorPercentage: {{value: {share}}}")
        }),
        1 => Just("redirect: {uri: /x}".to_owned()),
    ];
    let conditions = prop_oneof![
        2 => Just(String::new()),
        1 => (0..PORTS.len()).prop_map(|at| format!("match: [{{port: {}}}], ", PORTS[at].0)),
        1 => Just("match: [{sourceNamespace: edge}], ".to_owned()),
        1 => Just("match: [{gateways: [mesh]}], ".to_owned()),
        1 => Just("match: [{uri: {prefix: /x}}], ".to_owned()),
    ];
    (conditions, weighted).prop_map(|(conditions, route)| format!("{{{conditions}{route}}}"))
}

/// A VirtualService for the service `v0` or `v1`.
fn rule(name: &'static str, host: &'static str) -> impl Strategy<Value = String> {
    let gateways = prop_oneof![Just(""), Just("gateways: [front], "), Just("gateways: [mesh, front], ")];
    let exported =
        prop_oneof![3 => Just(""), 1 => Just("exportTo: [\".\"], "), 1 => Just("exportTo: [edge], ")];
    let http = (prop::collection::vec(http_route(), 1..3), gateways, exported).prop_map(
        move |(routes, gateways, exported)| {
            format!("{{hosts: [{host}], {gateways}{exported}http: [{}]}}", routes.join(", "))
        },
    );
    let tcp = destination()
        .prop_map(move |to| format!("{{hosts: [{host}], tcp: [{{route: [{{destination: {to}}}]}}]}}"));
    prop_oneof![3 => http, 1 => tcp].prop_map(move |spec| object("VirtualService", name, &spec))
}

fn subsets() -> impl Strategy<Value = String> {
    let namespaces = prop_oneof![Just("shop"), Just("bank"), Just("third"), Just("edge")];
    (0..DESTINATIONS.len() - 1, namespaces, any::<bool>()).prop_map(|(host, namespace, private)| {
        let host = match DESTINATIONS[host] {
            short if !short.contains('.') => format!("{short}.shop.svc.cluster.local"),
            full => full.to_owned(),
        };
        let exported = if private { ", exportTo: [\".\"]" } else { "" };
        let spec = format!("{{host: {host}, subsets: [{{name: v1, labels: {{a: b}}}}]{exported}}}");
        crate::testing::line("networking.istio.io/v1", "DestinationRule", namespace, "dr", &spec)
    })
}

const FRONT: &str = "{selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"*\"]}]}";

fn mesh() -> impl Strategy<Value = (Vec<Update>, String)> {
    let services = prop::collection::vec((1..16_u8, exports()), 5);
    let hosts = prop::collection::vec(1..16_u8, 2);
    let rules = (rule("rule-0", "v0"), rule("rule-1", "v1"));
    (services, hosts, rules, prop::collection::vec(subsets(), 0..3), any::<bool>()).prop_map(
        |(services, hosts, rules, subsets, has_endpoint)| {
            let names = [("s0", "shop"), ("s1", "shop"), ("s2", "shop"), ("b0", "bank"), ("b1", "bank")];
            let mut updates: Vec<Update> = Vec::new();
            for (index, ((name, namespace), (mask, export_to))) in names.iter().zip(services).enumerate() {
                updates.push(of_ports(name, namespace, mask, export_to, index + 1));
            }
            for (index, mask) in hosts.into_iter().enumerate() {
                updates.push(of_ports(&format!("v{index}"), "shop", mask, ExportTo::Unset, index + 10));
            }
            updates.extend([
                alias("of-s0", "s0.shop.svc.cluster.local"),
                alias("of-outside", "www.example.com"),
                alias("of-of-s0", "of-s0.shop.svc.cluster.local"),
                wildcard(),
                Update::Workload(Arc::new(pod("client", "shop", "10.0.99.1", &[("app", "client")]))),
                Update::Workload(Arc::new(pod("in-1", "edge", "10.0.0.9", &[("istio", "ingress")]))),
            ]);
            if has_endpoint {
                let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
                let one = [Arc::new(endpoint("10.0.0.1", 8080, "p80"))].into();
                updates.push(Update::Endpoints(service("s0", "shop").key(), shard, one));
            }
            let text = object("Gateway", "front", FRONT) + &rules.0 + &rules.1 + &subsets.concat();
            (updates, text)
        },
    )
}

/// The clusters that the routes of each VirtualService name, by the name of the VirtualService.
type Named = BTreeMap<String, BTreeSet<String>>;

fn rule_of(metadata: Option<&Metadata>) -> Option<String> {
    use pilotfish_proto::ValueKind as Kind;
    let istio = metadata?.filter_metadata.get("istio")?;
    let Some(Kind::StringValue(path)) = &istio.fields.get("config")?.kind else { return None };
    path.rsplit_once('/').map(|(_, name)| name.to_owned())
}

fn clusters_of(action: &RouteAction) -> Vec<String> {
    let mut clusters: Vec<String> =
        action.request_mirror_policies.iter().map(|mirror| mirror.cluster.clone()).collect();
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => clusters.push(name.clone()),
        Some(ClusterSpecifier::WeightedClusters(all)) => {
            clusters.extend(all.clusters.iter().map(|one| one.name.clone()));
        }
        _ => {}
    }
    clusters
}

/// Adds what the route configuration has; of a sidecar, but for hosts that a service has without that port:
/// no client asks for them there.
fn add_routes(body: &[u8], is_sidecar: bool, known: &BTreeSet<String>, named: &mut Named) {
    let config = RouteConfiguration::decode(&*Any::decode(body).unwrap().value).unwrap();
    for host in &config.virtual_hosts {
        let Some((name, port)) = host.name.rsplit_once(':') else { continue };
        let is_service = known.iter().any(|cluster| cluster.ends_with(&format!("||{name}")));
        if is_sidecar && is_service && !known.contains(&format!("outbound|{port}||{name}")) {
            continue;
        }
        for route in &host.routes {
            if let (Some(rule), Some(Action::Route(action))) =
                (rule_of(route.metadata.as_ref()), &route.action)
            {
                named.entry(rule).or_default().extend(clusters_of(action));
            }
        }
    }
}

fn add_streams(body: &[u8], named: &mut Named) {
    let listener = Listener::decode(&*Any::decode(body).unwrap().value).unwrap();
    for chain in &listener.filter_chains {
        let Some(rule) = rule_of(chain.metadata.as_ref()) else { continue };
        for filter in &chain.filters {
            let Some(ConfigType::TypedConfig(any)) = &filter.config_type else { continue };
            if filter.name == "envoy.filters.network.tcp_proxy" {
                let proxy = TcpProxy::decode(&*any.value).unwrap();
                if let Some(tcp_proxy::ClusterSpecifier::Cluster(name)) = proxy.cluster_specifier {
                    named.entry(rule.clone()).or_default().insert(name);
                }
            }
        }
    }
}

/// The VirtualServices of which a proxy has a route to a cluster that it does not have.
fn broken(snapshot: &Snapshot<'_>, client: &Client, routes: &[&str]) -> BTreeSet<String> {
    let view = |of| snapshot.view(client, of).unwrap();
    let known: BTreeSet<String> =
        snapshot.names(view(ResourceType::Cluster)).iter().map(ToString::to_string).collect();
    let mut named = Named::new();
    for route in routes {
        if let Some(found) = snapshot.get(view(ResourceType::Route), route) {
            add_routes(&found.body, client.proxy().kind == ProxyKind::Sidecar, &known, &mut named);
        }
    }
    for listener in snapshot.names(view(ResourceType::Listener)).iter() {
        if let Some(found) = snapshot.get(view(ResourceType::Listener), listener) {
            add_streams(&found.body, &mut named);
        }
    }
    let is_broken = |(_, clusters): &(String, BTreeSet<String>)| !clusters.is_subset(&known);
    named.into_iter().filter(is_broken).map(|(rule, _)| rule).collect()
}

fn router() -> Proxy {
    let proxy = sidecar("in-1", "edge");
    Proxy {
        kind: ProxyKind::Router,
        ips: Arc::from(["10.0.0.9".parse().unwrap()]),
        labels: labels(&[("istio", "ingress")]),
        static_labels: labels(&[("istio", "ingress")]),
        ..proxy
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn destination_is_reported_exactly_where_a_proxy_has_no_such_cluster((updates, text) in mesh()) {
        let mut updates = updates;
        updates.extend(yaml(&text));
        let world = world(updates);
        let mut analyzer = analyzer(Known::default());
        analyzer.advance(&world, &ChangeSet::default());
        let about_destinations = analyzer.findings().filter(|finding| {
            finding.code.id() == "IST0101" && (finding.path.contains("route[") || finding.path.contains("mirror"))
        });
        let found: Vec<_> = about_destinations.cloned().collect();
        let reported: BTreeSet<String> = found.iter().map(|finding| finding.object.name.to_string()).collect();

        let translator = Translator::new();
        translator.publish(world, &ChangeSet::default());
        let sidecar = translator.connect(sidecar("client", "shop"));
        let in_edge = translator.connect(crate::testing::sidecar("other", "edge"));
        let router = translator.connect(router());
        let snapshot = translator.snapshot();
        let mut broken_ones = broken(&snapshot, &sidecar, &["80", "8080", "443", "9000"]);
        broken_ones.extend(broken(&snapshot, &router, &["http.80"]));
        // Public VirtualServices are judged by the clients of their own namespace and of those that they
        // name.
        let names_edge = |rule: &str| {
            let spec = text.lines().find(|line| line.contains(&format!("name: {rule},"))).unwrap_or_default();
            spec.contains("sourceNamespace: edge") || spec.contains("exportTo: [edge]")
        };
        let also = broken(&snapshot, &in_edge, &["80", "8080", "443", "9000"]);
        broken_ones.extend(also.into_iter().filter(|rule| names_edge(rule)));
        prop_assert_eq!(reported, broken_ones, "{}\n{:#?}", text, found);
    }
}
