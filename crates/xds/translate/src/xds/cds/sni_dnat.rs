//! Gateways that route mutual TLS by SNI without ending it: between networks, endpoints are reached through
//! them.

use crate::engine::Cx;
use crate::proxy::{Proxy, ProxyKind};
use crate::routing::gateway::{MergedGatewaysOf, RouterGateways};
use pilotfish_config::networking::ServerTlsMode;

/// Returns true if the proxy is such a gateway (a server with `AUTO_PASSTHROUGH`).
pub(super) fn is_used_by(cx: &Cx<'_>, proxy: &Proxy) -> bool {
    if proxy.kind != ProxyKind::Router {
        return false;
    }
    let merged = cx.get(&MergedGatewaysOf(RouterGateways::of(cx, proxy)));
    let mut servers = merged.ports.iter().flat_map(|port| &port.servers);
    servers
        .any(|server| server.spec.tls.as_ref().is_some_and(|tls| tls.mode == ServerTlsMode::AutoPassthrough))
}
