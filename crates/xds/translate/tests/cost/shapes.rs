//! The shapes: each a world in which something is multiplied by something else, at a size.

use crate::world::{Case, alias, service, with_host};
use pilotfish_model::{Hostname, Protocol};

/// Items of a list in YAML.
fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(", ")
}

fn web(case: &mut Case) {
    case.service(service("web", [(80, Protocol::Http)]));
}

const TO_WEB: &str = "route: [{destination: {host: web}}]";

/// Each route of a root has all routes of a delegate.
pub(crate) fn delegates(size: usize) -> Case {
    let mut case = Case::sidecar();
    web(&mut case);
    let roots = list(size, |n| format!("{{match: [{{uri: {{prefix: /{n}/}}}}], delegate: {{name: leaf}}}}"));
    case.object("VirtualService", "root", &format!("{{hosts: [web], http: [{roots}]}}"));
    let leaves = list(size, |n| format!("{{match: [{{method: {{exact: M{n}}}}}], {TO_WEB}}}"));
    case.object("VirtualService", "leaf", &format!("{{http: [{leaves}]}}"));
    case.route("80");
    case
}

/// Each host of a rule has all its routes.
pub(crate) fn hosts_of_one_rule(size: usize) -> Case {
    let mut case = Case::sidecar();
    web(&mut case);
    let hosts = list(size, |n| format!("h{n}.example.com"));
    let routes = list(20, |n| format!("{{match: [{{uri: {{prefix: /{n}/}}}}], {TO_WEB}}}"));
    case.object("VirtualService", "rule", &format!("{{hosts: [{hosts}], http: [{routes}]}}"));
    case.route("80");
    case
}

/// Rules for wildcards over the same services, of which only the narrowest serves each.
pub(crate) fn wildcard_hosts(size: usize) -> Case {
    let mut case = Case::sidecar();
    for n in 0..size {
        let host = Hostname::parse(&format!("s{n}.d{n}.example.com")).unwrap();
        case.service(with_host(host, &format!("s{n}"), [(80, Protocol::Http)]));
        let spec = format!("{{hosts: [\"*.example.com\", \"*.d{n}.example.com\"], http: [{{{TO_WEB}}}]}}");
        case.object("VirtualService", &format!("v{n}"), &spec);
    }
    case.route("80");
    case
}

/// A cluster for each subset and port.
pub(crate) fn subsets_and_ports(size: usize) -> Case {
    let mut case = Case::sidecar();
    case.service(service("web", (0..size).map(|n| (u32::try_from(1_000 + n).unwrap(), Protocol::Http))));
    let subsets = list(size, |n| format!("{{name: s{n}, labels: {{version: v{n}}}}}"));
    case.object("DestinationRule", "rule", &format!("{{host: web, subsets: [{subsets}]}}"));
    case
}

pub(crate) fn aliases_in_a_row(size: usize) -> Case {
    let mut case = Case::sidecar();
    web(&mut case);
    for n in 0..size {
        let to = if n == 0 { "web".to_owned() } else { format!("a{:05}", n - 1) };
        case.service(alias(&format!("a{n:05}"), &to));
    }
    case.route("80");
    case
}

pub(crate) fn aliases_of_one_service(size: usize) -> Case {
    let mut case = Case::sidecar();
    web(&mut case);
    (0..size).for_each(|n| case.service(alias(&format!("a{n:05}"), "web")));
    case.route("80");
    case
}

/// Servers and rules that have one host in common each.
pub(crate) fn hosts_of_gateways(size: usize) -> Case {
    let mut case = Case::router();
    web(&mut case);
    let server =
        |n| format!("{{port: {{number: 80, name: p{n}, protocol: HTTP}}, hosts: [\"h{n}.example.com\"]}}");
    case.object("Gateway", "edge", &format!("{{servers: [{}]}}", list(size, server)));
    for n in 0..size {
        let spec = format!("{{hosts: [h{n}.example.com], gateways: [edge], http: [{{{TO_WEB}}}]}}");
        case.object("VirtualService", &format!("v{n}"), &spec);
    }
    case.route("http.80");
    case
}

/// One server and one rule with many hosts, and many rules with one of them.
pub(crate) fn hosts_of_one_server(size: usize) -> Case {
    let mut case = Case::router();
    web(&mut case);
    let hosts = list(size, |n| format!("h{n}.example.com"));
    let server = format!("{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [{hosts}]}}");
    case.object("Gateway", "edge", &format!("{{servers: [{server}]}}"));
    case.object(
        "VirtualService",
        "all",
        &format!("{{hosts: [{hosts}], gateways: [edge], http: [{{{TO_WEB}}}]}}"),
    );
    for n in 0..size {
        let spec = format!("{{hosts: [h{n}.example.com], gateways: [edge], http: [{{{TO_WEB}}}]}}");
        case.object("VirtualService", &format!("v{n}"), &spec);
    }
    case.route("http.80");
    case
}

