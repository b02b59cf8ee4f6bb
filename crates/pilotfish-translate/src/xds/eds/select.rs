//! Which endpoints of a service are sent to a proxy.

use super::client_locality::ClientLocality;
use super::service_rule::ServiceRule;
use pilotfish_model::{Endpoint, HealthStatus, label_subset};
use std::net::IpAddr;

/// An endpoint label: the workload drains, whatever its state is otherwise.
const DRAINING: &str = "istio.io/draining";

/// Whether the endpoint is of a form that a load assignment can hold: an IP, a Unix socket (port 0), or no address at all when only a
/// gateway reaches it.
pub(super) fn is_sendable(endpoint: &Endpoint) -> bool {
    let address = endpoint.address();
    address.is_empty() || endpoint.port == 0 || address.parse::<IpAddr>().is_ok()
}

/// Whether an endpoint is draining.
pub(super) fn is_draining(endpoint: &Endpoint) -> bool {
    matches!(endpoint.health, HealthStatus::Draining | HealthStatus::Deregistering)
        || endpoint.attributes.labels.get(DRAINING).is_some_and(|value| !value.is_empty())
}

/// Whether a proxy gets an endpoint. `networks`: whether there are gateways between networks.
pub(super) fn is_wanted(
    endpoint: &Endpoint,
    rule: &ServiceRule,
    client_locality: &ClientLocality,
    networks: bool,
) -> bool {
    let same_cluster = endpoint.attributes.cluster == client_locality.cluster;
    let by_place = (!rule.node_local || (same_cluster && endpoint.attributes.node == client_locality.node))
        && (!rule.cluster_local || same_cluster)
        && is_visible(endpoint, client_locality);
    let by_health = match endpoint.health {
        HealthStatus::Terminating => false,
        HealthStatus::Unhealthy => rule.unready,
        HealthStatus::Healthy
        | HealthStatus::Draining
        | HealthStatus::Deregistering
        | HealthStatus::Unknown => true,
    };
    let sends_draining = rule.draining || endpoint.health == HealthStatus::Deregistering;
    by_place
        && by_health
        && (sends_draining || !is_draining(endpoint))
        && (networks || !endpoint.address().is_empty())
        && label_subset(&rule.subset, &endpoint.attributes.labels)
}

/// Whether the endpoint's network is among those of the proxy's network view.
fn is_visible(endpoint: &Endpoint, client_locality: &ClientLocality) -> bool {
    client_locality.network_view.is_empty()
        || endpoint.attributes.network.is_empty()
        || client_locality.network_view.contains(&endpoint.attributes.network)
}
