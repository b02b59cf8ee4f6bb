//! What a proxy may get more of because of services that it sees, and nothing else.

use super::Footprint;
use pilotfish_compare::{Comparison, Difference};
use serde_json::Value;

/// What differs between what a proxy gets alone and with others beside it, beyond:
///
/// - clusters and endpoints of the others' hosts;
/// - listeners at the others' addresses, and at the ports of their services on all addresses: there services
///   share a listener;
/// - route configurations of new listeners, and virtual hosts of the others' hosts in those that are there.
pub(crate) fn beyond_what_is_seen(alone: &Value, mixed: &Value, others: &[&Footprint]) -> Vec<Difference> {
    let found = Comparison::of(alone, mixed).differences;
    found.into_iter().filter(|difference| !others.iter().any(|other| is_seen(difference, other))).collect()
}

fn is_seen(difference: &Difference, other: &Footprint) -> bool {
    // Names of clusters have the capitals of a ServiceEntry, the footprint has small letters.
    let of_host = |name: &str| {
        let name = name.to_ascii_lowercase();
        other.hosts.iter().any(|host| name.contains(host.trim_start_matches('*')))
    };
    let is_new = difference.want.is_none();
    let is_whole = difference.field.is_empty();
    match difference.kind {
        "clusters" | "endpoints" => is_new && is_whole && of_host(&difference.resource),
        "listeners" => {
            let (address, port) = difference.resource.rsplit_once('_').unwrap_or_default();
            let is_shared = port.parse::<u64>().is_ok_and(|port| other.ports.contains(&port));
            match address {
                "0.0.0.0" | "::" => is_shared,
                address => is_new && is_whole && other.addresses.contains(address),
            }
        }
        _ if is_whole => is_new && is_route_of(&difference.resource, other),
        _ => {
            let is_virtual_host =
                difference.field.starts_with("virtual_hosts[") && difference.field.ends_with(']');
            let name = difference.got.as_ref().and_then(|host| host["name"].as_str()).unwrap_or_default();
            is_new && is_virtual_host && of_host(name)
        }
    }
}

/// Routes are called by the port, or by host and port.
fn is_route_of(name: &str, other: &Footprint) -> bool {
    let port = name.rsplit(':').next().unwrap_or_default();
    port.parse::<u64>().is_ok_and(|port| other.ports.contains(&port))
}
