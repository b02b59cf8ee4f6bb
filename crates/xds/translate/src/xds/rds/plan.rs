//! Assignment of a port's hosts to the virtual services that serve them.

use super::services::{ServicesOn, is_routed};
use crate::engine::{Cx, Query};
use crate::routing::{RouteDialect, VirtualServiceHeader, VirtualServiceId};
use crate::scope::{MeshVirtualServices, MeshVirtualServicesOf, Scope};
use crate::services::host_index::HostIndex;
use pilotfish_model::{Hostname, Resolution, Service};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The hosts that one virtual service serves on one port.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    pub(super) rule: VirtualServiceId,
    pub(super) port: u32,
    /// Services that the virtual service names.
    pub(super) services: Vec<Arc<Service>>,
    /// Hosts of the virtual service without a service on the port.
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
    /// Every service port whose requests are routed: services without a virtual service get a default route.
    pub(super) services: Vec<(u32, Arc<Service>)>,
}

impl Plan {
    /// Returns the part of the plan for one service.
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

/// The port on which hosts without a service are routed.
const PLAIN_HTTP: u32 = 80;

impl Query for PlanOf {
    type Output = Plan;

    fn compute(&self, cx: &Cx<'_>) -> Plan {
        let Self { scope, listener, port } = self;
        let services = cx.get(&ServicesOn { scope: scope.clone(), listener: *listener, port: *port });
        let rules = cx.get(&MeshVirtualServicesOf(scope.clone(), *listener));
        let served = Served::of(&services, &rules);
        let ruled = rules.list.iter().flat_map(|header| planned(header, &served, *port)).collect();
        let routed = |service: &Arc<Service>| -> Vec<(u32, Arc<Service>)> {
            ports(service, *port).map(|number| (number, service.clone())).collect()
        };
        // Requests to an alias are handled by the service that it leads to.
        let services = services.iter().filter(|service| service.resolution != Resolution::Alias);
        Plan { ruled, services: services.flat_map(routed).collect() }
    }
}

/// The numbers of a service's routed ports: only `port`, or all for 0.
fn ports(service: &Service, port: u32) -> impl Iterator<Item = u32> {
    let fits = move |number: u32| port == 0 || port == number;
    let ports = service.tcp_ports().filter(move |port| fits(port.number) && is_routed(port.protocol));
    ports.map(|port| port.number)
}

/// Assignment of services to the virtual services that serve them.
struct Served<'a> {
    by_host: BTreeMap<&'a Hostname, &'a Arc<Service>>,
    /// The hosts of all services.
    hosts: HostIndex,
    /// The hosts of the services that each virtual service serves: if several match a host, the most specific
    /// one.
    own: BTreeMap<&'a VirtualServiceId, HostIndex>,
}

impl<'a> Served<'a> {
    fn of(services: &'a [Arc<Service>], rules: &'a MeshVirtualServices) -> Self {
        let by_host: BTreeMap<_, _> = services.iter().map(|service| (&service.hostname, service)).collect();
        let (mut hosts, mut own) = (HostIndex::default(), BTreeMap::<_, HostIndex>::new());
        // Needed for wildcard hosts only.
        let wild = rules.list.iter().any(|header| header.hosts.iter().any(Hostname::is_wildcard));
        for host in by_host.keys().filter(|_| wild) {
            hosts.add(host, 0);
            if let Some(best) = rules.serving(host) {
                own.entry(&best.id).or_default().add(host, 0);
            }
        }
        Self { by_host, hosts, own }
    }

    /// Returns the services that overlap with a wildcard and that the virtual service serves, ordered by
    /// host.
    fn meeting(&self, wildcard: &Hostname, rule: &VirtualServiceId) -> Vec<&'a Arc<Service>> {
        let Some(own) = self.own.get(rule) else { return Vec::new() };
        let met = own.above(wildcard).chain(own.below(wildcard));
        let mut hosts: Vec<&Hostname> = met.map(|(host, _)| host).collect();
        hosts.sort();
        hosts.into_iter().filter_map(|host| self.by_host.get(host).copied()).collect()
    }

    /// Returns true if a wildcard overlaps with the host of any service.
    fn meets(&self, wildcard: &Hostname) -> bool {
        self.hosts.meets(wildcard)
    }
}

/// Returns the hosts and services that a virtual service serves, for each port.
fn planned(header: &VirtualServiceHeader, served: &Served<'_>, port: u32) -> Vec<Planned> {
    let mut services: Vec<Arc<Service>> = Vec::new();
    let mut other_hosts = Vec::new();
    let mut any = false;
    // A route of the Gateway API applies to the services of its hosts alone: not to services that a wildcard
    // covers, nor to hosts without a service on the port.
    let services_only = header.dialect == RouteDialect::GatewayApi;
    for host in header.hosts.iter().filter(|host| !host.is_wildcard()) {
        match served.by_host.get(host) {
            Some(service) => services.push(Arc::clone(service)),
            None => other_hosts.push(host.clone()),
        }
    }
    any |= !services.is_empty();
    if services_only {
        other_hosts.clear();
    }
    for host in header.hosts.iter().filter(|host| host.is_wildcard() && !services_only) {
        if !served.meets(host) {
            other_hosts.push(host.clone());
            continue;
        }
        any = true;
        services.extend(served.meeting(host, &header.id).into_iter().cloned());
    }
    if !any && (services_only || port != PLAIN_HTTP) {
        return Vec::new();
    }
    let mut by_port: BTreeMap<u32, Vec<Arc<Service>>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for service in services.into_iter().filter(|service| seen.insert(service.hostname.clone())) {
        for number in ports(&service, port) {
            by_port.entry(number).or_default().push(service.clone());
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
