//! Destinations: the cluster that a route leads to.

use crate::envoy::outbound_name;
use pilotfish_config::networking::Destination;
use pilotfish_model::Service;
use std::sync::Arc;

/// The cluster of a destination, whether or not it exists. `host` is the destination's, or the one behind it
/// where that is an alias. Without a port, a service with one port decides (`service` is what the caller
/// knows of the host), else the port that is listened on.
///
/// `written` gives the host as its service was written, which is what the cluster is called by.
#[must_use]
pub(crate) fn destination_cluster(
    to: &Destination,
    (host, service): (&str, Option<&Service>),
    listener_port: u32,
    written: impl FnOnce(&str) -> Arc<str>,
) -> String {
    if to.host.is_empty() {
        return "UnknownService".to_owned();
    }
    outbound_name(destination_port(to, service, listener_port), &to.subset, &written(host))
}

/// The port that a destination leads to: its own, else the only one of the service behind it, else the one that is listened on.
#[must_use]
pub(crate) fn destination_port(to: &Destination, service: Option<&Service>, listener_port: u32) -> u32 {
    let only = || service?.only_tcp_port().map(|port| port.number);
    to.port.as_ref().map(|port| port.number).or_else(only).unwrap_or(listener_port)
}
