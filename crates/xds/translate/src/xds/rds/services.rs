//! The services that a sidecar's routes are for, by port.

use crate::engine::{Cx, Query};
use crate::scope::{EgressOf, ListenerServicesOf, Scope};
use pilotfish_model::{Hostname, Protocol, Service};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Prefix of the route names of Unix sockets.
pub(super) const UNIX_SOCKET: &str = "unix://";

/// The egress listener that a route belongs to: the one of its port (or of its Unix socket, for port 0), else
/// the first without a port.
pub(super) fn listener_of(cx: &Cx<'_>, scope: &Scope, port: u32, route: &str) -> Option<usize> {
    cx.get(&EgressOf(scope.clone())).iter().position(|listener| match &listener.port {
        // A Unix socket belongs to one listener. For any other path, the response would contain all services.
        None => !route.starts_with(UNIX_SOCKET),
        Some(own) => own.number == port && (port != 0 || *listener.bind == *route),
    })
}

/// Returns true if an egress listener is an explicit HTTP proxy.
pub(super) fn is_http_proxy(cx: &Cx<'_>, scope: &Scope, listener: usize) -> bool {
    let listeners = cx.get(&EgressOf(scope.clone()));
    let port = listeners.get(listener).and_then(|listener| listener.port.as_ref());
    port.is_some_and(|port| port.protocol == Protocol::HttpProxy)
}

/// Returns true for ports whose requests are routed: HTTP, or protocols that may be detected as HTTP.
pub(super) fn is_routed(protocol: Protocol) -> bool {
    protocol.is_http() || protocol.is_unsupported()
}

/// The services of an egress listener by port, one per host, ordered by host. If several share a host, the
/// last one is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ByPort(Scope, usize);

impl Query for ByPort {
    type Output = BTreeMap<u32, Arc<[Arc<Service>]>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let services = cx.get(&ListenerServicesOf(self.0.clone(), self.1));
        let mut ports: BTreeMap<u32, BTreeMap<&Hostname, &Arc<Service>>> = BTreeMap::new();
        for service in services.iter() {
            let numbers: BTreeSet<u32> = service.tcp_ports().map(|port| port.number).collect();
            for number in numbers {
                ports.entry(number).or_default().insert(&service.hostname, service);
            }
        }
        let list = |hosts: BTreeMap<&Hostname, &Arc<Service>>| hosts.into_values().cloned().collect();
        ports.into_iter().map(|(port, hosts)| (port, list(hosts))).collect()
    }
}

/// The services of an egress listener that have a port; all of them for port 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServicesOn {
    pub(super) scope: Scope,
    pub(super) listener: usize,
    pub(super) port: u32,
}

impl Query for ServicesOn {
    type Output = Arc<[Arc<Service>]>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        if self.port != 0 {
            let ports = cx.get(&ByPort(self.scope.clone(), self.listener));
            return ports.get(&self.port).cloned().unwrap_or_default();
        }
        let services = cx.get(&ListenerServicesOf(self.scope.clone(), self.listener));
        let hosts: BTreeMap<&Hostname, &Arc<Service>> =
            services.iter().map(|service| (&service.hostname, service)).collect();
        hosts.into_values().cloned().collect()
    }
}
