//! The services of a scope: imports of each egress listener, and all of them, one per host.

use super::destinations::{DestinationServicesOf, best_services};
use super::visible::{VisibleServices, services_of_host};
use super::{EgressOf, Scope, VisibleTo, is_visible};
use crate::engine::{Cx, Query};
use crate::proxy::ProxyKind;
use pilotfish_model::{Hostname, Namespace, Port, PortId, Provider, Resolution, Service, ServiceKey};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The services that a scope sees, one per host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Services {
    /// In order of precedence. Ports of several services with one host and namespace are merged into the
    /// first of them.
    pub list: Vec<Arc<Service>>,
    /// Positions in `list` by host.
    pub by_host: BTreeMap<Hostname, usize>,
}

impl Services {
    /// The service of a host.
    #[must_use]
    pub(crate) fn get(&self, hostname: &Hostname) -> Option<&Arc<Service>> {
        self.list.get(*self.by_host.get(hostname)?)
    }
}

/// The services of a scope while they are merged.
#[derive(Default)]
struct Merging {
    services: Services,
    /// Further parts of services, by position: their ports are merged at the end.
    parts: BTreeMap<usize, Vec<Arc<Service>>>,
    /// The ServiceEntries of services, by position: those of all that share a host and namespace.
    entries: BTreeMap<usize, BTreeSet<Arc<str>>>,
}

impl Merging {
    /// Adds a service, unless one with higher precedence has its host.
    fn add(&mut self, service: &Arc<Service>) {
        let Services { list, by_host } = &mut self.services;
        let Some(&index) = by_host.get(&service.hostname) else {
            by_host.insert(service.hostname.clone(), list.len());
            list.push(service.clone());
            return;
        };
        let Some(held) = list.get_mut(index) else { return };
        if held.namespace == service.namespace && held.entries != service.entries {
            self.entries.entry(index).or_default().extend(held.entries.union(&service.entries).cloned());
        }
        match service.provider.cmp(&held.provider) {
            Ordering::Less => {
                if held.namespace != service.namespace {
                    self.entries.remove(&index);
                }
                *held = service.clone();
                self.parts.remove(&index);
            }
            Ordering::Equal if can_merge(held, service) => {
                self.parts.entry(index).or_default().push(service.clone());
            }
            Ordering::Equal | Ordering::Greater => {}
        }
    }

    fn finish(self) -> Services {
        let mut services = self.services;
        for (index, parts) in &self.parts {
            if let Some(held) = services.list.get_mut(*index) {
                unite_ports(held, parts);
            }
        }
        for (index, entries) in self.entries {
            if let Some(held) = services.list.get_mut(index).filter(|held| held.entries != entries) {
                Arc::make_mut(held).entries = entries;
            }
        }
        services
    }
}

/// Returns true if two services with one host are parts of the same service. Only then are their ports
/// merged.
fn can_merge(a: &Service, b: &Service) -> bool {
    a.namespace == b.namespace && a.resolution == b.resolution && a.mesh_external == b.mesh_external
}

/// Adds the ports of each part that no earlier part has.
fn unite_ports(held: &mut Arc<Service>, parts: &[Arc<Service>]) {
    let mut known: BTreeSet<PortId> = held.ports.iter().map(Port::id).collect();
    let mut ports = held.ports.to_vec();
    for part in parts {
        let new = ports.len();
        ports.extend(part.ports.iter().filter(|port| !known.contains(&port.id())).cloned());
        known.extend(ports.iter().skip(new).map(Port::id));
    }
    if ports.len() > held.ports.len() {
        Arc::make_mut(held).ports = ports.into();
    }
}

/// The services that one egress listener of a scope imports, in order of precedence. Several may have one
/// host (ServiceEntries of one namespace, or a ServiceEntry beside a Kubernetes Service). With a port,
/// services have only that port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListenerServicesOf(pub Scope, pub usize);

impl Query for ListenerServicesOf {
    type Output = Vec<Arc<Service>>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Arc<Service>> {
        let Self(scope, index) = self;
        let visible = cx.get(&VisibleTo(scope.namespace.clone()));
        let listeners = cx.get(&EgressOf(scope.clone()));
        let Some(listener) = listeners.get(*index) else { return Vec::new() };
        let imported = visible
            .iter()
            .filter(|service| listener.imports.has_service(&service.namespace, &service.hostname))
            .filter_map(|service| match listener.matched_port() {
                Some(port) => only_port(service, port),
                None => Some(service.clone()),
            });
        one_namespace_per_host(imported.collect(), &scope.namespace)
    }
}

/// Returns the service with only that port; `None` if it does not have it. For an alias, the ports are those
/// of the service at its end.
pub(super) fn only_port(service: &Arc<Service>, id: PortId) -> Option<Arc<Service>> {
    if service.resolution == Resolution::Alias {
        return Some(service.clone());
    }
    let port = service.port(id)?.clone();
    if service.ports.len() == 1 {
        return Some(service.clone());
    }
    let mut narrowed = Service::clone(service);
    narrowed.ports = Arc::from([port]);
    Some(Arc::new(narrowed))
}

