//! Aliases: services of type ExternalName, whose names lead to another service.

use crate::engine::{Cx, Query};
use pilotfish_model::{Hostname, Namespace, Resolution, Service};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The names that lead to each service, for services that have any: the aliases of a service, and theirs. In order of
/// namespace and host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Aliases;

impl Query for Aliases {
    type Output = BTreeMap<Hostname, Arc<[Hostname]>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut target: BTreeMap<Hostname, (Namespace, Hostname)> = BTreeMap::new();
        for service in cx.services().flat_map(|(_, services)| services.iter()) {
            if let Some(to) = external_name(service) {
                target.entry(service.hostname.clone()).or_insert((service.namespace.clone(), to));
            }
        }
        let mut found: BTreeMap<Hostname, Vec<(Namespace, Hostname)>> = BTreeMap::new();
        for (host, (namespace, _)) in &target {
            if let Some(concrete) = follow(host, &target) {
                found.entry(concrete).or_default().push((namespace.clone(), host.clone()));
            }
        }
        let sorted = found.into_iter().map(|(concrete, mut list)| {
            list.sort();
            (concrete, list.into_iter().map(|(_, host)| host).collect())
        });
        sorted.collect()
    }
}

fn external_name(service: &Service) -> Option<Hostname> {
    if service.resolution != Resolution::Alias {
        return None;
    }
    Hostname::parse(service.kubernetes.as_ref()?.external_name.as_deref()?).ok()
}

/// Where a chain of aliases ends; `None` when it is a loop.
fn follow(host: &Hostname, target: &BTreeMap<Hostname, (Namespace, Hostname)>) -> Option<Hostname> {
    let mut seen = BTreeSet::new();
    let mut at = host;
    while let Some((_, next)) = target.get(at) {
        if !seen.insert(at) {
            return None;
        }
        at = next;
    }
    Some(at.clone())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AliasesOf(Hostname);

impl Query for AliasesOf {
    type Output = Arc<[Hostname]>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&Aliases).get(&self.0).cloned().unwrap_or_default()
    }
}

/// The names that lead to the service of a host.
#[must_use]
pub(crate) fn names(cx: &Cx<'_>, host: &Hostname) -> Arc<[Hostname]> {
    Arc::clone(&cx.get(&AliasesOf(host.clone())))
}
