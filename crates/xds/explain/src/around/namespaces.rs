//! Namespaces, and the visibility of their services to each other.

use super::routed::add_routed;
use super::{ProxyCounts, is_healthy, sidecar_of};
use pilotfish_api::v1::{NamespaceLink, NamespaceMap, NamespaceRow};
use pilotfish_model::{ExportTo, Namespace, ServiceKey, World};
use pilotfish_translate::Translator;
use std::collections::BTreeMap;

const NAMESPACES: usize = 1_000;
/// Maximum number of namespaces whose scopes are computed.
const SCOPES: usize = 200;
/// Maximum number of services that are visited in all of these scopes together.
const SEEN: usize = 500_000;
const LINKS: usize = 2_000;

/// Services whose `exportTo` names namespaces, by those namespaces.
type ShownByName<'a> = BTreeMap<&'a Namespace, Vec<&'a ServiceKey>>;

/// Map of the namespaces of a world. A namespace that sees all public services only has links for services
/// that are exported to it by name.
#[must_use]
pub fn namespaces(translator: &Translator, proxies: &ProxyCounts) -> NamespaceMap {
    let world = translator.snapshot().world().clone();
    let mut rows = rows(&world, proxies);
    let shown = shown_by_name(&world);
    let mut map = NamespaceMap { truncated: rows.len() > NAMESPACES, ..NamespaceMap::default() };
    // Without known workloads, any namespace may have some.
    let known = rows.values().any(|row| row.workloads > 0 || row.proxies > 0);
    let callers = rows.iter_mut().filter(|(_, row)| !known || row.workloads > 0 || row.proxies > 0);
    let mut seen = 0;
    for (looked_at, (namespace, row)) in callers.enumerate() {
        if looked_at >= SCOPES || seen >= SEEN || map.links.len() >= LINKS {
            map.truncated = true;
            break;
        }
        seen += look(translator, namespace, row, &shown, &mut map.links);
    }
    map.truncated |= !add_routed(translator, &world, &mut map.links, LINKS);
    map.namespaces = rows.into_values().take(NAMESPACES).collect();
    map
}

fn shown_by_name(world: &World) -> ShownByName<'_> {
    let mut shown = ShownByName::new();
    for (key, services) in world.services() {
        for service in services.iter() {
            if let ExportTo::Namespaces(namespaces) = &service.export_to {
                for namespace in namespaces.iter().filter(|namespace| **namespace != key.namespace) {
                    shown.entry(namespace).or_default().push(key);
                }
            }
        }
    }
    shown
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
        row.healthy_endpoints += healthy;
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

/// Adds links from a namespace to those whose services its proxies see; returns the number of visited
/// services.
fn look(
    translator: &Translator,
    namespace: &Namespace,
    row: &mut NamespaceRow,
    shown: &ShownByName<'_>,
    links: &mut Vec<NamespaceLink>,
) -> usize {
    let Some(proxy) = sidecar_of(namespace) else { return 0 };
    // A new snapshot for each query, so that publications do not wait for all of them.
    let sidecar = translator.snapshot().sidecar_of(&proxy);
    row.sees_all = sidecar.is_none();
    let mut to: BTreeMap<Namespace, usize> = BTreeMap::new();
    let mut looked_at = 0;
    if let Some(sidecar) = sidecar {
        row.sidecar = Some(sidecar.to_string());
        let seen = translator.snapshot().services_seen(&proxy);
        looked_at += seen.len();
        for service in seen.iter().filter(|service| service.namespace != *namespace) {
            *to.entry(service.namespace.clone()).or_default() += 1;
        }
        row.sees = Some(to.values().sum());
    } else {
        for key in shown.get(namespace).into_iter().flatten() {
            let seen = translator.snapshot().host_seen(&proxy, &key.hostname);
            looked_at += 1;
            if seen.service.is_some_and(|service| service.namespace == key.namespace) {
                *to.entry(key.namespace.clone()).or_default() += 1;
            }
        }
    }
    links.extend(to.into_iter().map(|(to, services)| NamespaceLink {
        from: namespace.to_string(),
        to: to.to_string(),
        services,
        routed: 0,
    }));
    looked_at
}
