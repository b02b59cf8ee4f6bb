//! Services that a scope sees only as destinations of the VirtualServices that it imports. Services of the
//! scope's own namespace are included even if they are not exported there.

use super::services::only_port;
use super::visible::HiddenAtHome;
use super::{EgressOf, MeshVirtualServicesOf, Scope, VisibleTo};
use crate::engine::{Cx, Query};
use crate::routing::{HttpRule, VirtualServiceId, VirtualServiceIr, VirtualServiceOf};
use crate::services::alias;
use pilotfish_config::networking::Destination;
use pilotfish_model::{Hostname, Namespace, Resolution, Service};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Query for the destination services of one egress listener's virtual services, ordered by host, with the
/// ports that routes use; if the listener has a port, with that one only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DestinationServicesOf(pub Scope, pub usize);

impl Query for DestinationServicesOf {
    type Output = Vec<Arc<Service>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let Self(scope, index) = self;
        let listeners = cx.get(&EgressOf(scope.clone()));
        let Some(listener) = listeners.get(*index) else { return Vec::new() };
        let own = &scope.namespace;
        let hidden = cx.get(&HiddenAtHome(own.clone()));
        let sees_all = listeners.iter().any(|egress| egress.port.is_none() && egress.imports.is_everything());
        // If a listener imports everything, routes add only services that the namespace hides from itself.
        if sees_all && hidden.is_empty() {
            return Vec::new();
        }
        let mut used = ports_by_host(cx, scope, *index);
        if sees_all {
            used.retain(|host, _| hidden.iter().any(|service| service.hostname == *host));
        }
        if used.is_empty() {
            return Vec::new();
        }
        let visible = cx.get(&VisibleTo(own.clone()));
        let best = best_services(cx, own, &hidden, || visible.iter(), |host| used.contains_key(host));
        best.into_iter()
            .filter_map(|(host, service)| match (listener.matched_port(), used.get(&host)?) {
                (Some(port), _) => only_port(&service, port),
                (None, Ports::All) => Some(service),
                (None, Ports::Some(numbers)) => only_ports(&service, numbers),
            })
            .collect()
    }
}

/// The ports of a host that routes use.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ports {
    /// Some route has no port.
    All,
    Some(BTreeSet<u32>),
}

impl Ports {
    fn add(&mut self, number: u32) {
        match self {
            Self::All => {}
            Self::Some(_) if number == 0 => *self = Self::All,
            Self::Some(numbers) => {
                numbers.insert(number);
            }
        }
    }
}

fn ports_by_host(cx: &Cx<'_>, scope: &Scope, listener: usize) -> BTreeMap<Hostname, Ports> {
    let mut out: BTreeMap<Hostname, Ports> = BTreeMap::new();
    for header in &cx.get(&MeshVirtualServicesOf(scope.clone(), listener)).list {
        let destinations = cx.get(&DestinationsOf { rule: header.id.clone(), from: scope.namespace.clone() });
        for (host, port) in destinations.iter() {
            out.entry(host.clone()).or_insert_with(|| Ports::Some(BTreeSet::new())).add(*port);
        }
    }
    out
}