/// Servers that TLS passes through, each with a rule.
pub(crate) fn secure_servers(size: usize) -> Case {
    let mut case = Case::router();
    web(&mut case);
    let server = |n| {
        format!(
            "{{port: {{number: 443, name: p{n}, protocol: TLS}}, hosts: [h{n}.example.com], tls: {{mode: PASSTHROUGH}}}}"
        )
    };
    case.object("Gateway", "edge", &format!("{{servers: [{}]}}", list(size, server)));
    for n in 0..size {
        let host = format!("h{n}.example.com");
        let route = format!("{{match: [{{sniHosts: [{host}]}}], {TO_WEB}}}");
        let spec = format!("{{hosts: [{host}], gateways: [edge], tls: [{route}]}}");
        case.object("VirtualService", &format!("v{n}"), &spec);
    }
    case
}

/// Objects that all change the same resources.
pub(crate) fn envoy_filters(size: usize) -> Case {
    filters(size, |n| {
        format!(
            "{{applyTo: CLUSTER, match: {{context: SIDECAR_OUTBOUND}}, patch: {{operation: MERGE, \
             value: {{metadata: {{filter_metadata: {{m{n}: {{a: b}}}}}}}}}}}}"
        )
    })
}

pub(crate) fn envoy_filters_that_match_nothing(size: usize) -> Case {
    filters(size, |n| {
        format!(
            "{{applyTo: CLUSTER, match: {{cluster: {{name: c{n}}}}}, patch: {{operation: MERGE, value: {{alt_stat_name: x}}}}}}"
        )
    })
}

/// One patch that makes what Envoy refuses before many that do not.
pub(crate) fn envoy_filters_with_a_fault(size: usize) -> Case {
    let add = |name: String, domain: String| {
        format!(
            "{{applyTo: VIRTUAL_HOST, patch: {{operation: ADD, value: {{name: {name}, domains: [{domain}]}}}}}}"
        )
    };
    let mut case = filters(size, |n| match n {
        0 => add("bad".to_owned(), "s0.shop.svc.cluster.local".to_owned()),
        n => add(format!("v{n}"), format!("v{n}.example.com")),
    });
    case.route("80");
    case
}

fn filters(size: usize, patch: impl Fn(usize) -> String) -> Case {
    let mut case = Case::sidecar();
    (0..10).for_each(|n| case.service(service(&format!("s{n}"), [(80, Protocol::Http)])));
    for n in 0..size {
        case.object("EnvoyFilter", &format!("f{n:04}"), &format!("{{configPatches: [{}]}}", patch(n)));
    }
    case
}

pub(crate) fn authorization_policies(size: usize) -> Case {
    let mut case = Case::sidecar();
    web(&mut case);
    for n in 0..size {
        let principals = list(10, |m| format!("cluster.local/ns/n{n}/sa/a{m}"));
        let rule = format!(
            "{{from: [{{source: {{principals: [{principals}]}}}}], to: [{{operation: {{ports: [\"80\"]}}}}]}}"
        );
        case.object("AuthorizationPolicy", &format!("p{n:04}"), &format!("{{rules: [{rule}]}}"));
    }
    case
}

/// Parts of one service, each with a port of its own.
pub(crate) fn services_of_one_host(size: usize) -> Case {
    let mut case = Case::sidecar();
    let part = |n: usize| {
        let host = Hostname::parse("db.example.com").unwrap();
        with_host(host, &format!("e{n}"), [(u32::try_from(10_000 + n).unwrap(), Protocol::Tcp)])
    };
    case.services((0..size).map(part).collect());
    case
}

/// Services that share a port and have no address: SNI distinguishes them.
pub(crate) fn streams_on_one_port(size: usize) -> Case {
    let mut case = Case::sidecar();
    for n in 0..size {
        let host = Hostname::parse(&format!("h{n}.example.com")).unwrap();
        case.service(with_host(host, &format!("e{n}"), [(443, Protocol::Tls)]));
    }
    case
}

/// As above, each with a rule of its own.
pub(crate) fn routes_of_streams(size: usize) -> Case {
    let mut case = streams_on_one_port(size);
    for n in 0..size {
        let host = format!("h{n}.example.com");
        let route =
            format!("{{match: [{{sniHosts: [{host}]}}], route: [{{destination: {{host: {host}}}}}]}}");
        case.object("VirtualService", &format!("v{n}"), &format!("{{hosts: [{host}], tls: [{route}]}}"));
    }
    case
}

/// A Sidecar that imports each service by a host of its own, and others by wildcards that are not there.
pub(crate) fn imports(size: usize) -> Case {
    let mut case = Case::sidecar();
    for n in 0..size {
        case.service(service(&format!("s{n}"), [(80, Protocol::Http)]));
    }
    let hosts = list(size, |n| format!("\"./s{n}.shop.svc.cluster.local\", \"./*.w{n}.example.com\""));
    case.object("Sidecar", "default", &format!("{{egress: [{{hosts: [{hosts}]}}]}}"));
    case.route("80");
    case
}

pub(crate) fn destination_rules_of_wildcards(size: usize) -> Case {
    let mut case = Case::sidecar();
    for n in 0..size {
        let host = Hostname::parse(&format!("s{n}.d{n}.example.com")).unwrap();
        case.service(with_host(host, &format!("s{n}"), [(80, Protocol::Http)]));
        let policy = "trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}";
        let spec = format!("{{host: \"*.d{n}.example.com\", {policy}}}");
        case.object("DestinationRule", &format!("r{n}"), &spec);
    }
    case
}
