//! The replicas of a proxy's own workload (`local_cluster`), by which Envoy knows how many proxies of a zone
//! share the endpoints of a service (zone-aware load balancing).

use super::assignment::{Grouped, grouped};
use super::client_locality::ClientLocality;
use super::encode::encode;
use super::select::is_sendable;
use super::service_rule::ServiceRule;
use crate::engine::{Cx, EncodedResource, Query, Shared};
use crate::proxy::Proxy;
use crate::proxy::locality::ProxyLocality;
use crate::proxy::targets::TargetsOf;
use crate::proxy::workload::Identity;
use crate::services::client_endpoints::client_endpoints;
use pilotfish_model::{Endpoint, NetworkId, ServiceKey};
use pilotfish_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use std::sync::Arc;

/// Name of the cluster in bootstraps of proxies with `ENABLE_SELF_DISCOVERY`.
pub(super) const LOCAL_CLUSTER: &str = "local_cluster";
/// Labels of Pods by which versions of a workload differ.
const VERSIONS: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// A workload as its replicas are found: one port of one of its services, so that none counts twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnWorkload {
    service: ServiceKey,
    /// The name of the service port.
    port: Arc<str>,
    name: Arc<str>,
    versions: [Arc<str>; 2],
    region: Arc<str>,
    network: NetworkId,
}

impl OwnWorkload {
    /// The workload of a proxy; `None` unless it asks for the others and has a service.
    pub(super) fn of(cx: &Cx<'_>, proxy: &Proxy, place: &ProxyLocality) -> Option<Self> {
        if !proxy.meta_flag("ENABLE_SELF_DISCOVERY") {
            return None;
        }
        let targets = cx.get(&TargetsOf(Identity::of(proxy)));
        let target = targets.first()?;
        Some(Self {
            service: target.service.clone(),
            port: target.port.name.clone(),
            name: proxy.meta("WORKLOAD_NAME").into(),
            versions: VERSIONS.map(|label| place.labels.get(label).unwrap_or_default().into()),
            region: place.locality.region.clone(),
            network: proxy.network.clone(),
        })
    }

    fn has(&self, endpoint: &Endpoint) -> bool {
        let attributes = &endpoint.attributes;
        let versions = VERSIONS.map(|label| attributes.labels.get(label).unwrap_or_default());
        endpoint.service_port == self.port
            && is_sendable(endpoint)
            && attributes.workload_name == self.name
            && attributes.locality.region == self.region
            && versions.iter().zip(&self.versions).all(|(other, own)| **other == **own)
    }

    /// The load assignment with its replicas.
    pub(super) fn assignment(&self, cx: &Cx<'_>) -> EncodedResource {
        EncodedResource::clone(&cx.get(&ReplicasOf(self.clone())))
    }
}

/// The load assignment of a workload's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReplicasOf(OwnWorkload);

impl Query for ReplicasOf {
    type Output = EncodedResource;

    fn compute(&self, cx: &Cx<'_>) -> EncodedResource {
        let endpoints = client_endpoints(cx, &self.0.service);
        let own = endpoints.iter().flat_map(|all| all.iter()).filter(|endpoint| self.0.has(endpoint));
        let client = ClientLocality { network: self.0.network.clone(), ..ClientLocality::default() };
        let Grouped { groups, provenance } = grouped(cx, own, &ServiceRule::default(), &client, false);
        EncodedResource::of_encoded::<ClusterLoadAssignment>(
            LOCAL_CLUSTER,
            encode(LOCAL_CLUSTER, &groups),
            provenance.into_iter().collect(),
        )
    }

    fn share(resource: EncodedResource, shared: &Shared) -> EncodedResource {
        shared.resource(resource)
    }
}
