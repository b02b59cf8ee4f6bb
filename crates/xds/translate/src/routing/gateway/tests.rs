use super::router::Reached;
use super::{AllGateways, MergedGatewaysOf, RouterGateways};
use crate::engine::{Cx, Query};
use crate::proxy::{Proxy, ProxyKind};
use crate::routing::ir::GatewayId;
use crate::testing::{evaluate, evaluate_with, labels, line, service, sidecar, world_of, yaml};
use pilotfish_config::{Limits, read};
use pilotfish_model::{Hostname, Kind, ServiceKey, Switches, World};
use std::sync::Arc;

fn world(servers: &[&str]) -> Arc<World> {
    let objects = servers.iter().enumerate().flat_map(|(index, servers)| {
        let yaml = format!(
            "{{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: g{index}, namespace: edge}}, spec: {{servers: {servers}}}}}"
        );
        let file = read("test.yaml", yaml.as_bytes(), &Limits::default());
        assert!(file.rejected.is_empty(), "{:?}", file.rejected);
        file.objects.into_iter().map(|read| read.object)
    });
    world_of(objects)
}

/// The listeners of a router with all gateways: port, address and protocol with the gateways that are there,
/// and the routes.
fn merged(servers: &[&str]) -> (Vec<String>, Vec<String>) {
    let world = world(servers);
    let ids: Vec<GatewayId> = evaluate(&world, &AllGateways).iter().map(|header| header.id.clone()).collect();
    let service =
        ServiceKey { hostname: Hostname::parse("edge.edge.svc").unwrap(), namespace: "edge".into() };
    let reached = Reached { service, port: 80, target: 8080, translates: true };
    let merged = evaluate(
        &world,
        &MergedGatewaysOf(RouterGateways { gateways: ids.into(), reached: Arc::from([reached]) }),
    );
    let names = |servers: &[Arc<super::MergedServer>]| {
        servers
            .iter()
            .map(|server| server.gateway.rsplit('/').next().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join("+")
    };
    let ports = merged
        .ports
        .iter()
        .map(|port| format!("{}:{} {} {}", port.bind, port.port, port.protocol, names(&port.servers)));
    let routes = merged.by_route.iter().map(|(route, servers)| format!("{route} {}", names(servers)));
    (ports.collect(), routes.collect())
}

fn server(port: u32, protocol: &str, rest: &str) -> String {
    format!("[{{port: {{number: {port}, name: p, protocol: {protocol}}}, {rest}}}]")
}

fn merge(servers: &[String]) -> (Vec<String>, Vec<String>) {
    merged(&servers.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn plain_http_servers_share_the_translated_port() {
    let (ports, routes) = merge(&[
        server(80, "HTTP", "hosts: [a.com]"),
        server(80, "HTTP2", "hosts: [b.com]"),
        server(8080, "HTTP", "hosts: [c.com]"),
        server(80, "TCP", "hosts: [d.com]"),
        server(80, "HTTP", "hosts: [e.com], bind: 10.0.0.1"),
    ]);
    assert_eq!(ports, [":8080 HTTP g0+g1+g2", "10.0.0.1:8080 HTTP g4"]);
    assert_eq!(routes, ["http.8080 g0+g1+g2", "http.8080.10.0.0.1 g4"]);
}

#[test]
fn tls_servers_are_distinguished_by_their_hosts() {
    let tls = |hosts: &str| format!("hosts: [{hosts}], tls: {{mode: SIMPLE, credentialName: c}}");
    let (ports, routes) = merge(&[
        server(443, "HTTPS", &tls("a.com")),
        server(443, "HTTPS", &tls("b.com")),
        server(443, "HTTPS", &tls("c.com, a.com")),
        server(443, "TLS", &tls("d.com")),
        server(443, "HTTP", "hosts: [e.com]"),
        server(443, "HTTPS", &format!("bind: 10.0.0.1, {}", tls("a.com"))),
    ]);
    assert_eq!(ports, [":443 HTTPS g0+g1", ":443 TLS g3", "10.0.0.1:443 HTTPS g5"]);
    let names = ["https.443.p.g0.edge g0", "https.443.p.g1.edge g1", "https.443.p.g5.edge.10.0.0.1 g5"];
    assert_eq!(routes, names);
}

#[test]
fn a_refused_server_takes_no_hosts() {
    let tls = |hosts: &str| format!("hosts: [{hosts}], tls: {{mode: SIMPLE, credentialName: c}}");
    let (ports, _) = merge(&[
        server(443, "HTTPS", &tls("a.com")),
        server(443, "HTTPS", &tls("a.com, b.com")),
        server(443, "HTTPS", &tls("b.com")),
    ]);
    assert_eq!(ports, [":443 HTTPS g0+g2"]);
}

#[test]
fn one_plain_server_may_follow_the_first_tls_server() {
    let (ports, routes) = merge(&[
        server(443, "HTTPS", "hosts: [a.com], tls: {mode: SIMPLE, credentialName: c}"),
        server(443, "HTTP", "hosts: [b.com]"),
        server(443, "TCP", "hosts: [c.com]"),
    ]);
    assert_eq!(ports, [":443 HTTPS g0", ":443 HTTP g1"]);
    assert_eq!(routes, ["http.443 g1", "https.443.p.g0.edge g0"]);
}

#[test]
fn of_several_services_the_first_translates_a_port() {
    let reached = |name: &str, target, translates| {
        let hostname = Hostname::parse(name).unwrap();
        Reached { service: ServiceKey { hostname, namespace: "edge".into() }, port: 80, target, translates }
    };
    let all = [reached("z.edge", 1, false), reached("y.edge", 8080, true), reached("a.edge", 9090, true)];
    let bound = RouterGateways { reached: Arc::from(all.clone()), ..RouterGateways::default() };
    assert_eq!((bound.ports(80, None), bound.ports(81, None)), (vec![8080], vec![81]));
    let own = [all[0].service.clone(), all[2].service.clone()];
    assert_eq!((bound.ports(80, Some(&own)), bound.ports(81, Some(&own))), (vec![1, 9090], vec![]));
}

#[test]
fn sources_are_kept_apart() {
    let world = world(&[&server(80, "HTTP", "hosts: ['*']")]);
    let headers = evaluate(&world, &AllGateways);
    assert_eq!(headers[0].id.source, Kind::Gateway);
    assert_eq!(&*headers[0].id.reference(), "edge/g0");
}

/// The gateways of a router, as `namespace/name`, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GatewaysOf(Proxy);

impl Query for GatewaysOf {
    type Output = Vec<String>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<String> {
        let name = |id: &GatewayId| format!("{}/{}", id.namespace, id.name.split('~').next().unwrap());
        let mut names: Vec<String> = RouterGateways::of(cx, &self.0).gateways.iter().map(name).collect();
        names.sort();
        names
    }
}

/// Rule 10 of Istio 1.31, and its switch.
#[test]
fn behind_a_managed_gateway_gateways_of_other_namespaces_do_not_count() {
    let app = || labels(&[("app", "public")]);
    let router = Proxy {
        kind: ProxyKind::Router,
        cluster: "Kubernetes".into(),
        labels: app(),
        ..sidecar("public-istio-0", "edge")
    };
    let own = service("public-istio", "edge").with(|service| service.selector = app());
    let base = || vec![own.update()];
    let api = |addresses: &str| {
        let spec = format!(
            "{{gatewayClassName: istio, {addresses}listeners: [{{name: http, port: 80, protocol: HTTP}}]}}"
        );
        yaml(&line("gateway.networking.k8s.io/v1", "Gateway", "edge", "public", &spec))
    };
    let istio = |namespace: &str| {
        let spec = "{servers: [{port: {number: 8090, name: http, protocol: HTTP}, hosts: ['*']}]}";
        yaml(&line("networking.istio.io/v1", "Gateway", namespace, "any", spec))
    };
    let named = "addresses: [{type: Hostname, value: public-istio.edge.svc.cluster.local}], ";
    let all = ["apps/any", "edge/any", "edge/public"];
    for (gateway, strict) in [
        (api(""), &["edge/any", "edge/public"][..]),
        (api("addresses: [{type: IPAddress, value: 10.0.0.1}], "), &["edge/any", "edge/public"]),
        (api(named), &all),
    ] {
        let world = crate::testing::world([base(), gateway, istio("apps"), istio("edge")].concat());
        let query = GatewaysOf(router.clone());
        let off = Switches { strict_gateway_merging: false, ..Switches::default() };
        assert_eq!(*evaluate(&world, &query), strict);
        assert_eq!(*evaluate_with(off, &world, &query), all);
    }
}
