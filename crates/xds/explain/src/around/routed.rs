//! Routes between services.

use super::count;
use pilotfish_api::v1::{NamespaceLink, RoutedService, ServiceMap, ServiceRoute};
use pilotfish_model::{Hostname, Namespace, ServiceKey, World};
use pilotfish_translate::{HostRoutes, Snapshot, Translator};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of routes in the map of one namespace.
const ROUTES: usize = 500;
/// Maximum number of routes that are read.
const LOOKED_AT: usize = 20_000;

/// Source of a route: a service, or a host without one, such as that of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Service(ServiceKey),
    Host(Hostname, Namespace),
}

impl Source {
    fn namespace(&self) -> &Namespace {
        match self {
            Self::Service(key) => &key.namespace,
            Self::Host(_, namespace) => namespace,
        }
    }
}

/// Adds to links the number of services of other namespaces that the routes of a namespace lead to: routes
/// for hosts of its services, and routes of its objects for other hosts. Returns false if only some of the
/// routes were read.
pub(super) fn add_routed(
    translator: &Translator,
    world: &World,
    links: &mut Vec<NamespaceLink>,
    most: usize,
) -> bool {
    let routes = translator.snapshot().all_routes();
    let mut to: BTreeMap<(Namespace, Namespace), BTreeSet<ServiceKey>> = BTreeMap::new();
    for routes in routes.iter().take(LOOKED_AT) {
        for (from, key, _) in pairs(world, routes) {
            if *from.namespace() != key.namespace {
                to.entry((from.namespace().clone(), key.namespace.clone())).or_default().insert(key);
            }
        }
    }
    let mut is_all = routes.len() <= LOOKED_AT;
    for ((from, to), services) in to {
        let count = links.len();
        let is_it = |link: &NamespaceLink| link.from == from.as_str() && link.to == to.as_str();
        match links.iter().position(is_it).and_then(|at| links.get_mut(at)) {
            Some(link) => link.routed = services.len(),
            None if count < most => links.push(NamespaceLink {
                from: from.to_string(),
                to: to.to_string(),
                services: 0,
                routed: services.len(),
            }),
            None => is_all = false,
        }
    }
    is_all
}

/// Map of the routes from and to services of a namespace.
#[must_use]
pub fn service_map(translator: &Translator, namespace: &str) -> ServiceMap {
    let snapshot = translator.snapshot();
    let (world, routes) = (snapshot.world().clone(), snapshot.all_routes());
    drop(snapshot);
    // A new snapshot for each row, so that publications do not wait for all of them.
    let row = |client: &Namespace, key: &ServiceKey, subset: &str| {
        service(&translator.snapshot(), client, key, subset)
    };
    let mut map = ServiceMap { namespace: namespace.to_owned(), ..ServiceMap::default() };
    map.truncated = routes.len() > LOOKED_AT;
    for routes in routes.iter().take(LOOKED_AT) {
        for (from, to, subset) in pairs(&world, routes) {
            let is_of = |of: &Namespace| of.as_str() == namespace;
            if !is_of(from.namespace()) && !is_of(&to.namespace) {
                continue;
            }
            if map.routes.len() >= ROUTES {
                map.truncated = true;
                return map;
            }
            map.routes.push(ServiceRoute {
                from: match &from {
                    Source::Service(key) => row(&key.namespace, key, ""),
                    Source::Host(host, of) => RoutedService {
                        host: host.to_string(),
                        namespace: of.to_string(),
                        ..RoutedService::default()
                    },
                },
                is_service: matches!(from, Source::Service(_)),
                to: row(&routes.namespace, &to, ""),
                to_subset: (!subset.is_empty()).then(|| row(&routes.namespace, &to, &subset)),
                subset,
                gateways: routes
                    .gateways
                    .iter()
                    .map(ToString::to_string)
                    .filter(|one| one != "mesh")
                    .collect(),
                made_by: routes.objects.iter().map(ToString::to_string).collect(),
            });
        }
    }
    map
}

/// Sources and destinations of routes, with subsets. Leaves out routes of a service to itself.
fn pairs(world: &World, routes: &HostRoutes) -> BTreeSet<(Source, ServiceKey, String)> {
    let key = |host: &Hostname| world.services_of_host(host).next().map(|(key, _)| key.clone());
    let mut found = BTreeSet::new();
    for (to, subset) in &routes.destinations {
        let Some(to) = Hostname::parse(to).ok().as_ref().and_then(key) else { continue };
        for host in &routes.hosts {
            let from = match key(host) {
                Some(from) if from == to && subset.is_empty() => continue,
                Some(from) => Source::Service(from),
                None => Source::Host(host.clone(), routes.namespace.clone()),
            };
            found.insert((from, to.clone(), subset.clone()));
        }
    }
    found
}

/// A service with the number of endpoints that clients of a namespace reach in it, or in a subset of it.
fn service(snapshot: &Snapshot<'_>, client: &Namespace, key: &ServiceKey, subset: &str) -> RoutedService {
    let counts = count(snapshot, client, key, subset);
    RoutedService {
        host: key.hostname.to_string(),
        namespace: key.namespace.to_string(),
        endpoints: counts.endpoints,
        healthy: counts.healthy,
    }
}
