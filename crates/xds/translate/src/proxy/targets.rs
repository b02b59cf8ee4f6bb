//! Targets: the services and ports that the proxy's own workload serves.

use crate::engine::{Cx, Query};
use crate::proxy::workload::Identity;
use pilotfish_model::{
    ClusterId, Endpoint, InboundBy, Labels, Namespace, Origin, Port, PortId, Provider, Resolution, Service,
    ServiceKey, ShardKey, TargetPort, Workload, label_subset,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One service port that leads to the workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub service: ServiceKey,
    /// The service's short name.
    pub name: Arc<str>,
    /// Its host as it was written.
    pub written_host: Arc<str>,
    /// True if the service is known as `NAME.NAMESPACE` too.
    pub has_short_name: bool,
    /// True if the service lies outside the mesh (`MESH_EXTERNAL`).
    pub mesh_external: bool,
    /// Creation time of the service: where two targets disagree, the older one decides.
    pub created: i64,
    pub port: Port,
    /// The port of the workload.
    pub target_port: u32,
    /// The object that made the service.
    pub object: Origin,
}

impl Target {
    fn new(service: &Service, port: &Port, target_port: u32) -> Self {
        Self {
            service: service.key(),
            name: service.name.clone(),
            written_host: service.written_host().clone(),
            has_short_name: service.has_short_name,
            mesh_external: service.mesh_external,
            created: service.created,
            port: port.clone(),
            target_port,
            object: service.provenance.clone(),
        }
    }

    /// True if the other target has the same service, service port and workload port.
    fn is_at(&self, other: &Self) -> bool {
        let place = |target: &Self| (target.port.id(), target.target_port);
        self.service == other.service && place(self) == place(other)
    }
}

/// The targets of a proxy: TCP before UDP, since the first one of a port of the workload describes its TCP
/// listener; then the oldest service first, then by host; the ports of one service in the order written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TargetsOf(pub Identity);

impl Query for TargetsOf {
    type Output = Arc<[Target]>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut targets = by_selector(cx, &self.0);
        targets.extend(at_addresses(cx, &self.0, AtAddress::Declared));
        // Nothing is read of endpoints where no such instance can be the proxy's workload.
        if self.0.registered(cx).is_some() {
            let registered = at_addresses(cx, &self.0, AtAddress::Registered);
            let new =
                registered.into_iter().filter(|target| !targets.iter().any(|known| known.is_at(target)));
            let new: Vec<Target> = new.collect();
            targets.extend(new);
        }
        let place = |target: &Target| (target.port.protocol.transport(), target.created);
        targets.sort_by(|a, b| (place(a), &a.service.hostname).cmp(&(place(b), &b.service.hostname)));
        targets.into()
    }
}

/// Services with selectors: those that select the WorkloadEntry with the proxy's address, else those that
/// select its pod, else (for a pod that none selects) those without selector that list its address. Where
/// neither is known, those that select its node's labels.
fn by_selector(cx: &Cx<'_>, proxy: &Identity) -> Vec<Target> {
    if let Some(entry) = proxy.workload_entry(cx) {
        let at = SelectingIn::of(&entry);
        return of_selecting(cx, &at, &entry.labels, can_select_entries, |port| entry_port(&entry, port));
    }
    let Some(pod) = proxy.pod(cx) else { return of_node(cx, proxy) };
    let at = SelectingIn::of(&pod);
    if cx.get(&at).iter().any(|(selector, _)| label_subset(&**selector, &pod.labels)) {
        return of_selecting(cx, &at, &pod.labels, |_| true, |port| pod_port(&pod, port));
    }
    at_addresses(cx, proxy, AtAddress::WithoutSelector)
}