/// Returns the preferred service of each wanted host: of the namespace itself, exported or not, or else of
/// those visible to it.
pub(super) fn best_services<'a, V: Iterator<Item = &'a Arc<Service>>>(
    cx: &Cx<'_>,
    own: &Namespace,
    hidden: &'a [Arc<Service>],
    visible: impl Fn() -> V,
    is_wanted: impl Fn(&Hostname) -> bool,
) -> BTreeMap<Hostname, Arc<Service>> {
    let mut best: BTreeMap<Hostname, Arc<Service>> = BTreeMap::new();
    // Own services of the namespace come first, then the registry decides; among own services of one
    // registry, the oldest wins. Without the switch, the name of another namespace decides.
    let by_registry = cx.switches().best_service_namespace;
    let rank = |service: &Arc<Service>| {
        let is_own = service.namespace == *own;
        let age = if is_own { service.created } else { 0 };
        let namespace = (!is_own && !by_registry).then(|| service.namespace.clone());
        (!is_own, namespace, service.provider, age)
    };
    for service in hidden.iter().chain(visible()) {
        if !is_wanted(&service.hostname) {
            continue;
        }
        if best.get(&service.hostname).is_none_or(|held| rank(service) < rank(held)) {
            best.insert(service.hostname.clone(), service.clone());
        }
    }
    // The endpoints of other ServiceEntries that the namespace sees are included.
    for service in visible().filter(|service| !service.entries.is_empty()) {
        let held = best.get_mut(&service.hostname).filter(|held| held.namespace == service.namespace);
        if let Some(held) = held.filter(|held| !held.entries.is_superset(&service.entries)) {
            Arc::make_mut(held).entries.extend(service.entries.iter().cloned());
        }
    }
    best
}

/// Returns the service with only some of its ports; `None` if it has none of them. For an alias, the ports
/// are those of the service at its end.
fn only_ports(service: &Arc<Service>, numbers: &BTreeSet<u32>) -> Option<Arc<Service>> {
    if service.resolution == Resolution::Alias {
        return Some(service.clone());
    }
    let ports: Vec<_> = service.tcp_ports().filter(|port| numbers.contains(&port.number)).cloned().collect();
    if ports.is_empty() {
        return None;
    }
    if ports.len() == service.ports.len() {
        return Some(service.clone());
    }
    let mut narrowed = Service::clone(service);
    narrowed.ports = ports.into();
    Some(Arc::new(narrowed))
}

/// Query for the destination hosts and ports (0: any) of a virtual service, for clients of a namespace:
/// aliases, and the services at their ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DestinationsOf {
    rule: VirtualServiceId,
    from: Namespace,
}

impl Query for DestinationsOf {
    type Output = BTreeSet<(Hostname, u32)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let rule = cx.get(&VirtualServiceOf(self.rule.clone()));
        let Some(rule) = rule.as_ref() else { return BTreeSet::new() };
        let mut found = BTreeSet::new();
        each_destination(rule, &self.from, |to| {
            if let Ok(host) = Hostname::parse(&to.host) {
                let port = to.port.as_ref().map_or(0, |port| port.number);
                found.extend(alias::end(cx, &host).map(|end| (end, port)));
                found.insert((host, port));
            }
        });
        found
    }
}

/// Calls `f` for the destinations of all routes that can match clients of the namespace.
fn each_destination(rule: &VirtualServiceIr, from: &Namespace, mut f: impl FnMut(&Destination)) {
    for route in rule.http.iter().map(HttpRule::whole) {
        if can_come_from(from, route.r#match.iter().map(|condition| condition.source_namespace.as_str())) {
            let weighted = route.route.iter().filter_map(|weighted| weighted.destination.as_ref());
            let mirrors = route.mirrors.iter().filter_map(|mirror| mirror.destination.as_ref());
            weighted.chain(route.mirror.as_ref()).chain(mirrors).for_each(&mut f);
        }
    }
    let tls = rule.tls.iter().filter(|route| {
        can_come_from(from, route.r#match.iter().map(|condition| condition.source_namespace.as_str()))
    });
    let tcp = rule.tcp.iter().filter(|route| {
        can_come_from(from, route.r#match.iter().map(|condition| condition.source_namespace.as_str()))
    });
    let streams = tls.flat_map(|route| &route.route).chain(tcp.flat_map(|route| &route.route));
    streams.filter_map(|weighted| weighted.destination.as_ref()).for_each(f);
}

/// Returns true if a condition of a route can match clients of the namespace; a route without conditions
/// matches all.
fn can_come_from<'a>(from: &Namespace, mut conditions: impl Iterator<Item = &'a str>) -> bool {
    let takes = |namespace: &str| namespace.is_empty() || *from == namespace;
    match conditions.next() {
        None => true,
        Some(first) => takes(first) || conditions.any(takes),
    }
}
