//! Names of a headless service: its own, with the addresses of all endpoints, and one for each Pod with a
//! host name.

use crate::engine::{Cx, Query};
use crate::services::client_endpoints::client_endpoints;
use pilotfish_model::{ClusterId, Endpoint, HealthStatus, NetworkId, ServiceKey};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Network and cluster of the client, which decide on the addresses of a headless service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeadlessView {
    pub(super) cluster: ClusterId,
    pub(super) network: NetworkId,
}

impl HeadlessView {
    /// An empty network matches every network.
    fn has_network(&self, endpoint: &Endpoint) -> bool {
        self.network.is_empty()
            || endpoint.attributes.network.is_empty()
            || self.network == endpoint.attributes.network
    }
}

/// Query for the names of a headless service. Only directly reachable endpoints are included: those of the
/// proxy's cluster and network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NamesOf {
    pub(super) service: ServiceKey,
    /// True if endpoints that are not ready are included.
    pub(super) unready: bool,
    /// The ServiceEntries whose endpoints are included, if not all are.
    pub(super) entries: BTreeSet<Arc<str>>,
    pub(super) view: HeadlessView,
}

/// The answer to [`NamesOf`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct Headless {
    /// The addresses of the endpoints, each once.
    pub(super) addresses: Vec<String>,
    pub(super) pods: Vec<Pod>,
}

/// One pod with a host name.
#[derive(Debug, PartialEq)]
pub(super) struct Pod {
    /// Name `<hostname>.<subdomain>` of the pod.
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) own_cluster: bool,
}

impl Query for NamesOf {
    type Output = Headless;

    fn compute(&self, cx: &Cx<'_>) -> Headless {
        let mut out = Headless::default();
        let (mut seen, mut named) = (BTreeSet::new(), BTreeSet::new());
        let Some(endpoints) = client_endpoints(cx, &self.service) else { return out };
        for endpoint in endpoints
            .iter()
            .filter(|endpoint| self.view.has_network(endpoint) && endpoint.is_of(&self.entries))
        {
            let addresses: Vec<String> = endpoint.addresses.iter().map(ToString::to_string).collect();
            let own_cluster = endpoint.attributes.cluster == self.view.cluster;
            if !endpoint.attributes.sub_domain.is_empty() {
                let name = format!("{}.{}", endpoint.attributes.hostname, endpoint.attributes.sub_domain);
                if named.insert((name.clone(), endpoint.attributes.cluster.clone())) {
                    out.pods.push(Pod { name, addresses: addresses.clone(), own_cluster });
                }
            }
            let usable = match endpoint.health {
                HealthStatus::Healthy | HealthStatus::Unknown => true,
                HealthStatus::Unhealthy
                | HealthStatus::Draining
                | HealthStatus::Deregistering
                | HealthStatus::Terminating => self.unready,
            };
            if own_cluster && usable {
                out.addresses.extend(addresses.into_iter().filter(|address| seen.insert(address.clone())));
            }
        }
        out
    }
}
