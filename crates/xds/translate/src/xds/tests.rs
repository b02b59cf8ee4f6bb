//! What resource types must agree on: the names of clusters.

use super::cds::ClusterView;
use super::lds::ListenerView;
use super::rds::RouteView;
use crate::engine::{Cx, EncodedResource, Query, ResourceBatchKey};
use crate::proxy::Proxy;
use crate::testing::{
    EXTERNAL, TestService, endpoint, evaluate, line, of_service_entry, service, sidecar, world, yaml,
};
use pilotfish_model::{Hostname, Port, Protocol, ShardKey, Update, World};
use pilotfish_proto::envoy::config::cluster::v3::Cluster;
use pilotfish_proto::envoy::config::listener::v3::Listener;
use pilotfish_proto::envoy::config::listener::v3::filter::ConfigType;
use pilotfish_proto::envoy::config::route::v3::RouteConfiguration;
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use prost::Message;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The names of the clusters of services that a proxy has, and of those that its routes and listeners lead
/// to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClusterNames(Proxy);

impl Query for ClusterNames {
    type Output = (BTreeSet<String>, BTreeSet<String>);

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let clusters = ClusterView::of(cx, &self.0);
        let made = clusters.iter().flat_map(|part| {
            part.batch_keys(cx).unwrap().into_iter().flat_map(|key| part.generate(cx, &key).resources)
        });
        let made = made.map(|resource| decoded::<Cluster>(&resource).name);
        let mut used = BTreeSet::new();
        let routes = RouteView::of(cx, &self.0).unwrap();
        for resource in routes.generate(cx, &ResourceBatchKey::Named("80".into())).resources.iter() {
            used.extend(outbound(&format!("{:?}", decoded::<RouteConfiguration>(resource))));
        }
        for listeners in ListenerView::of(cx, &self.0) {
            for key in listeners.batch_keys(cx).unwrap() {
                for resource in listeners.generate(cx, &key).resources.iter() {
                    used.extend(streams(&decoded::<Listener>(resource)));
                }
            }
        }
        (made.filter(|name| name.starts_with("outbound|")).collect(), used)
    }
}

fn decoded<M: Message + Default>(resource: &EncodedResource) -> M {
    let packed = pilotfish_proto::Any::decode(resource.body.clone()).unwrap();
    M::decode(&*packed.value).unwrap()
}

/// The names of clusters in the debug form of a message.
fn outbound(text: &str) -> Vec<String> {
    text.split('"').filter(|part| part.starts_with("outbound|")).map(str::to_owned).collect()
}

/// The clusters of a listener's TCP proxies.
fn streams(listener: &Listener) -> Vec<String> {
    let filters = listener.filter_chains.iter().flat_map(|chain| &chain.filters);
    let configs = filters.filter(|filter| filter.name == "envoy.filters.network.tcp_proxy");
    let proxies = configs.filter_map(|filter| match &filter.config_type {
        Some(ConfigType::TypedConfig(any)) => Some(TcpProxy::decode(&*any.value).unwrap()),
        _ => None,
    });
    proxies.flat_map(|proxy| outbound(&format!("{proxy:?}"))).collect()
}

/// A service of a ServiceEntry as it was written, with an HTTP and a TLS port, and its endpoint.
fn entry(host: &str, namespace: &str) -> Vec<Update> {
    let port = |number, name: &str, protocol| Port { number, name: name.into(), protocol, target_port: None };
    let service: TestService = service("any", namespace).with(|service| {
        service.hostname = Hostname::parse(host).unwrap();
        service.name = host.into();
        of_service_entry(service);
        service.ports = Arc::from([port(80, "http", Protocol::Http), port(443, "tls", Protocol::Tls)]);
    });
    let shard = ShardKey::new(EXTERNAL, "Kubernetes");
    let endpoints = ["http", "tls"].map(|name| Arc::new(endpoint("10.0.0.1", 8080, name)));
    vec![service.update(), Update::Endpoints(service.key(), shard, endpoints.into())]
}

fn virtual_service(spec: &str) -> Vec<Update> {
    yaml(&line("networking.istio.io/v1", "VirtualService", "sea", "v", spec))
}

fn names(world: &Arc<World>) -> (BTreeSet<String>, BTreeSet<String>) {
    (*evaluate(world, &ClusterNames(sidecar("probe-0", "sea")))).clone()
}

#[test]
fn routes_and_listeners_name_clusters_as_they_are_called() {
    let plain = |host: &str| {
        format!(
            "{{hosts: [x.example], http: [{{route: [{{destination: {{host: {host}, port: {{number: 80}}}}}}]}}]}}"
        )
    };
    let weighted = "{hosts: [North.Lights.EXAMPLE], http: [{mirror: {host: SOUTH.lights.example, port: {number: 80}}, route: [{weight: 1, destination: {host: north.lights.example, port: {number: 80}}}, {weight: 1, destination: {host: South.Lights.example, port: {number: 80}}}]}]}";
    let streams = "{hosts: [NORTH.lights.example], tls: [{match: [{sniHosts: [NORTH.lights.example]}], route: [{destination: {host: NORTH.lights.example, port: {number: 443}}}]}]}";
    let rules = [
        "{hosts: [unused.example], http: [{route: [{destination: {host: unused.example}}]}]}".to_owned(),
        plain("North.Lights.EXAMPLE"),
        plain("north.lights.example"),
        plain("NORTH.LIGHTS.EXAMPLE"),
        weighted.to_owned(),
        streams.to_owned(),
    ];
    for rule in &rules {
        let services = [entry("North.Lights.EXAMPLE", "sea"), entry("south.lights.example", "land")];
        let world = world(services.into_iter().flatten().chain(virtual_service(rule)));
        let (made, mut used) = names(&world);
        assert_eq!(
            made.iter().map(String::as_str).collect::<Vec<_>>(),
            [
                "outbound|443||North.Lights.EXAMPLE",
                "outbound|443||south.lights.example",
                "outbound|80||North.Lights.EXAMPLE",
                "outbound|80||south.lights.example",
            ]
        );
        // What no service has keeps the name that the route gives it.
        used.remove("outbound|80||unused.example");
        assert!(used.is_subset(&made) && used.len() >= 3, "{rule}: {used:?}");
    }
}

#[test]
fn of_hosts_that_differ_in_capitals_one_gives_the_name() {
    // The proxy's own namespace has the host; the other entry is in the world all the same.
    for (own, other) in [("Bell.example", "bell.EXAMPLE"), ("bell.example", "BELL.example")] {
        let services = [entry(own, "sea"), entry(other, "land")];
        let rule = "{hosts: [x.example], http: [{route: [{destination: {host: bELL.example, port: {number: 80}}}]}]}";
        let (made, used) = names(&world(services.into_iter().flatten().chain(virtual_service(rule))));
        let expected: BTreeSet<String> = [80, 443].map(|port| format!("outbound|{port}||{own}")).into();
        assert_eq!((&made, &used), (&expected, &expected));
    }
}

#[test]
fn traffic_for_unknown_hosts_goes_to_the_cluster_of_the_egress_proxy() {
    let sidecar = line(
        "networking.istio.io/v1",
        "Sidecar",
        "sea",
        "default",
        "{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: north.lights.example, port: {number: 80}}}, egress: [{hosts: ['*/*']}]}",
    );
    let (made, used) = names(&world(entry("North.Lights.EXAMPLE", "sea").into_iter().chain(yaml(&sidecar))));
    assert!(used.contains("outbound|80||North.Lights.EXAMPLE") && used.is_subset(&made), "{used:?}");
}