/// If a host is in several namespaces, keeps the proxy's own, or that of the first registry, or else the
/// first one.
fn one_namespace_per_host(mut services: Vec<Arc<Service>>, own: &Namespace) -> Vec<Arc<Service>> {
    let mut chosen: BTreeMap<Hostname, (Precedence, Namespace)> = BTreeMap::new();
    for service in &services {
        let candidate = precedence(service, own);
        let held = chosen.get(&service.hostname).map(|(held, _)| *held);
        if held.is_none_or(|held| candidate < held) {
            chosen.insert(service.hostname.clone(), (candidate, service.namespace.clone()));
        }
    }
    services.retain(|service| {
        chosen.get(&service.hostname).is_some_and(|(_, namespace)| *namespace == service.namespace)
    });
    services
}

/// Precedence among services with one host: true for another namespace, then the registry. The smallest value
/// wins.
type Precedence = (bool, Option<Provider>);

/// Returns the precedence for clients of a namespace; the registry is ignored for services of that namespace.
fn precedence(service: &Service, own: &Namespace) -> Precedence {
    let other = service.namespace != *own;
    (other, other.then_some(service.provider))
}

/// The services of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServicesOf(pub Scope);

impl Query for ServicesOf {
    type Output = Services;

    fn compute(&self, cx: &Cx<'_>) -> Services {
        let scope = &self.0;
        let mut services = Merging::default();
        if scope.kind == ProxyKind::Router {
            let visible = cx.get(&VisibleTo(scope.namespace.clone()));
            visible.iter().for_each(|service| services.add(service));
            return services.finish();
        }
        for index in 0..cx.get(&EgressOf(scope.clone())).len() {
            let imported = cx.get(&ListenerServicesOf(scope.clone(), index));
            imported.iter().for_each(|service| services.add(service));
            let destinations = cx.get(&DestinationServicesOf(scope.clone(), index));
            destinations.iter().for_each(|service| services.add(service));
        }
        services.finish()
    }
}

/// Returns the destination service that clients of a namespace without a Sidecar see for a host: as in
/// [`ServicesOf`], but read from the services of that host alone.
pub(crate) fn service_seen(
    cx: &Cx<'_>,
    kind: ProxyKind,
    from: &Namespace,
    host: &Hostname,
) -> Option<Arc<Service>> {
    let (visible, hidden) = services_of_host(cx, host, from);
    let mut services = Merging::default();
    let imported = imported(kind, from, &visible);
    imported.iter().for_each(|service| services.add(service));
    if kind != ProxyKind::Router && !hidden.is_empty() {
        let best = best_services(cx, from, &hidden, || visible.iter(), |_| true);
        best.values().for_each(|service| services.add(service));
    }
    services.finish().list.pop()
}

/// Returns the service for which sidecars of a namespace without a Sidecar have listeners: the last of
/// several, as in routes.
pub(crate) fn service_listened_for(cx: &Cx<'_>, from: &Namespace, host: &Hostname) -> Option<Arc<Service>> {
    let (visible, _) = services_of_host(cx, host, from);
    imported(ProxyKind::Sidecar, from, &visible).pop()
}

fn imported(kind: ProxyKind, from: &Namespace, visible: &VisibleServices) -> Vec<Arc<Service>> {
    let all = visible.iter().cloned().collect();
    if kind == ProxyKind::Router { all } else { one_namespace_per_host(all, from) }
}

/// Returns the destination service of a router's route: one in the rule's own namespace takes precedence.
pub(crate) fn own_service_seen(
    cx: &Cx<'_>,
    router: &Namespace,
    rule: &Namespace,
    host: &Hostname,
) -> Option<Arc<Service>> {
    let key = ServiceKey { hostname: host.clone(), namespace: rule.clone() };
    let services = cx.services_of(&key)?;
    services.iter().find(|service| is_visible(cx, service, router)).cloned()
}

/// Returns a host as it is spelled in cluster names of a scope: with the capitals of the service that the
/// scope sees, or else as given. Routes and listeners use it, so that the clusters that they name exist.
pub(crate) fn cluster_host(cx: &Cx<'_>, scope: &Scope, host: &str) -> Arc<str> {
    let seen = Hostname::parse(host).ok().map(|hostname| cx.get(&ServiceIn(scope.clone(), hostname)));
    match seen.as_deref() {
        Some(Some(service)) => service.written_host().clone(),
        _ => host.into(),
    }
}

/// The service that a scope sees for one host: unchanged when other services change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServiceIn(pub Scope, pub Hostname);

impl Query for ServiceIn {
    type Output = Option<Arc<Service>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&ServicesOf(self.0.clone())).get(&self.1).cloned()
    }
}
