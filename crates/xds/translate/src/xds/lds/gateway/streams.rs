//! Servers that pass streams of bytes on: TCP, TLS that ends at the router, and TLS that passes through.

use super::chain::Chain;
use super::{Builder, TakenNames, auto_passthrough, tls};
use crate::envoy::filters;
use crate::routing::gateway::MergedServer;
use crate::routing::{VirtualServiceIr, VirtualServiceOf, VirtualServicesByHost, VirtualServicesFor};
use crate::xds::lds::stream_route::StreamRoutes;
use crate::xds::lds::tcp_proxy;
use pilotfish_config::networking::{RouteDestination, ServerTlsMode};
use pilotfish_model::Port;
use std::sync::Arc;

/// The chains of a server; none when no VirtualService routes its streams.
pub(super) fn chains(builder: &Builder<'_>, server: &MergedServer, taken: &mut TakenNames) -> Vec<Chain> {
    if server.spec.closed {
        return vec![closed(builder, server)];
    }
    match &server.spec.tls {
        Some(settings) if settings.mode == ServerTlsMode::AutoPassthrough => {
            auto_passthrough::chains(builder, server)
        }
        Some(settings) if settings.mode == ServerTlsMode::Passthrough => by_sni(builder, server, taken),
        _ => by_port(builder, server).into_iter().collect(),
    }
}

/// Takes the connections of a server that cannot be used, so that no other server gets them, and closes them.
fn closed(builder: &Builder<'_>, server: &MergedServer) -> Chain {
    let filters = tcp_proxy::black_hole(&builder.policies.logs.tcp);
    Chain { server_names: server.sni_hosts(), filters, ..Chain::default() }
}

/// The virtual services with routes for streams that have a host in common with a server, in order of
/// precedence.
fn rules(builder: &Builder<'_>, server: &MergedServer) -> Vec<Arc<VirtualServiceIr>> {
    let namespace = builder.view.base.scope.namespace.clone();
    let visible = VirtualServicesFor { namespace, gateway: server.gateway.clone() };
    let visible = builder.cx.get(&VirtualServicesByHost(visible));
    let met = visible.meeting(&server.hosts, &server.written);
    let streams = met.map(|(header, _)| header).filter(|header| header.has_streams);
    let ids = streams.map(|header| VirtualServiceOf(header.id.clone()));
    ids.filter_map(|id| Option::clone(&builder.cx.get(&id))).collect()
}

/// True if a condition's port and gateways are those of the server. Conditions on the source do not concern
/// gateways.
fn is_for(server: &MergedServer, port: u32, gateways: &[String]) -> bool {
    (port == 0 || port == server.port.number)
        && (gateways.is_empty() || gateways.iter().any(|gateway| **gateway == *server.gateway))
}

/// TCP, or TLS that ends here: the first route for the server. Where TLS ends, a TLS route counts too, and
/// not by its names.
fn by_port(builder: &Builder<'_>, server: &MergedServer) -> Option<Chain> {
    for rule in rules(builder, server) {
        if let Some(route) = stream_route(server, &rule) {
            let mut chain = routed(builder, server, &rule, route);
            if is_of_mesh(server) && builder.view.base.istio_filters {
                chain.filters.insert(0, filters::tcp_metadata_exchange());
            }
            return Some(Chain {
                server_names: server.sni_hosts(),
                tls: tls::socket(builder, server),
                ..chain
            });
        }
    }
    None
}

/// The destinations of the first route of a virtual service that a server takes.
fn stream_route<'a>(server: &MergedServer, rule: &'a VirtualServiceIr) -> Option<&'a [RouteDestination]> {
    let of_tls = rule.tls.iter().filter(|_| server.is_tls()).find(|route| {
        route.r#match.iter().any(|attributes| is_for(server, attributes.port, &attributes.gateways))
    });
    let of_tcp = || {
        rule.tcp.iter().find(|route| {
            route.r#match.is_empty() || route.r#match.iter().any(|m| is_for(server, m.port, &m.gateways))
        })
    };
    of_tls.map(|route| route.route.as_slice()).or_else(|| of_tcp().map(|route| route.route.as_slice()))
}

/// True if the clients are of the mesh: proxies exchange metadata with those.
fn is_of_mesh(server: &MergedServer) -> bool {
    server.spec.tls.as_ref().is_some_and(|tls| tls.mode == ServerTlsMode::IstioMutual)
}

/// TLS that passes through: a chain for the server names of each TLS route.
fn by_sni(builder: &Builder<'_>, server: &MergedServer, taken: &mut TakenNames) -> Vec<Chain> {
    let mut out = Vec::new();
    for rule in rules(builder, server) {
        for route in &rule.tls {
            for attributes in &route.r#match {
                if is_for(server, attributes.port, &attributes.gateways)
                    && taken.take(&server.spec.bind, &attributes.sni_hosts)
                {
                    let chain = routed(builder, server, &rule, &route.route);
                    out.push(Chain { server_names: attributes.sni_hosts.clone(), ..chain });
                }
            }
        }
    }
    out
}

fn routed(
    builder: &Builder<'_>,
    server: &MergedServer,
    rule: &VirtualServiceIr,
    route: &[RouteDestination],
) -> Chain {
    let routes = StreamRoutes {
        cx: builder.cx,
        base: &builder.view.base,
        port: &port_of(server),
        idle_timeout: &builder.view.base.idle_timeout,
        access_log: &builder.policies.logs.tcp,
    };
    let (filters, provenance) = routes.filters(rule, route);
    let policies = builder.policies.tcp(server.port.number);
    Chain { filters: policies.into_iter().chain(filters).collect(), provenance, ..Chain::default() }
}

/// The server's port as one of a service.
pub(super) fn port_of(server: &MergedServer) -> Port {
    Port {
        number: server.port.number,
        name: server.port.name.as_str().into(),
        protocol: server.protocol(),
        target_port: None,
    }
}