/// The Services that select the labels of a node whose workload is unknown. A target port with a name is one
/// of the node's (`POD_PORTS`): where it is none of those, it leads nowhere, and where the node has none, it
/// is unknown (0).
fn of_node(cx: &Cx<'_>, proxy: &Identity) -> Vec<Target> {
    let named = |name: &str, port: &Port| {
        let found = proxy.pod_ports.iter().find(|own| own.is_for(name, port.protocol.transport()));
        match found {
            Some(own) => Some(own.number),
            None => proxy.pod_ports.is_empty().then_some(0),
        }
    };
    let number = |port: &Port| match &port.target_port {
        None => Some(port.number),
        Some(TargetPort::Number(number)) => Some(*number),
        Some(TargetPort::Name(name)) => named(name, port),
    };
    let at = SelectingIn(proxy.cluster.clone(), proxy.namespace.clone());
    of_selecting(cx, &at, &proxy.labels, |_| true, number)
}

/// True if a Service can select WorkloadEntries: headless ones and those outside the mesh do not.
fn can_select_entries(service: &Service) -> bool {
    service.resolution == Resolution::ClientSideLB && !service.mesh_external
}

/// The ports of the services that select these labels, without those that have no port on it or the same one
/// with the same protocol as another.
fn of_selecting(
    cx: &Cx<'_>,
    at: &SelectingIn,
    labels: &Labels,
    counts: fn(&Service) -> bool,
    target_port: impl Fn(&Port) -> Option<u32>,
) -> Vec<Target> {
    let mut targets = Vec::new();
    for (selector, key) in cx.get(at).iter() {
        if !label_subset(&**selector, labels) {
            continue;
        }
        let services = cx.services_of(key);
        let selecting = services.iter().flat_map(|s| s.iter()).find(|s| s.inbound == InboundBy::Selector);
        let Some(service) = selecting.filter(|service| counts(service)) else { continue };
        let Some((_, ports)) = service.in_cluster(&at.0) else { continue };
        let mut seen = BTreeSet::new();
        for port in ports.iter() {
            let Some(number) = target_port(port) else { continue };
            if seen.insert((number, port.protocol)) {
                targets.push(Target::new(service, port, number));
            }
        }
    }
    targets
}

/// Workload port of a service port on a pod: a name is that of a container port.
fn pod_port(pod: &Workload, port: &Port) -> Option<u32> {
    match &port.target_port {
        None => Some(port.number),
        Some(TargetPort::Number(number)) => Some(*number),
        Some(TargetPort::Name(name)) => pod.ports.get(name).copied(),
    }
}

/// Workload port of a service port on a WorkloadEntry: `ports` by the target port's name, or by the service
/// port's name if the target port is a number.
fn entry_port(entry: &Workload, port: &Port) -> Option<u32> {
    if port.protocol == pilotfish_model::Protocol::Udp {
        return None;
    }
    let named = |name: &Arc<str>| entry.ports.get(name).copied().filter(|number| *number != 0);
    match &port.target_port {
        None => named(&port.name).or(Some(port.number)),
        Some(TargetPort::Number(number)) => named(&port.name).or(Some(*number)),
        Some(TargetPort::Name(name)) => named(name),
    }
}

/// Condition under which an endpoint at a proxy's address makes it serve the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtAddress {
    /// The service goes by selectors and has none: endpoints of its own registry and the proxy's cluster
    /// count.
    WithoutSelector,
    /// The service goes by addresses: endpoints of its own registry count.
    Declared,
    /// The instance is in a registry without objects, and another registry describes the service.
    Registered,
}

impl AtAddress {
    fn counts(self, service: &Service, own: &ClusterId) -> bool {
        match self {
            Self::WithoutSelector => {
                service.inbound == InboundBy::Selector && service.in_cluster(own).is_some()
            }
            Self::Declared => service.inbound == InboundBy::Address,
            Self::Registered => true,
        }
    }

    fn registries(self, service: &Service, own: &ClusterId) -> Registries {
        let cluster = (self != Self::Declared).then(|| own.clone());
        Registries { provider: service.provider, cluster, others: self == Self::Registered }
    }
}

