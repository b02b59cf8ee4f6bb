//! Calls of Dubbo: one listener for all interfaces of a port, where the proxy has the filter.

use super::tests::{client, listeners};
use crate::proxy::Proxy;
use crate::testing::{TestService, line, service, world, yaml};
use pilotfish_model::{DubboInterface, Port, Protocol, Update};
use pilotfish_proto::envoy::config::listener::v3::{Listener, filter::ConfigType};
use pilotfish_proto::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use pilotfish_proto::envoy::extensions::filters::network::dubbo_proxy::v3::{
    DubboProxy, RouteConfiguration, dubbo_proxy::RouteSpecifier, route_action::ClusterSpecifier,
};
use prost::Message;
use std::sync::Arc;

fn of_dubbo(name: &str, protocol: Protocol, interface: Option<[&str; 3]>) -> TestService {
    service(name, "shop").with(|service| {
        service.ports =
            Arc::from([Port { number: 20880, name: "dubbo".into(), protocol, target_port: None }]);
        service.dubbo = interface.map(|[interface, group, version]| {
            Arc::new(DubboInterface {
                interface: interface.into(),
                group: group.into(),
                version: version.into(),
            })
        });
    })
}

fn updates(services: &[TestService]) -> Vec<Update> {
    services.iter().map(TestService::update).collect()
}

fn with_filter() -> Proxy {
    Proxy { dubbo_proxy: true, ..client() }
}

/// `INTERFACE GROUP VERSION > CLUSTERS` for each route of the listener's last filter, or the filter's name
/// where it is another.
fn routes(listener: &Listener) -> Vec<String> {
    assert_eq!((listener.filter_chains.len(), &listener.default_filter_chain), (1, &None));
    let filter = listener.filter_chains[0].filters.last().unwrap();
    let Some(ConfigType::TypedConfig(config)) = &filter.config_type else { panic!("{filter:?}") };
    if filter.name != "envoy.filters.network.dubbo_proxy" {
        return vec![filter.name.clone()];
    }
    let proxy = DubboProxy::decode(&*config.value).unwrap();
    let Some(RouteSpecifier::MultipleRouteConfig(routes)) = proxy.route_specifier else {
        panic!("no routes")
    };
    let line = |route: &RouteConfiguration| {
        let action = route.routes[0].route.as_ref();
        let to = match action.and_then(|action| action.cluster_specifier.clone()).unwrap() {
            ClusterSpecifier::Cluster(name) => name,
            ClusterSpecifier::WeightedClusters(list) => {
                let weight = |to: &ClusterWeight| format!("{}={}", to.name, to.weight.unwrap_or(0));
                list.clusters.iter().map(weight).collect::<Vec<_>>().join(" ")
            }
        };
        format!("{} {} {} > {to}", route.interface, route.group, route.version)
    };
    routes.route_config.iter().map(line).collect()
}

const A: [&str; 3] = ["org.A", "", ""];
const OWN: &str = "org.A   > outbound|20880||a.shop.svc.cluster.local";
const REST: &str = "*   > PassthroughCluster";

fn listener(services: &[TestService], proxy: &Proxy) -> Vec<String> {
    routes(&listeners(&world(updates(services)), proxy)["0.0.0.0_20880"])
}

#[test]
fn interfaces_share_a_port_and_the_most_specific_counts() {
    let services = [
        of_dubbo("a", Protocol::Dubbo, Some(A)),
        of_dubbo("a-blue", Protocol::Dubbo, Some(["org.A", "blue", ""])),
        of_dubbo("a-blue-1", Protocol::Dubbo, Some(["org.A", "blue", "1"])),
        of_dubbo("b", Protocol::Dubbo, Some(["org.B", "", "2"])),
        of_dubbo("greeter", Protocol::Dubbo, None),
    ];
    let to =
        |interface: &str, name: &str| format!("{interface} > outbound|20880||{name}.shop.svc.cluster.local");
    let want = [
        to("org.A blue 1", "a-blue-1"),
        to("org.A blue ", "a-blue"),
        to("org.A  ", "a"),
        to("org.B  2", "b"),
        REST.to_owned(),
    ];
    assert_eq!(listener(&services, &with_filter()), want);
}

#[test]
fn a_proxy_without_the_filter_forwards_connections() {
    let services = [of_dubbo("a", Protocol::Dubbo, Some(A))];
    assert_eq!(listener(&services, &client()), ["envoy.filters.network.tcp_proxy"]);
}

#[test]
fn streams_at_the_same_address_do_not_take_calls() {
    let stream = of_dubbo("0", Protocol::Tcp, None);
    let calls = of_dubbo("a", Protocol::Dubbo, Some(A));
    for services in [[stream.clone(), calls.clone()], [calls, stream]] {
        assert_eq!(listener(&services, &with_filter()), [OWN, REST]);
    }
}

#[test]
fn virtual_services_split_calls_by_weight() {
    let spec = "{hosts: [a.shop.svc.cluster.local], tcp: [{route: [
        {destination: {host: a.shop.svc.cluster.local, subset: v1}, weight: 90},
        {destination: {host: a.shop.svc.cluster.local, subset: v2}, weight: 10}]}]}";
    let mut updates = updates(&[of_dubbo("a", Protocol::Dubbo, Some(A))]);
    updates.extend(yaml(&line(
        "networking.istio.io/v1",
        "VirtualService",
        "shop",
        "a",
        &spec.replace('\n', ""),
    )));
    let found = routes(&listeners(&world(updates), &with_filter())["0.0.0.0_20880"]);
    let want = "org.A   > outbound|20880|v1|a.shop.svc.cluster.local=90 \
        outbound|20880|v2|a.shop.svc.cluster.local=10";
    assert_eq!(found, [want, REST]);
}
