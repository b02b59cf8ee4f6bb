//! Namespaces, and who sees whose services.

use super::{ProxyCounts, is_healthy, sidecar_of};
use pilotfish_api::v1::{NamespaceLink, NamespaceMap, NamespaceRow};
use pilotfish_model::{ExportTo, Namespace, World};
use pilotfish_translate::Translator;
use std::collections::BTreeMap;

const NAMESPACES: usize = 1_000;
/// Namespaces whose scopes are looked at: each is a list of all services that it sees.
const SCOPES: usize = 200;
const LINKS: usize = 2_000;

/// The namespaces of a world. Who sees everything that is shown to everybody has links only to what is shown to it by name.
#[must_use]
pub fn namespaces(translator: &Translator, proxies: &ProxyCounts) -> NamespaceMap {
    let world = translator.snapshot().world().clone();
    let mut rows = rows(&world, proxies);
    let mut map = NamespaceMap { truncated: rows.len() > NAMESPACES, ..NamespaceMap::default() };
    // Without workloads that are known, each may have some.
    let known = rows.values().any(|row| row.workloads > 0 || row.proxies > 0);
    let callers = rows.iter_mut().filter(|(_, row)| !known || row.workloads > 0 || row.proxies > 0);
    for (looked_at, (namespace, row)) in callers.enumerate() {
        if looked_at >= SCOPES {
            map.truncated = true;
            break;
        }
        look(translator, namespace, row, &mut map.links);
    }
    map.truncated |= map.links.len() > LINKS;
    map.links.truncate(LINKS);
    map.namespaces = rows.into_values().take(NAMESPACES).collect();
    map
}

fn rows(world: &World, proxies: &ProxyCounts) -> BTreeMap<Namespace, NamespaceRow> {
    let mut rows: BTreeMap<Namespace, NamespaceRow> = BTreeMap::new();
    for (key, services) in world.services() {
        let row = rows.entry(key.namespace.clone()).or_default();
        let (mut endpoints, mut healthy) = (0, 0);
        for endpoint in world.endpoints_of(key).into_iter().flat_map(|all| all.iter()) {
            endpoints += 1;
            healthy += usize::from(is_healthy(endpoint));
        }
        row.endpoints += endpoints;
        row.services += services.len();
        let count = match (endpoints, healthy) {
            (0, _) => &mut row.empty,
            (_, 0) => &mut row.unhealthy,
            (all, healthy) if healthy < all => &mut row.degraded,
            _ => &mut row.healthy,
        };
        *count += services.len();
    }
    for workload in world.workloads() {
        rows.entry(workload.key.namespace.clone()).or_default().workloads += 1;
    }
    for (namespace, count) in proxies {
        rows.entry(namespace.as_str().into()).or_default().proxies = *count;
    }
    for (namespace, row) in &mut rows {
        row.name = namespace.to_string();
    }
    rows
}

fn look(
    translator: &Translator,
    namespace: &Namespace,
    row: &mut NamespaceRow,
    links: &mut Vec<NamespaceLink>,
) {
    let Some(proxy) = sidecar_of(namespace) else { return };
    let seen = translator.snapshot().services_seen(&proxy);
    row.sidecar = seen.sidecar.as_ref().map(ToString::to_string);
    row.sees_all = seen.sidecar.is_none();
    let mut to: BTreeMap<&Namespace, usize> = BTreeMap::new();
    let mut sees = 0;
    for service in seen.services.iter().filter(|service| service.namespace != *namespace) {
        sees += 1;
        if !row.sees_all || matches!(service.export_to, ExportTo::Namespaces(_)) {
            *to.entry(&service.namespace).or_default() += 1;
        }
    }
    row.sees = Some(sees);
    let link = |(to, services): (&Namespace, usize)| NamespaceLink {
        from: namespace.to_string(),
        to: to.to_string(),
        services,
    };
    links.extend(to.into_iter().map(link));
}
