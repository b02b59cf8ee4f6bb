//! Merges services of several registries into one list for each host and namespace.

use pilotfish_model::{
    ClusterAddresses, KubernetesAttributes, Provider, Service, ServiceKey, ServiceVariant, ShardKey,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Policy for services of the same host and namespace from registries of several types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergePolicy {
    /// The service of the first registry in order describes the host, and endpoints of all registries are
    /// used (as in Istio).
    #[default]
    Union,
    /// Only the first registry in order provides the service, with its endpoints.
    First,
    /// As `First`, and the conflict is reported as an error until one of the registries drops the host.
    Refuse,
}

impl MergePolicy {
    /// Reads `union`, `first` or `refuse`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "union" => Self::Union,
            "first" => Self::First,
            "refuse" => Self::Refuse,
            _ => return None,
        })
    }
}

/// A service that two registries have, one of which takes precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Key of the service that both registries have.
    pub service: ServiceKey,
    /// The registry whose service is in force.
    pub winner: ShardKey,
    /// The registry whose service is ignored.
    pub loser: ShardKey,
    /// True if the loser's endpoints are in force nevertheless.
    pub endpoints_count: bool,
}

impl Conflict {
    /// Reason of the precedence, and the effect on the loser's endpoints.
    #[must_use]
    pub fn reason(&self) -> String {
        let endpoints = if self.endpoints_count { "are used, too" } else { "are not used" };
        let (first, last) = (self.winner.provider, self.loser.provider);
        format!(
            "{first} comes before {last} in the order of registries; the endpoints of {} {endpoints}",
            self.loser
        )
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, winner, loser, .. } = self;
        write!(f, "{service}: {winner} wins over {loser}: {}", self.reason())
    }
}

/// Conflicts over a service among the registries that have it, in order. Registries of one type do not
/// conflict: the Services of several clusters are one, and several ServiceEntries may define one host.
pub(super) fn conflicts<'a>(
    key: &ServiceKey,
    mut having: impl Iterator<Item = &'a ShardKey>,
    policy: MergePolicy,
) -> Vec<Conflict> {
    let Some(winner) = having.next() else { return Vec::new() };
    having
        .filter(|loser| loser.provider != winner.provider)
        .map(|loser| Conflict {
            service: key.clone(),
            winner: winner.clone(),
            loser: loser.clone(),
            endpoints_count: policy == MergePolicy::Union,
        })
        .collect()
}

/// The services of one type of registry.
#[derive(Default)]
struct OfProvider<'a> {
    /// One service in several clusters, by its addresses there.
    in_clusters: Vec<&'a Arc<Service>>,
    others: Vec<&'a Arc<Service>>,
}

/// Merges the lists of all registries, given in the order of the registries' ranks.
///
/// Services of one type of registry that have addresses by cluster are one service in several clusters, which
/// comes first among those of its type. All others stay as they are, oldest first, and by object name if the
/// age is equal.
pub(super) fn services<'a>(lists: impl Iterator<Item = &'a Arc<[Arc<Service>]>>) -> Arc<[Arc<Service>]> {
    let mut lists = lists.peekable();
    let Some(first) = lists.next() else { return Arc::from([]) };
    if lists.peek().is_none() && first.len() == 1 {
        return first.clone();
    }
    let mut by_provider: BTreeMap<Provider, OfProvider<'_>> = BTreeMap::new();
    for service in std::iter::once(first).chain(lists).flat_map(|list| list.iter()) {
        let OfProvider { in_clusters, others } = by_provider.entry(service.provider).or_default();
        if service.addresses.is_empty() { others.push(service) } else { in_clusters.push(service) }
    }
    let mut merged = Vec::new();
    for OfProvider { in_clusters, mut others } in by_provider.into_values() {
        others.sort_by_key(|service| (service.created, service.object_name.clone()));
        merged.extend(merge_clusters(&in_clusters).into_iter().chain(others.into_iter().cloned()));
    }
    merged.into()
}

/// Merges the services of one name and namespace in several clusters: the first one, with the addresses that
/// it has in the other clusters, the service accounts of all, and the differences for workloads there.
fn merge_clusters(services: &[&Arc<Service>]) -> Option<Arc<Service>> {
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
