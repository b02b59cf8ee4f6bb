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

/// Why a proxy does not get an endpoint of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unsent {
    /// Its cluster keeps its endpoints to its own clients.
    Confined,
    /// It belongs to a ServiceEntry that is not exported to the proxy's namespace.
    NotExported,
    /// It belongs to another port of the service.
    OtherPort,
    /// Its address is a host name, which a load assignment cannot hold.
    HostName,
    /// The service is for clients of the same node.
    OtherNode,
    /// The service is for clients of the same cluster.
    OtherCluster,
    /// Its network is not one that the proxy may see (`ISTIO_META_REQUESTED_NETWORK_VIEW`).
    UnseenNetwork,
    /// It is being deleted.
    Terminating,
    /// It is not ready.
    Unready,
    /// It drains.
    Draining,
    /// It has no address, and no network has a gateway.
    NoAddress,
    /// It has not the labels of the subset.
    NotInSubset,
    /// It is in a network with gateways, which it is reached through by mutual TLS only, and it has none.
    GatewayNeedsMtls,
    /// It is in another network, and no gateway to it has an address that the proxy can use.
    NoGateway,
}

/// Whether a proxy gets an endpoint. `networks`: whether there are gateways between networks.
pub(super) fn is_wanted(
    endpoint: &Endpoint,
    rule: &ServiceRule,
    client_locality: &ClientLocality,
    networks: bool,
) -> bool {
    unsent(endpoint, rule, client_locality, networks).is_none()
}

/// Why a proxy does not get an endpoint, as far as that is decided endpoint by endpoint; `None` when it does.
pub(super) fn unsent(
    endpoint: &Endpoint,
    rule: &ServiceRule,
    client_locality: &ClientLocality,
    networks: bool,
) -> Option<Unsent> {
    let same_cluster = endpoint.attributes.cluster == client_locality.cluster;
    if rule.node_local && !(same_cluster && endpoint.attributes.node == client_locality.node) {
        return Some(Unsent::OtherNode);
    }
    if rule.cluster_local && !same_cluster {
        return Some(Unsent::OtherCluster);
    }
    if !is_visible(endpoint, client_locality) {
        return Some(Unsent::UnseenNetwork);
    }
    match endpoint.health {
        HealthStatus::Terminating => return Some(Unsent::Terminating),
        HealthStatus::Unhealthy if !rule.unready => return Some(Unsent::Unready),
        _ => {}
    }
    let sends_draining = rule.draining || endpoint.health == HealthStatus::Deregistering;
    if !sends_draining && is_draining(endpoint) {
        return Some(Unsent::Draining);
    }
    if !networks && endpoint.address().is_empty() {
        return Some(Unsent::NoAddress);
    }
    (!label_subset(&rule.subset, &endpoint.attributes.labels)).then_some(Unsent::NotInSubset)
}

/// Whether the endpoint's network is among those of the proxy's network view.
fn is_visible(endpoint: &Endpoint, client_locality: &ClientLocality) -> bool {
    client_locality.network_view.is_empty()
        || endpoint.attributes.network.is_empty()
        || client_locality.network_view.contains(&endpoint.attributes.network)
}
