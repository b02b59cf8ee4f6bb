//! Filters that look up the hosts of requests and connections: for ServiceEntries with resolution
//! `DYNAMIC_DNS` (rule 24 of Istio 1.31), and for hosts without a service (rule 22).

use super::tests::listeners;
use crate::proxy::Proxy;
use crate::testing::{TestService, line, mesh, of_service_entry, service, sidecar, world, yaml};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::{Hostname, Port, Protocol, Resolution, Update, World};
use pilotfish_proto::envoy::config::listener::v3::filter::ConfigType;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, Listener};
use pilotfish_proto::envoy::extensions::filters::http::dynamic_forward_proxy::v3::{
    FilterConfig as HttpLookup, filter_config::ImplementationSpecifier,
};
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter,
};
use pilotfish_proto::envoy::extensions::filters::network::sni_dynamic_forward_proxy::v3::{
    FilterConfig as SniLookup, filter_config::PortSpecifier,
};
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use prost::Message;
use std::sync::Arc;

fn entry(host: &str, created: i64, ports: &[(u32, Protocol)]) -> TestService {
    let port = |(number, protocol): &(u32, Protocol)| Port {
        number: *number,
        name: format!("p-{number}").into(),
        protocol: *protocol,
        target_port: None,
    };
    service("any", "shop").with(|service| {
        service.hostname = Hostname::parse(host).unwrap();
        service.name = host.into();
        of_service_entry(service);
        service.created = created;
        service.mesh_external = true;
        service.resolution =
            if host.starts_with('*') { Resolution::DynamicDns } else { Resolution::ClientSideLB };
        service.ports = ports.iter().map(port).collect();
    })
}

