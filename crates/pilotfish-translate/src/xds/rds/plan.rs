//! Which virtual service serves which hosts of a port.

use super::services::{ServicesOn, is_routed};
use crate::engine::{Cx, Query};
use crate::routing::{RouteDialect, VirtualServiceHeader, VirtualServiceId};
use crate::scope::{MeshVirtualServices, MeshVirtualServicesOf, Scope};
use pilotfish_model::{Hostname, Resolution, Service};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The hosts that one virtual service serves on one port.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    pub(super) rule: VirtualServiceId,
    pub(super) port: u32,
    /// Services that the virtual service names.
    pub(super) services: Vec<Arc<Service>>,
    /// Hosts of the virtual service that no service of the port has.
    pub(super) other_hosts: Vec<Hostname>,
}

/// The plan of a port; of all ports for 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlanOf {
    pub(super) scope: Scope,
    pub(super) listener: usize,
    pub(super) port: u32,
}

/// The answer to [`PlanOf`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// By virtual service, in order of precedence.
    pub(super) ruled: Vec<Planned>,
    /// Every service port whose requests are routed: what no virtual service serves gets a default route.
    pub(super) services: Vec<(u32, Arc<Service>)>,
}

impl Plan {
    /// What concerns one service alone.
    pub(super) fn only(&self, host: &str) -> Self {
        let is_it = |service: &&Arc<Service>| service.hostname.as_str() == host;
        let ruled = self.ruled.iter().filter_map(|planned| {
            let services: Vec<_> = planned.services.iter().filter(is_it).cloned().collect();
            (!services.is_empty()).then(|| Planned {
                rule: planned.rule.clone(),
                port: planned.port,
                services,
                other_hosts: Vec::new(),
            })
        });
        let services = self.services.iter().filter(|(_, service)| is_it(&service));
        Self { ruled: ruled.collect(), services: services.cloned().collect() }
    }
}

/// The port on which hosts that no service has are routed.
const PLAIN_HTTP: u32 = 80;

impl Query for PlanOf {
    type Output = Plan;

    fn compute(&self, cx: &Cx<'_>) -> Plan {
        let Self { scope, listener, port } = self;
        let services = cx.get(&ServicesOn { scope: scope.clone(), listener: *listener, port: *port });
        let rules = cx.get(&MeshVirtualServicesOf(scope.clone(), *listener));
        let by_host: BTreeMap<&Hostname, &Arc<Service>> =
            services.iter().map(|service| (&service.hostname, service)).collect();
        let ruled = rules.list.iter().flat_map(|header| planned(header, &rules, &by_host, *port)).collect();
        let routed = |service: &Arc<Service>| -> Vec<(u32, Arc<Service>)> {
            ports(service, *port).map(|number| (number, service.clone())).collect()
        };
        // An alias is answered for by the service behind it.
        let services = services.iter().filter(|service| service.resolution != Resolution::Alias);
        Plan { ruled, services: services.flat_map(routed).collect() }
    }
}

/// The numbers of a service's routed ports: only `port`, or all for 0.
fn ports(service: &Service, port: u32) -> impl Iterator<Item = u32> {
    let fits = move |number: u32| port == 0 || port == number;
    let mut numbers: Vec<u32> = Vec::new();
    // Of two ports with one number (TCP and UDP) the first decides.
    for port in service.ports.iter().filter(|port| fits(port.number)) {
        let first = service.port(port.number).is_some_and(|first| first == port);
        if first && is_routed(port.protocol) && !numbers.contains(&port.number) {
            numbers.push(port.number);
        }
    }
    numbers.into_iter()
}

/// What one virtual service serves on each port.
fn planned(
    header: &VirtualServiceHeader,
    rules: &MeshVirtualServices,
    by_host: &BTreeMap<&Hostname, &Arc<Service>>,
    port: u32,
) -> Vec<Planned> {
    let mut services: Vec<Arc<Service>> = Vec::new();
    let mut other_hosts = Vec::new();
    let mut any = false;
    // A route of the Gateway API is for the services of its hosts alone: not for those below a wildcard, nor for hosts that no service
    // of the port has.
    let services_only = header.dialect == RouteDialect::GatewayApi;
    for host in header.hosts.iter().filter(|host| !host.is_wildcard()) {
        match by_host.get(host) {
            Some(service) => services.push(Arc::clone(service)),
            None => other_hosts.push(host.clone()),
        }
    }
    any |= !services.is_empty();
    if services_only {
        other_hosts.clear();
    }
    for host in header.hosts.iter().filter(|host| host.is_wildcard() && !services_only) {
        let mut matched = by_host.iter().filter(|(name, _)| host.matches(name)).peekable();
        if matched.peek().is_none() {
            other_hosts.push(host.clone());
        } else {
            any = true;
        }
        // Of several virtual services above one host, the most specific one serves it.
        let own = matched.filter(|(name, _)| rules.serving(name).is_some_and(|best| best.id == header.id));
        services.extend(own.map(|(_, service)| Arc::clone(service)));
    }
    if !any && (services_only || port != PLAIN_HTTP) {
        return Vec::new();
    }
    let mut by_port: BTreeMap<u32, Vec<Arc<Service>>> = BTreeMap::new();
    for service in services {
        for number in ports(&service, port) {
            let list = by_port.entry(number).or_default();
            if !list.iter().any(|held| held.hostname == service.hostname) {
                list.push(service.clone());
            }
        }
    }
    if by_port.is_empty() && port == PLAIN_HTTP {
        by_port.insert(PLAIN_HTTP, Vec::new());
    }
    let rule = |(port, services)| Planned {
        rule: header.id.clone(),
        port,
        services,
        other_hosts: other_hosts.clone(),
    };
    by_port.into_iter().map(rule).collect()
}
