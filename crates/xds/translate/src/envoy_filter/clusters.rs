//! Patches on clusters.

use super::merge::{Lists, merge_all, merge_any, merge_into};
use super::parse::Patch;
use super::{Patched, Patches, is_for, judge};
use crate::engine::Cx;
use crate::envoy::TrafficClass;
use pilotfish_config::networking::{ClusterMatch, PatchOperation};
use pilotfish_proto::envoy::config::cluster::v3::Cluster;
use pilotfish_proto::envoy::config::core::v3::TransportSocket;
use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
use prost_reflect::DynamicMessage;
use std::sync::Arc;

/// Patches a cluster. `hosts` are the services of an inbound cluster, whose name does not contain them.
/// `None` when a patch removes it.
#[must_use]
pub(crate) fn patch_cluster(
    cx: &Cx<'_>,
    patches: &Patches,
    context: TrafficClass,
    cluster: Cluster,
    hosts: &[&str],
    patched: &mut Patched,
) -> Option<Cluster> {
    if patches.is_empty() {
        return Some(cluster);
    }
    judge::apply(&patches.load(cx), cluster, patched, |patches, cluster, patched| {
        apply(patches, context, cluster, hosts, patched)
    })
}

/// The fields whose patches are merged each for itself.
const APART: [&str; 2] = ["name", "transport_socket"];

fn apply(
    patches: &[Arc<Patch>],
    context: TrafficClass,
    mut cluster: Cluster,
    hosts: &[&str],
    patched: &mut Patched,
) -> Option<Cluster> {
    let mut removed = false;
    // Patches that are merged together: without a transport socket, which has rules of its own, and the name,
    // by which later patches match.
    let mut plain: Vec<(&DynamicMessage, Lists)> = Vec::new();
    for patch in patches {
        let is_meant = is_for(patch.matches.context, context)
            && patch.matches.cluster.as_ref().is_none_or(|matches| is_match(matches, &cluster.name, hosts));
        match (patch.operation, Lists::of(patch.operation)) {
            (_, Some(lists)) if is_meant => match &patch.value {
                Some(value) if !APART.iter().any(|field| value.has_field_by_name(field)) => {
                    plain.push((value, lists));
                }
                _ => {
                    merge_all(&mut cluster, plain.drain(..));
                    merge(&mut cluster, patch, lists);
                }
            },
            (PatchOperation::Remove, _) if is_meant => removed = true,
            _ => continue,
        }
        patched.by(&patch.object);
    }
    merge_all(&mut cluster, plain);
    (!removed).then_some(cluster)
}

/// The clusters that patches add.
#[must_use]
pub(crate) fn added_clusters(
    cx: &Cx<'_>,
    patches: &Patches,
    context: TrafficClass,
) -> Vec<(Cluster, Patched)> {
    let patches = patches.load(cx);
    let added = patches
        .iter()
        .filter(|patch| patch.operation == PatchOperation::Add && is_for(patch.matches.context, context));
    let added = added.filter_map(|patch| {
        let mut patched = Patched::default();
        patched.by(&patch.object);
        Some((patch.value_as()?, patched))
    });
    added.collect()
}

fn is_match(matches: &ClusterMatch, name: &str, hosts: &[&str]) -> bool {
    if !matches.name.is_empty() {
        return matches.name == name;
    }
    let (subset, host, port) = parts(name).unwrap_or(("", "", 0));
    let of_service = match hosts {
        [] => matches.service.eq_ignore_ascii_case(host),
        hosts => hosts.iter().any(|host| matches.service.eq_ignore_ascii_case(host)),
    };
    (matches.subset.is_empty() || matches.subset == subset)
        && (matches.service.is_empty() || of_service)
        && (matches.port_number == 0 || matches.port_number == port)
}

/// Subset, host and port of a cluster's name, in either form.
fn parts(name: &str) -> Option<(&str, &str, u32)> {
    let (rest, separator) = match name.split_once('|') {
        Some((_, rest)) => (rest, "|"),
        None => (name.split_once("_.")?.1, "_."),
    };
    let mut parts = rest.splitn(3, separator);
    let (port, subset, host) = (parts.next()?, parts.next()?, parts.next()?);
    Some((subset, host, port.parse().ok()?))
}

fn merge(cluster: &mut Cluster, patch: &Patch, lists: Lists) {
    let Some(value) = &patch.value else { return };
    match patch.value_as::<Cluster>().and_then(|value| value.transport_socket) {
        Some(socket) => merge_socket(cluster, socket),
        None => merge_into(cluster, value, lists),
    }
}

/// A patch with a transport socket patches that alone. It merges with one of its name, and takes the place of
/// another; but where the socket depends on the endpoint, there is no place for a single one.
fn merge_socket(cluster: &mut Cluster, patch: TransportSocket) {
    if cluster.transport_socket_matches.is_empty() {
        match &mut cluster.transport_socket {
            Some(held) if held.name == patch.name => merge_config(held, &patch),
            held => *held = Some(patch),
        }
        return;
    }
    let mut sockets =
        cluster.transport_socket_matches.iter_mut().filter_map(|choice| choice.transport_socket.as_mut());
    if let Some(held) = sockets.find(|held| held.name == patch.name) {
        merge_config(held, &patch);
    }
}

/// Merges the configuration of a socket into that of another one of its name.
pub(super) fn merge_config(held: &mut TransportSocket, patch: &TransportSocket) {
    let (Some(ConfigType::TypedConfig(held)), Some(ConfigType::TypedConfig(patch))) =
        (&mut held.config_type, &patch.config_type)
    else {
        return;
    };
    if let Some(merged) = merge_any(held, patch) {
        *held = merged;
    }
}
