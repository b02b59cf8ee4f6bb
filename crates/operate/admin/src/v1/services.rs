//! Services and endpoints: lists, one service with its neighbourhood, and visibility between namespaces.

use super::{ListQuery, Operations, answer};
use crate::routes::{ControlPlane, Shared};
use crate::views;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use pilotfish_api::v1::{EndpointRow, Failure, FailureKind, Page, ServicePort, ServiceRow};
use pilotfish_model::{Endpoint, HealthStatus, Hostname, Service, ServiceKey, ShardKey, World};
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A service of a list, before its row is built.
struct Listed<'a> {
    key: &'a ServiceKey,
    service: &'a Arc<Service>,
    endpoints: usize,
    healthy: usize,
}

impl Listed<'_> {
    fn health(&self) -> Health {
        match (self.endpoints, self.healthy) {
            (0, _) => Health::Empty,
            (_, 0) => Health::Unhealthy,
            (all, healthy) if healthy < all => Health::Degraded,
            _ => Health::Healthy,
        }
    }
}

/// Health of a service by its endpoints, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Unhealthy,
    Degraded,
    Empty,
    Healthy,
}

impl Health {
    fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::Degraded => "degraded",
            Self::Empty => "empty",
            Self::Healthy => "healthy",
        }
    }
}

pub(super) async fn services<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<ListQuery>,
) -> Response {
    let world = admin.plane.world();
    let all = world.services().flat_map(|(key, services)| services.iter().map(move |service| (key, service)));
    let mut list: Vec<Listed<'_>> = all
        .filter(|(key, service)| {
            query.has_host(key.hostname.as_str())
                && query.has_namespace(key.namespace.as_str())
                && query.has_registry(&service.provider.to_string())
        })
        .map(|(key, service)| listed(&world, key, service))
        .collect();
    list.retain(|one| {
        (!query.without_endpoints || one.healthy == 0)
            && query.health.as_deref().is_none_or(|health| one.health().as_str() == health)
    });
    if list.is_empty()
        && let Some(unknown) = unknown_filter(&world, &query)
    {
        return answer::<()>(Err(unknown));
    }
    match query.sort.as_deref() {
        Some("health") => list.sort_by_key(Listed::health),
        Some("namespace") => list.sort_by(|a, b| a.key.namespace.cmp(&b.key.namespace)),
        Some("endpoints") => list.sort_by_key(|one| Reverse(one.endpoints)),
        _ => {}
    }
    let Page { items, total, next, replica } = query.page(list);
    let items: Vec<ServiceRow> = items.iter().map(service_row).collect();
    Json(Page { items, total, next, replica }).into_response()
}

fn listed<'a>(world: &World, key: &'a ServiceKey, service: &'a Arc<Service>) -> Listed<'a> {
    let (mut endpoints, mut healthy) = (0, 0);
    for endpoint in world.endpoints_of(key).into_iter().flat_map(|all| all.iter()) {
        endpoints += 1;
        healthy += usize::from(matches!(endpoint.health, HealthStatus::Healthy | HealthStatus::Unknown));
    }
    Listed { key, service, endpoints, healthy }
}

#[derive(Deserialize)]
pub(super) struct ServiceQuery {
    host: String,
    namespace: Option<String>,
}

pub(super) async fn service<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<ServiceQuery>,
) -> Response {
    let world = admin.plane.world();
    let host = Hostname::parse(&query.host).ok();
    let is_meant = |service: &&Arc<Service>| {
        query.namespace.as_deref().is_none_or(|wanted| service.namespace == *wanted)
    };
    let found: Vec<&Arc<Service>> = host
        .iter()
        .flat_map(|host| world.services_of_host(host))
        .flat_map(|(_, services)| services.iter())
        .filter(is_meant)
        .collect();
    let service = match found.as_slice() {
        [] => return answer::<()>(Err(unknown_host(&world, Some(&query.host)))),
        [first, rest @ ..] if rest.iter().all(|other| other.namespace == first.namespace) => *first,
        several => {
            let error = format!("{} namespaces have a service {}", several.len(), query.host);
            let failure = Failure::new(FailureKind::Ambiguous, error);
            let namespaces = several.iter().map(|service| service.namespace.to_string());
            return answer::<()>(Err(failure.names(namespaces)));
        }
    };
    let key = service.key();
    let row = service_row(&listed(&world, &key, service));
    Json(admin.plane.service_detail(&key, row)).into_response()
}

pub(super) async fn map<C: ControlPlane + Operations>(State(admin): Shared<C>) -> Response {
    Json(admin.plane.namespace_map()).into_response()
}

