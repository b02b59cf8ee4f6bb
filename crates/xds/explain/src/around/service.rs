//! Neighbourhood of one service.

use super::{ProxyCounts, count, is_healthy, sidecar_of};
use crate::why::unseen;
use pilotfish_api::v1::{Caller, Destination, Dropped, LocalityRow, RouteRow, ServiceDetail, ServiceRow};
use pilotfish_model::{Hostname, Labels, Namespace, Service, ServiceKey, World};
use pilotfish_translate::{HostRoutes, Snapshot, Translator, Unseen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of namespaces that are checked.
const CALLERS: usize = 500;
const ROUTES: usize = 200;
const IDENTITIES: usize = 100;
const DESTINATIONS: usize = 50;
/// Maximum number of label sets whose policies are looked up: the workloads of a service mostly have one for
/// each version.
const LABELS: usize = 20;

/// Neighbourhood of a service. `row` is its row in lists.
#[must_use]
pub fn service(
    translator: &Translator,
    key: &ServiceKey,
    row: ServiceRow,
    proxies: &ProxyCounts,
) -> ServiceDetail {
    let world = translator.snapshot().world().clone();
    let mut detail = ServiceDetail { service: row, ..ServiceDetail::default() };
    if let Some(service) = world.services_of(key).and_then(|list| list.first()) {
        detail.labels = (&*service.labels).into();
        detail.selector = (&*service.selector).into();
    }
    let labels = endpoints(&world, key, &mut detail);
    detail.callers = callers(translator, &world, key, proxies);
    let snapshot = translator.snapshot();
    let routes = snapshot.routes_of(&key.hostname);
    detail.routes =
        routes.iter().take(ROUTES).map(|routes| route(&snapshot, &key.hostname, routes)).collect();
    let client = snapshot.client_policies_of(&key.namespace, key);
    detail.client_policies = client.iter().map(ToString::to_string).collect();
    let mut policies: Vec<String> = Vec::new();
    for (namespace, labels) in labels {
        for policy in snapshot.policies_on(&namespace, &labels).iter().map(ToString::to_string) {
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
    }
    detail.workload_policies = policies;
    detail.others = others(&snapshot, key);
    detail
}

/// Fills in the localities and identities; returns the label sets of the workloads.
fn endpoints(world: &World, key: &ServiceKey, detail: &mut ServiceDetail) -> BTreeSet<(Namespace, Labels)> {
    let mut labels = BTreeSet::new();
    let Some(endpoints) = world.endpoints_of(key) else { return labels };
    detail.identities = endpoints.identities.iter().take(IDENTITIES).map(ToString::to_string).collect();
    let mut localities: BTreeMap<String, LocalityRow> = BTreeMap::new();
    for endpoint in endpoints.iter() {
        let locality = endpoint.attributes.locality.to_string();
        let new = || LocalityRow { locality: locality.clone(), ..LocalityRow::default() };
        let row = localities.entry(locality.clone()).or_insert_with(new);
        row.endpoints += 1;
        row.healthy += usize::from(is_healthy(endpoint));
        if labels.len() < LABELS {
            let namespace = &endpoint.attributes.namespace;
            let namespace = if namespace.is_empty() { &key.namespace } else { namespace };
            labels.insert((namespace.clone(), endpoint.attributes.labels.clone()));
        }
    }
    detail.localities = localities.into_values().collect();
    labels
}

fn callers(translator: &Translator, world: &World, key: &ServiceKey, proxies: &ProxyCounts) -> Vec<Caller> {
    let mut workloads: BTreeMap<Namespace, usize> = BTreeMap::new();
    for workload in world.workloads() {
        *workloads.entry(workload.key.namespace.clone()).or_default() += 1;
    }
    for namespace in proxies.keys() {
        workloads.entry(namespace.as_str().into()).or_default();
    }
    // Beyond the limit, namespaces without callers are left out.
    for (key, _) in world.services() {
        if workloads.len() >= CALLERS {
            break;
        }
        workloads.entry(key.namespace.clone()).or_default();
    }
    let caller = |(namespace, workloads): (Namespace, usize)| {
        let proxy = sidecar_of(&namespace)?;
        // A new snapshot for each query, so that publications do not wait for all of them.
        let seen = translator.snapshot().host_seen(&proxy, &key.hostname);
        let is_this = |other: &Service| other.namespace == key.namespace;
        let sees = seen.service.as_ref().is_some_and(|service| is_this(service));
        let why = seen.others.iter().find(|(other, _)| is_this(other) && !sees);
        Some(Caller {
            workloads,
            proxies: proxies.get(namespace.as_str()).copied().unwrap_or(0),
            sees,
            why: why.map(|(other, why)| unseen(&namespace, other, why, &seen)).unwrap_or_default(),
            sidecar: seen.sidecar.as_ref().map(ToString::to_string),
            namespace: namespace.to_string(),
        })
    };
    workloads.into_iter().take(CALLERS).filter_map(caller).collect()
}

fn route(snapshot: &Snapshot<'_>, host: &Hostname, routes: &HostRoutes) -> RouteRow {
    let destination = |(to, subset): &(String, String)| {
        let host = Hostname::parse(to).ok();
        let key =
            host.and_then(|to| snapshot.world().services_of_host(&to).next().map(|(key, _)| key.clone()));
        let counts =
            key.as_ref().map(|key| count(snapshot, &routes.namespace, key, subset)).unwrap_or_default();
        Destination {
            host: to.clone(),
            namespace: key.as_ref().map(|key| key.namespace.to_string()).unwrap_or_default(),
            subset: subset.clone(),
            endpoints: counts.endpoints,
            healthy: counts.healthy,
        }
    };
    RouteRow {
        made_by: routes.objects.iter().map(ToString::to_string).collect(),
        own: routes.hosts.iter().any(|own| own.matches(host)),
        hosts: routes.hosts.iter().take(DESTINATIONS).map(ToString::to_string).collect(),
        gateways: routes.gateways.iter().map(ToString::to_string).collect(),
        destinations: routes.destinations.iter().take(DESTINATIONS).map(destination).collect(),
    }
}

fn others(snapshot: &Snapshot<'_>, key: &ServiceKey) -> Vec<Dropped> {
    let Some(proxy) = sidecar_of(&key.namespace) else { return Vec::new() };
    let seen = snapshot.host_seen(&proxy, &key.hostname);
    let other = |(other, why): &(Arc<Service>, Unseen)| Dropped {
        what: other.provenance.to_string(),
        why: unseen(&key.namespace, other, why, &seen),
    };
    seen.others.iter().take(ROUTES).map(other).collect()
}