fn mesh_with(policy: &str) -> Update {
    let config: MeshConfig =
        serde_json::from_str(&format!(r#"{{"outboundTrafficPolicy": {{"mode": "{policy}"}}}}"#)).unwrap();
    Update::Object(mesh(config))
}

fn manager(chain: &FilterChain) -> Option<HttpConnectionManager> {
    chain.filters.iter().find_map(|filter| match &filter.config_type {
        Some(ConfigType::TypedConfig(any)) if filter.name.ends_with("http_connection_manager") => {
            Some(HttpConnectionManager::decode(&*any.value).unwrap())
        }
        _ => None,
    })
}

/// The names of the caches in which a chain looks up hosts of requests.
fn caches(chain: &FilterChain) -> Vec<String> {
    let manager = manager(chain).unwrap();
    let lookups = manager.http_filters.iter().filter(|filter| filter.name.ends_with("dynamic_forward_proxy"));
    let name = |config: &Option<http_filter::ConfigType>| match config {
        Some(http_filter::ConfigType::TypedConfig(any)) => {
            match HttpLookup::decode(&*any.value).unwrap().implementation_specifier {
                Some(ImplementationSpecifier::DnsCacheConfig(cache)) => cache.name,
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    };
    lookups.map(|filter| name(&filter.config_type)).collect()
}

/// The server names of a chain, the port of its lookup by SNI, and the names of its other filters.
fn streams(chain: &FilterChain) -> (Vec<String>, Option<u32>, Vec<&str>) {
    let names = chain.filter_chain_match.as_ref().map(|found| found.server_names.clone()).unwrap_or_default();
    let lookup = chain.filters.iter().find_map(|filter| match &filter.config_type {
        Some(ConfigType::TypedConfig(any)) if filter.name.ends_with("sni_dynamic_forward_proxy") => {
            let lookup = SniLookup::decode(&*any.value).unwrap();
            lookup.port_specifier.map(|PortSpecifier::PortValue(port)| port)
        }
        _ => None,
    });
    let rest = chain.filters.iter().map(|filter| filter.name.as_str());
    (names, lookup, rest.filter(|name| !name.ends_with("sni_dynamic_forward_proxy")).collect())
}

/// The cluster of a chain for streams.
fn cluster(chain: &FilterChain) -> String {
    let [filter] = chain.filters.as_slice() else { panic!("{chain:?}") };
    let Some(ConfigType::TypedConfig(any)) = &filter.config_type else { panic!("{filter:?}") };
    match TcpProxy::decode(&*any.value).unwrap().cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => name,
        other => panic!("{other:?}"),
    }
}

fn listener(world: &Arc<World>, proxy: &Proxy, name: &str) -> Listener {
    let all = listeners(world, proxy);
    all.get(name).unwrap_or_else(|| panic!("{name} is not in {:?}", all.keys())).clone()
}

fn inspectors(listener: &Listener) -> Vec<&str> {
    listener.listener_filters.iter().filter_map(|filter| filter.name.rsplit('.').next()).collect()
}

/// Rule 24: requests are looked up in the cache of the service that made the listener.
#[test]
fn a_listener_of_a_looked_up_host_has_the_filter_of_that_host() {
    let http = &[(80, Protocol::Http)][..];
    let of = |services: &[TestService], policy: &str| {
        let world = world(services.iter().map(TestService::update).chain([mesh_with(policy)]));
        caches(&listener(&world, &sidecar("client", "shop"), "0.0.0.0_80").filter_chains[0])
    };
    let (buckets, corp, plain) =
        (entry("*.buckets.example", 1, http), entry("*.corp.example", 2, http), entry("a.example", 0, http));
    let (own, unknown) = ("*.buckets.example_dfp_dns_cache", "allow_any_dfp_dns_cache");
    assert_eq!(of(&[buckets.clone(), corp], "ALLOW_ANY"), [own]);
    assert_eq!(of(&[buckets.clone(), plain.clone()], "ALLOW_ANY"), [""; 0]);
    assert_eq!(of(&[plain], "ALLOW_ANY_DYNAMIC_DNS"), [unknown]);
    assert_eq!(of(&[buckets], "ALLOW_ANY_DYNAMIC_DNS"), [own, unknown]);
}

/// Rule 24: connections are looked up by SNI, also at an address of the service; routes do without.
#[test]
fn connections_to_a_looked_up_host_are_chosen_and_looked_up_by_sni() {
    let ports = [(443, Protocol::Tls), (5432, Protocol::Tcp)];
    let addressed =
        entry("*.buckets.example", 0, &ports).with(|service| service.default_address = "240.0.48.1".into());
    let world_of =
        |service: &TestService, more: Vec<Update>| world([service.update()].into_iter().chain(more));
    let client = sidecar("client", "shop");
    let names = || vec!["*.buckets.example".to_owned()];
    let proxy = "envoy.filters.network.tcp_proxy";
    for (service, address) in
        [(entry("*.buckets.example", 0, &ports), "0.0.0.0"), (addressed.clone(), "240.0.48.1")]
    {
        let world = world_of(&service, vec![]);
        let tls = listener(&world, &client, &format!("{address}_443"));
        assert_eq!(streams(&tls.filter_chains[0]), (names(), Some(443), vec![proxy]), "{address}");
        assert_eq!(inspectors(&tls), ["tls_inspector"]);
    }
    let world = world_of(&addressed, vec![]);
    let tcp = listener(&world, &client, "240.0.48.1_5432");
    assert_eq!(streams(&tcp.filter_chains[0]), (vec![], Some(5432), vec![proxy]));
    assert_eq!(inspectors(&tcp), ["tls_inspector"]);
    let spec = "{hosts: ['*.buckets.example'], tls: [{match: [{sniHosts: ['*.buckets.example']}], \
                route: [{destination: {host: '*.buckets.example', port: {number: 443}}}]}]}";
    let routed =
        world_of(&addressed, yaml(&line("networking.istio.io/v1", "VirtualService", "shop", "v", spec)));
    let tls = listener(&routed, &client, "240.0.48.1_443");
    assert_eq!(streams(&tls.filter_chains[0]), (names(), None, vec![proxy]));
}

/// Rule 22: plain HTTP at addresses without a listener is looked up, other traffic passes.
#[test]
fn requests_at_unknown_addresses_are_looked_up_and_other_traffic_passes() {
    let client = sidecar("client", "shop");
    let captured = listener(&world([mesh_with("ALLOW_ANY_DYNAMIC_DNS")]), &client, "virtualOutbound");
    let names: Vec<&str> = captured.filter_chains.iter().map(|chain| chain.name.as_str()).collect();
    let (guard, http, tcp) =
        ("virtualOutbound-blackhole", "virtualOutbound-catchall-tcp-http", "virtualOutbound-catchall-tcp");
    assert_eq!(names, [guard, http, tcp]);
    assert_eq!(inspectors(&captured), ["http_inspector"]);
    let requests = &captured.filter_chains[1];
    assert_eq!(caches(requests), ["allow_any_dfp_dns_cache"]);
    assert_eq!(requests.filter_chain_match.as_ref().unwrap().application_protocols, ["http/1.1", "h2c"]);
    assert_eq!(cluster(&captured.filter_chains[2]), "PassthroughCluster");
    let passed = listener(&world([mesh_with("ALLOW_ANY")]), &client, "virtualOutbound");
    let names: Vec<&str> = passed.filter_chains.iter().map(|chain| chain.name.as_str()).collect();
    assert_eq!(names, [guard, tcp]);
    assert_eq!(inspectors(&passed), [""; 0]);
}
