//! Servers that route requests: plain HTTP, and HTTPS that is terminated at the router.

use super::chain::Chain;
use super::{Builder, tls};
use crate::envoy::TrafficClass;
use crate::routing::gateway::{MergedServer, PortServers};
use crate::xds::lds::address;
use crate::xds::lds::connection_manager::{Manager, by_name};
use pilotfish_model::Protocol;
use pilotfish_proto::envoy::config::listener::v3::Filter;

/// The one chain of all plain HTTP servers of a port and address.
pub(super) fn plain(builder: &Builder<'_>, bind: &str, servers: &PortServers) -> Chain {
    let prefix = stat_prefix(bind, servers.port);
    let filters = filters(builder, prefix, &servers.route, servers.port, servers.protocol());
    Chain { filters, ..Chain::default() }
}

/// The chain of an HTTPS server.
pub(super) fn secure(builder: &Builder<'_>, bind: &str, port: u32, server: &MergedServer) -> Chain {
    let prefix = match server.spec.name.as_str() {
        "" => stat_prefix(bind, port),
        // As written in the object, without a suffix.
        name => name.to_owned(),
    };
    Chain {
        server_names: server.sni_hosts(),
        tls: tls::socket(builder, server),
        filters: filters(builder, prefix, &server.route, port, server.protocol()),
        ..Chain::default()
    }
}

fn stat_prefix(bind: &str, port: u32) -> String {
    format!("outbound_{};", address::name(bind, port))
}

fn filters(
    builder: &Builder<'_>,
    stat_prefix: String,
    route: &str,
    port: u32,
    protocol: Protocol,
) -> Vec<Filter> {
    let manager = Manager {
        base: &builder.view.base,
        class: TrafficClass::Gateway,
        stat_prefix,
        routes: by_name(route),
        port,
        protocol,
        http1: None,
        hosts: None,
        policies: &builder.policies,
    };
    let mut filters = builder.policies.before_http(port);
    filters.push(manager.filter(builder.cx));
    filters
}