/// The ports of services in the proxy's namespace that it serves for that reason, and whose endpoints are at
/// its addresses.
fn at_addresses(cx: &Cx<'_>, proxy: &Identity, by: AtAddress) -> Vec<Target> {
    let mut targets = Vec::new();
    for address in proxy.ips.iter().map(ToString::to_string) {
        for key in cx.services_at(&address) {
            if key.namespace != proxy.namespace {
                continue;
            }
            let services = cx.services_of(&key);
            let counts = |service: &&Arc<Service>| by.counts(service, &proxy.cluster);
            for service in services.iter().flat_map(|s| s.iter()).filter(counts) {
                let registries = by.registries(service, &proxy.cluster);
                let ports = cx.get(&PortsByAddress(key.clone(), registries));
                let Some(ports) = ports.get(address.as_str()) else { continue };
                let found = ports.iter().filter_map(|listed| {
                    let port = service.port_named(&listed.name)?;
                    let fits = listed.id.is_none_or(|id| id == port.id());
                    fits.then(|| Target::new(service, port, listed.target))
                });
                targets.extend(found);
            }
        }
    }
    targets
}

/// The services of a namespace in a cluster that have a selector, in order of their hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SelectingIn(ClusterId, Namespace);

impl SelectingIn {
    /// Cluster and namespace of a workload.
    fn of(workload: &Workload) -> Self {
        Self(workload.key.cluster.clone(), workload.key.namespace.clone())
    }
}

impl Query for SelectingIn {
    type Output = Vec<(Labels, ServiceKey)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&Selecting).get(self).cloned().unwrap_or_default()
    }
}

/// The services that have a selector, by cluster and namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Selecting;

impl Query for Selecting {
    type Output = BTreeMap<SelectingIn, Vec<(Labels, ServiceKey)>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out: Self::Output = BTreeMap::new();
        for (key, services) in cx.services() {
            let selecting = services.iter().find(|service| service.inbound == InboundBy::Selector);
            let Some(service) = selecting else { continue };
            for cluster in service.addresses.keys() {
                let Some((selector, _)) = service.in_cluster(cluster) else { continue };
                if !selector.is_empty() {
                    let at = SelectingIn(cluster.clone(), key.namespace.clone());
                    out.entry(at).or_default().push((selector.clone(), key.clone()));
                }
            }
        }
        out
    }
}

/// Ports of a service by address, in the shards of some registries. A query of its own, so that a proxy reads
/// only its own address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortsByAddress(ServiceKey, Registries);

/// The registries of one type: of one cluster, or of all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Registries {
    provider: Provider,
    cluster: Option<ClusterId>,
    /// Those of all other types that have no objects, instead.
    others: bool,
}

impl Registries {
    fn contain(&self, shard: &ShardKey) -> bool {
        (shard.provider == self.provider) != self.others
            && self.cluster.as_ref().is_none_or(|own| shard.cluster == *own)
    }

    fn counts(&self, endpoint: &Endpoint) -> bool {
        !self.others || endpoint.attributes.provenance.as_object().is_none()
    }
}

/// A port at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    /// The name of the service port.
    name: Arc<str>,
    /// Its identity; `None` where only the name counts.
    id: Option<PortId>,
    /// The port at the address.
    target: u32,
}

impl Query for PortsByAddress {
    type Output = BTreeMap<Arc<str>, Vec<Listed>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out: Self::Output = BTreeMap::new();
        let Some(endpoints) = cx.endpoints_of(&self.0) else { return out };
        let shards = endpoints.shards.iter().filter(|(shard, _)| self.1.contain(shard));
        let endpoints = shards.flat_map(|(_, shard)| shard.iter());
        for endpoint in endpoints.filter(|endpoint| self.1.counts(endpoint)) {
            for address in endpoint.addresses.iter() {
                let listed = out.entry(address.clone()).or_default();
                let new = of_endpoint(endpoint);
                if !listed.contains(&new) {
                    listed.push(new);
                }
            }
        }
        out
    }
}

fn of_endpoint(endpoint: &Endpoint) -> Listed {
    Listed { name: endpoint.service_port.clone(), id: endpoint.service_port_id, target: endpoint.port }
}

#[cfg(test)]
mod tests;
