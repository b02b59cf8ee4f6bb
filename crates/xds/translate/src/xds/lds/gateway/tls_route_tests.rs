//! TLSRoutes on listeners that end TLS (rule 37 of Istio 1.31).

use crate::proxy::{Proxy, ProxyKind};
use crate::testing::{labels, line, service, sidecar, tls_secret, world, yaml};
use crate::xds::lds::tests::listeners;
use pilotfish_model::{Port, Protocol};
use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, filter};
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use prost::Message;
use std::sync::Arc;

const API: &str = "gateway.networking.k8s.io/v1";

/// Server names of a chain, its ALPN protocols (none where TLS passes), and its cluster.
fn shown(chain: &FilterChain) -> String {
    let names =
        chain.filter_chain_match.as_ref().map(|found| found.server_names.join(",")).unwrap_or_default();
    let alpn = chain.transport_socket.as_ref().map(|socket| match &socket.config_type {
        Some(ConfigType::TypedConfig(any)) => {
            let context = DownstreamTlsContext::decode(&*any.value).unwrap();
            context.common_tls_context.unwrap().alpn_protocols.join(",")
        }
        None => panic!("{socket:?}"),
    });
    let proxy = chain.filters.iter().find(|filter| filter.name == "envoy.filters.network.tcp_proxy").unwrap();
    let Some(filter::ConfigType::TypedConfig(any)) = &proxy.config_type else { panic!("{proxy:?}") };
    let cluster = match TcpProxy::decode(&*any.value).unwrap().cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => name,
        other => panic!("{other:?}"),
    };
    format!("{names} [{}] {cluster}", alpn.unwrap_or_default())
}

/// The chains of port 443 of a router, for these listeners and routes.
fn chains(listener_specs: &str, routes: &[(&str, &str)]) -> Vec<String> {
    let app = || labels(&[("app", "gw")]);
    let https = Port { number: 443, name: "https".into(), protocol: Protocol::Https, target_port: None };
    let own = service("gw-istio", "edge").with(|service| {
        service.selector = app();
        service.ports = Arc::from([https]);
    });
    let spec = format!("{{gatewayClassName: istio, listeners: [{listener_specs}]}}");
    let mut text = line(API, "Gateway", "edge", "gw", &spec);
    text += &format!(
        "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: cert, namespace: edge}}, {}}}\n",
        tls_secret()
    );
    for (hosts, backend) in routes {
        let spec = format!(
            "{{parentRefs: [{{name: gw}}], hostnames: [{hosts}], rules: [{{backendRefs: [{{name: {backend}, \
             port: 80}}]}}]}}"
        );
        text += &line(API, "TLSRoute", "edge", backend, &spec);
    }
    let backends = ["one", "two"].map(|name| service(name, "edge").update());
    let world = world(yaml(&text).into_iter().chain([own.update()]).chain(backends));
    let router = Proxy {
        kind: ProxyKind::Router,
        cluster: "Kubernetes".into(),
        labels: app(),
        ..sidecar("gw-0", "edge")
    };
    let all = listeners(&world, &router);
    let chains = all.values().flat_map(|listener| &listener.filter_chains);
    chains.map(shown).collect()
}

#[test]
fn a_listener_that_ends_tls_leads_to_the_first_route_whose_hosts_meet_its_own() {
    let ends = |host: &str| {
        format!(
            "{{name: ends, port: 443, protocol: TLS, hostname: '{host}', tls: {{mode: Terminate, \
             certificateRefs: [{{name: cert}}]}}}}"
        )
    };
    let passes =
        "{name: passes, port: 443, protocol: TLS, hostname: p.example.com, tls: {mode: Passthrough}}";
    let cluster = |name: &str| format!("outbound|80||{name}.edge.svc.cluster.local");
    let ended = |host: &str, name: &str| format!("{host} [h2,http/1.1] {}", cluster(name));
    for (listeners, routes, expected) in [
        (ends("a.example.com"), &[("a.example.com", "one")][..], vec![ended("a.example.com", "one")]),
        // The listener's host is matched, not the route's.
        (ends("*.example.com"), &[("a.example.com", "one")], vec![ended("*.example.com", "one")]),
        (
            ends("*.example.com"),
            &[("a.example.com", "one"), ("b.example.com", "two")],
            vec![ended("*.example.com", "one")],
        ),
        (ends("a.example.com"), &[("b.org", "one")], vec![]),
        (ends("a.example.com"), &[], vec![]),
        (
            format!("{}, {passes}", ends("a.example.com")),
            &[("a.example.com", "one"), ("p.example.com", "two")],
            vec![ended("a.example.com", "one"), format!("p.example.com [] {}", cluster("two"))],
        ),
    ] {
        assert_eq!(chains(&listeners, routes), expected, "{listeners} {routes:?}");
    }
}
