//! Destinations: the cluster that a route leads to.

use crate::envoy::outbound_name;
use pilotfish_config::networking::Destination;
use pilotfish_model::Service;
use std::sync::Arc;

/// The cluster of a destination, whether or not it exists. Without a port, a service with one port decides (`service` is
/// what the caller knows of the host), else the port that is listened on. A host that is an alias leads to the service behind it.
///
/// `written` gives the host as its service was written, which is what the cluster is called by.
#[must_use]
pub(crate) fn destination_cluster(
    to: &Destination,
    service: Option<&Service>,
    listener_port: u32,
    written: impl FnOnce(&str) -> Arc<str>,
) -> String {
    if to.host.is_empty() {
        return "UnknownService".to_owned();
    }
    let alias = service.and_then(|service| service.kubernetes.as_ref()?.external_name.as_deref());
    let port = match (&to.port, service.map(|service| &*service.ports)) {
        (Some(port), _) => port.number,
        (None, Some([port])) => port.number,
        (None, _) => listener_port,
    };
    outbound_name(port, &to.subset, &written(alias.unwrap_or(&to.host)))
}