pub(super) async fn map_of<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Path(namespace): Path<String>,
) -> Response {
    Json(admin.plane.service_map(&namespace)).into_response()
}

pub(super) async fn endpoints<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<ListQuery>,
) -> Response {
    let world = admin.plane.world();
    let is_meant = |key: &ServiceKey| match (&query.host, query.exact) {
        (Some(host), true) => key.hostname.as_str() == host,
        _ => query.has_host(key.hostname.as_str()),
    };
    let has_health = |endpoint: &Endpoint| {
        query
            .health
            .as_deref()
            .is_none_or(|health| self::health(endpoint.health).eq_ignore_ascii_case(health))
    };
    let mut list = Vec::new();
    for (key, endpoints) in world.endpoints() {
        if !is_meant(key) || !query.has_namespace(key.namespace.as_str()) {
            continue;
        }
        for (shard, all) in &endpoints.shards {
            if query.has_registry(&shard.to_string()) {
                let all = all.iter().filter(|endpoint| has_health(endpoint));
                list.extend(all.map(|endpoint| (key, shard, endpoint)));
            }
        }
    }
    if list.is_empty()
        && let Some(unknown) = unknown_filter(&world, &query)
    {
        return answer::<()>(Err(unknown));
    }
    let Page { items, total, next, replica } = query.page(list);
    let items: Vec<EndpointRow> =
        items.into_iter().map(|(key, shard, endpoint)| endpoint_row(key, shard, endpoint)).collect();
    Json(Page { items, total, next, replica }).into_response()
}

/// A host of the world that contains `wanted`; `Some` without a filter.
fn known_host<'a>(world: &'a World, wanted: Option<&'a str>) -> Option<&'a str> {
    let Some(wanted) = wanted else { return Some("") };
    world.services().map(|(key, _)| key.hostname.as_str()).find(|host| host.contains(wanted))
}

/// Failure for a list that is empty because its host or namespace filter matches nothing in the world.
fn unknown_filter(world: &World, query: &ListQuery) -> Option<Failure> {
    if known_host(world, query.host.as_deref()).is_none() {
        return Some(unknown_host(world, query.host.as_deref()));
    }
    let namespace = query.namespace.as_deref().filter(|namespace| !namespace.is_empty())?;
    if world.has_namespace(&namespace.into()) {
        return None;
    }
    let known: BTreeSet<&str> = world.services().map(|(key, _)| key.namespace.as_str()).collect();
    Some(Failure::unknown("namespace", namespace, known))
}

fn unknown_host(world: &World, wanted: Option<&str>) -> Failure {
    let hosts = world.services().map(|(key, _)| key.hostname.as_str());
    Failure::unknown("host", wanted.unwrap_or_default(), hosts)
}

fn service_row(listed: &Listed<'_>) -> ServiceRow {
    let view = views::service(listed.service);
    let port = |port: &pilotfish_model::Port| ServicePort {
        name: port.name.to_string(),
        number: port.number,
        protocol: port.protocol.istio_name().to_owned(),
    };
    let mut addresses: Vec<String> = view.cluster_vips.into_values().flatten().collect();
    if addresses.is_empty() {
        addresses.push(view.default_address);
    }
    ServiceRow {
        host: view.hostname,
        namespace: view.attributes.namespace,
        registry: view.attributes.service_registry,
        ports: listed.service.ports.iter().map(port).collect(),
        resolution: listed.service.resolution.istio_name().to_owned(),
        addresses,
        export_to: view.attributes.export_to,
        endpoints: listed.endpoints,
        healthy: listed.healthy,
        provenance: view.provenance,
    }
}

/// Health of an endpoint. Both draining states are equal to clients.
fn health(status: HealthStatus) -> &'static str {
    match status {
        HealthStatus::Deregistering => HealthStatus::Draining.as_str(),
        other => other.as_str(),
    }
}

fn endpoint_row(key: &ServiceKey, shard: &ShardKey, endpoint: &Endpoint) -> EndpointRow {
    let view = views::endpoint(endpoint);
    EndpointRow {
        host: key.hostname.to_string(),
        namespace: key.namespace.to_string(),
        address: view.addresses.into_iter().next().unwrap_or_default(),
        port: view.endpoint_port,
        port_name: view.service_port_name,
        health: health(endpoint.health).to_owned(),
        locality: view.locality,
        network: view.network,
        weight: view.lb_weight,
        tls: view.tls_mode,
        registry: shard.to_string(),
        workload: view.workload_name,
        provenance: view.provenance,
    }
}
