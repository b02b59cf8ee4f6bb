//! How the services of several registries become the one list that the world holds for a host and namespace.

use pilotfish_model::{ClusterAddresses, KubernetesAttributes, Provider, Service, ServiceVariant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Merges the lists of all registries, given in the order of the registries' ranks.
///
/// The Kubernetes Services of all clusters become one, which comes first. All other services stay as they are, oldest
/// first, and by object name where the age is equal.
pub(super) fn services<'a>(lists: impl Iterator<Item = &'a Arc<[Arc<Service>]>>) -> Arc<[Arc<Service>]> {
    let mut lists = lists.peekable();
    let Some(first) = lists.next() else { return Arc::from([]) };
    if lists.peek().is_none() && first.len() == 1 {
        return first.clone();
    }
    let (kubernetes, mut others): (Vec<_>, Vec<_>) = std::iter::once(first)
        .chain(lists)
        .flat_map(|list| list.iter())
        .partition(|service| service.provider == Provider::Kubernetes);
    others.sort_by(|a, b| order(a).cmp(&order(b)));
    merge_kubernetes(&kubernetes).into_iter().chain(others.into_iter().cloned()).collect()
}

fn order(service: &Service) -> (i64, &str, Provider) {
    (service.created, &service.object_name, service.provider)
}

/// One service for the Services of one name and namespace in several clusters: the first one, with the addresses that
/// it has in the other clusters, the service accounts of all, and what is different for workloads there.
fn merge_kubernetes(services: &[&Arc<Service>]) -> Option<Arc<Service>> {
    let (first, rest) = services.split_first()?;
    if rest.is_empty() {
        return Some((*first).clone());
    }
    let mut merged = Service::clone(first);
    let mut accounts: Vec<Arc<str>> = Vec::new();
    for account in services.iter().flat_map(|service| service.service_accounts.iter()) {
        if !accounts.contains(account) {
            accounts.push(account.clone());
        }
    }
    merged.service_accounts = accounts.into();
    for other in rest {
        add_addresses(&mut merged.addresses, &other.addresses);
        let Some(from) = &other.kubernetes else { continue };
        let mut into = merged.kubernetes.as_deref().cloned().unwrap_or_default();
        add_attributes(&mut into, from);
        if other.ports != merged.ports || other.selector != merged.selector {
            let here = ServiceVariant { ports: other.ports.clone(), selector: other.selector.clone() };
            into.variants.extend(other.addresses.keys().map(|cluster| (cluster.clone(), here.clone())));
        }
        merged.kubernetes = Some(Arc::new(into));
    }
    Some(Arc::new(merged))
}

fn add_attributes(into: &mut KubernetesAttributes, from: &KubernetesAttributes) {
    add_addresses(&mut into.external_addresses, &from.external_addresses);
    add_missing(&mut into.node_ports, &from.node_ports);
    into.confined.extend(from.confined.iter().cloned());
    into.confined_in_clusterset.extend(from.confined_in_clusterset.iter().cloned());
}

fn add_addresses(into: &mut ClusterAddresses, from: &ClusterAddresses) {
    for (cluster, addresses) in from {
        if into.get(cluster).is_none_or(|known| known.is_empty()) {
            into.insert(cluster.clone(), addresses.clone());
        }
    }
}

fn add_missing<K: Ord + Clone, V: Clone>(into: &mut BTreeMap<K, V>, from: &BTreeMap<K, V>) {
    for (key, value) in from {
        into.entry(key.clone()).or_insert_with(|| value.clone());
    }
}
