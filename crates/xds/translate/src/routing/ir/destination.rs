//! Destinations of routes, and their clusters.

use crate::envoy::outbound_name;
use pilotfish_config::networking::Destination;
use pilotfish_model::Service;
use std::sync::Arc;

/// Returns the cluster name of a destination, whether or not the cluster exists. `host` is the destination's
/// host, or the one that an alias leads to. Without a port, a service with a single port decides (`service`
/// is the caller's view of the host), or else the listening port.
///
/// `written` returns the host in the spelling of its service, which is part of the cluster name.
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

/// Returns the port of a destination: its own, or the only one of its service, or else the listening port.
#[must_use]
pub(crate) fn destination_port(to: &Destination, service: Option<&Service>, listener_port: u32) -> u32 {
    let only = || service?.only_tcp_port().map(|port| port.number);
    to.port.as_ref().map(|port| port.number).or_else(only).unwrap_or(listener_port)
}
