//! The workload that a proxy belongs to, as the registries know it.

use crate::engine::{Cx, Query};
use crate::proxy::{PodPort, Proxy};
use pilotfish_model::{
    ClusterId, InboundBy, Labels, Namespace, Provider, ServiceKey, Workload, WorkloadKey, WorkloadKind,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Facets of a node by which its workload is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The name in the node id.
    pub name: Arc<str>,
    pub namespace: Namespace,
    pub cluster: ClusterId,
    pub ips: Arc<[IpAddr]>,
    /// The labels of its node, by which Services select it where no workload is known.
    pub labels: Labels,
    /// The ports of its Pod by its node, which target ports with a name mean there.
    pub pod_ports: Arc<[PodPort]>,
}

impl Identity {
    /// The identity of a proxy.
    #[must_use]
    pub(crate) fn of(proxy: &Proxy) -> Self {
        Self {
            name: proxy.name.clone(),
            namespace: proxy.namespace.clone(),
            cluster: proxy.cluster.clone(),
            ips: proxy.ips.clone(),
            labels: proxy.labels.clone(),
            pod_ports: proxy.pod_ports.clone(),
        }
    }

    /// Its pod: found by name and namespace, whatever its address.
    #[must_use]
    pub(crate) fn pod(&self, cx: &Cx<'_>) -> Option<Arc<Workload>> {
        cx.workload(&WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            cluster: self.cluster.clone(),
        })
    }

    /// Its WorkloadEntry: a healthy one of its cluster that has its first address. Where several do, the one
    /// of its name and namespace, else the first of its namespace, else the first.
    #[must_use]
    pub(crate) fn workload_entry(&self, cx: &Cx<'_>) -> Option<Arc<Workload>> {
        let mut entries = self.at_first_address(cx, |kind| *kind == WorkloadKind::WorkloadEntry);
        entries.retain(|workload| workload.ready);
        self.best_of(&entries).or(entries.first()).cloned()
    }

    /// Its instance in a registry that has no objects: one of its cluster and namespace that has its first
    /// address. Where several do, the one of its name, else the first. Readiness does not matter: an
    /// unready one keeps the policies that its labels select.
    #[must_use]
    pub(crate) fn registered(&self, cx: &Cx<'_>) -> Option<Arc<Workload>> {
        let instances = self.at_first_address(cx, |kind| matches!(kind, WorkloadKind::Registered(_)));
        self.best_of(&instances).cloned()
    }

    /// The workloads of its cluster that have its first address.
    fn at_first_address(&self, cx: &Cx<'_>, counts: fn(&WorkloadKind) -> bool) -> Vec<Arc<Workload>> {
        let Some(address) = self.ips.first().map(ToString::to_string) else { return Vec::new() };
        cx.workloads_at(&address)
            .into_iter()
            .filter(|key| counts(&key.kind) && key.cluster == self.cluster)
            .filter_map(|key| cx.workload(&key))
            .collect()
    }

    /// The workload of its name and namespace, else the first of its namespace.
    fn best_of<'a>(&self, workloads: &'a [Arc<Workload>]) -> Option<&'a Arc<Workload>> {
        let own = |workload: &&Arc<Workload>| workload.key.namespace == self.namespace;
        let named = |workload: &&Arc<Workload>| own(workload) && workload.key.name == self.name;
        workloads.iter().find(named).or_else(|| workloads.iter().find(own))
    }
}

/// The labels that the registries know for a proxy's workload: of its pod, else of an instance that a
/// registry without objects has at its address, else of an endpoint at its address of a service that its
/// workload serves by address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RegisteredLabels(Identity);

impl Query for RegisteredLabels {
    type Output = Option<Labels>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        if let Some(pod) = self.0.pod(cx) {
            return Some(pod.labels.clone());
        }
        if let Some(workload) = self.0.registered(cx) {
            return Some(workload.labels.clone());
        }
        self.0.ips.iter().find_map(|ip| {
            let address = ip.to_string();
            let keys = cx.services_at(&address);
            keys.into_iter().find_map(|key| cx.get(&LabelsByAddress(key)).get(address.as_str()).cloned())
        })
    }
}

/// The labels of the endpoints of a service that workloads serve by address, by address. Cut out so that a
/// proxy reads only its own address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LabelsByAddress(ServiceKey);

impl Query for LabelsByAddress {
    type Output = BTreeMap<Arc<str>, Labels>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out: Self::Output = BTreeMap::new();
        let Some(endpoints) = cx.endpoints_of(&self.0) else { return out };
        let services = cx.services_of(&self.0);
        let by_address: BTreeSet<Provider> = services
            .iter()
            .flat_map(|services| services.iter())
            .filter(|service| service.inbound == InboundBy::Address)
            .map(|service| service.provider)
            .collect();
        let shards = endpoints.shards.iter().filter(|(shard, _)| by_address.contains(&shard.provider));
        for endpoint in shards.flat_map(|(_, shard)| shard.iter()) {
            for address in endpoint.addresses.iter() {
                out.entry(address.clone()).or_insert_with(|| endpoint.attributes.labels.clone());
            }
        }
        out
    }
}

/// The labels of a proxy's workload: what the registries know, else those of the node. Labels of the node's
/// `STATIC_LABELS` are kept where the registries do not have them.
#[must_use]
pub(crate) fn labels_of(cx: &Cx<'_>, proxy: &Proxy) -> Labels {
    let registered = cx.get(&RegisteredLabels(Identity::of(proxy)));
    let Some(registered) = &*registered else { return proxy.labels.clone() };
    if proxy.static_labels.is_empty() {
        return registered.clone();
    }
    let registered = registered.iter().map(|(key, value)| (key.clone(), value.clone()));
    Arc::new(proxy.static_labels.with(registered))
}
