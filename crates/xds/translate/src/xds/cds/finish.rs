//! The last step of a cluster: EnvoyFilter patches and encoding.

use super::view::ProxyFacets;
use crate::engine::{Cx, EncodedResource};
use crate::envoy::TrafficClass;
use crate::envoy_filter::{Patched, added_clusters, patch_cluster};
use crate::proxy::ProxyKind;
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::cluster::v3::Cluster;

/// Patches and encodes a cluster. `hosts` are the services of an inbound one. `None` when a patch removes it.
pub(super) fn finish(
    cx: &Cx<'_>,
    facets: &ProxyFacets,
    context: TrafficClass,
    cluster: Cluster,
    hosts: &[&str],
    mut provenance: Vec<Origin>,
) -> Option<EncodedResource> {
    let mut patched = Patched::default();
    let cluster = patch_cluster(cx, &facets.patches, context, cluster, hosts, &mut patched)?;
    let refused = patched.take_refused().into_iter().chain(facets.patches.refusal()).collect();
    provenance.extend(patched.into_objects());
    Some(EncodedResource::new(cluster.name.clone(), &cluster, provenance).without(refused))
}

/// The clusters that patches add.
pub(super) fn added(cx: &Cx<'_>, facets: &ProxyFacets) -> Vec<EncodedResource> {
    let contexts: &[TrafficClass] = match facets.kind {
        ProxyKind::Router => &[TrafficClass::Gateway],
        ProxyKind::Sidecar | ProxyKind::Grpc => &[TrafficClass::Outbound, TrafficClass::Inbound],
    };
    let added = contexts.iter().flat_map(|context| added_clusters(cx, &facets.patches, *context));
    added
        .map(|(cluster, by)| EncodedResource::new(cluster.name.clone(), &cluster, by.into_objects()))
        .collect()
}
