//! Selection of the endpoints of a service that are sent to a proxy.

use super::client_locality::ClientLocality;
use super::service_rule::ServiceRule;
use pilotfish_model::{Endpoint, HealthStatus, label_subset};
use std::net::IpAddr;

/// Label of an endpoint that drains, whatever its health.
const DRAINING: &str = "istio.io/draining";

/// Returns true if a load assignment can contain the endpoint: its address is an IP, a Unix socket (port 0),
/// or empty if only a gateway reaches it.
pub(super) fn is_sendable(endpoint: &Endpoint) -> bool {
    let address = endpoint.address();
    address.is_empty() || endpoint.port == 0 || address.parse::<IpAddr>().is_ok()
}

pub(super) fn is_draining(endpoint: &Endpoint) -> bool {
    matches!(endpoint.health, HealthStatus::Draining | HealthStatus::Deregistering)
        || endpoint.attributes.labels.get(DRAINING).is_some_and(|value| !value.is_empty())
}

/// Reason for which a proxy does not receive an endpoint of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unsent {
    /// Its Service is exported to nobody.
    Hidden,
    /// Its cluster does not export it to clients of other clusters.
    Confined,
    /// It belongs to a ServiceEntry that is not exported to the proxy's namespace.
    NotExported,
    /// It belongs to another port of the service.
    OtherPort,
    /// Its address is a host name, which a load assignment cannot contain.
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
    Draining,
    /// It has no address, and no network has a gateway.
    NoAddress,
    /// Its labels do not match the subset.
    NotInSubset,
    /// It is in a network whose gateways accept mutual TLS only, and it does not use mutual TLS.
    GatewayNeedsMtls,
    /// It is in another network, whose gateways have no address that the proxy can use.
    NoGateway,
}

/// Returns true if the endpoint is sent to the proxy. `networks` is true if there are gateways between
/// networks.
pub(super) fn is_wanted(
    endpoint: &Endpoint,
    rule: &ServiceRule,
    client_locality: &ClientLocality,
    networks: bool,
) -> bool {
    unsent(endpoint, rule, client_locality, networks).is_none()
}

/// Returns the reason for not sending an endpoint, as far as the endpoint alone determines it; `None` if it
/// is sent.
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

/// Returns true if the endpoint's network is in the proxy's network view, or either of them is unset.
fn is_visible(endpoint: &Endpoint, client_locality: &ClientLocality) -> bool {
    client_locality.network_view.is_empty()
        || endpoint.attributes.network.is_empty()
        || client_locality.network_view.contains(&endpoint.attributes.network)
}
