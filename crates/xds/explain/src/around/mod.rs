//! Neighbourhood of a service, and visibility between namespaces.

mod namespaces;
mod routed;
mod service;

pub use namespaces::namespaces;
pub use routed::service_map;
pub use service::service;

use pilotfish_model::{Endpoint, HealthStatus, Namespace, ServiceKey, label_subset};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::{Proxy, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Connected proxies by namespace.
pub type ProxyCounts = BTreeMap<String, usize>;

/// A sidecar of the namespace without labels, so that no selector matches it.
fn sidecar_of(namespace: &Namespace) -> Option<Arc<Proxy>> {
    let id = format!("sidecar~127.0.0.1~any.{namespace}~{namespace}.svc.cluster.local");
    Proxy::from_node(&Node { id, ..Node::default() }).ok().map(Arc::new)
}

fn is_healthy(endpoint: &Endpoint) -> bool {
    matches!(endpoint.health, HealthStatus::Healthy | HealthStatus::Unknown)
}

/// Endpoints of a service, or of a subset of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EndpointCounts {
    endpoints: usize,
    healthy: usize,
}

/// Counts the endpoints of a route's destination, as clients of a namespace see it. A subset that is in none
/// of their DestinationRules has no endpoints, since no cluster has its name.
fn count(snapshot: &Snapshot<'_>, client: &Namespace, to: &ServiceKey, subset: &str) -> EndpointCounts {
    let mut counts = EndpointCounts::default();
    let subsets = (!subset.is_empty()).then(|| snapshot.subsets_of(client, to));
    let wanted = subsets.as_ref().map(|subsets| subsets.get(subset));
    for endpoint in snapshot.world().endpoints_of(to).into_iter().flat_map(|all| all.iter()) {
        let is_in = match wanted {
            None => true,
            Some(labels) => labels.is_some_and(|labels| label_subset(labels, &endpoint.attributes.labels)),
        };
        if is_in {
            counts.endpoints += 1;
            counts.healthy += usize::from(is_healthy(endpoint));
        }
    }
    counts
}

#[cfg(test)]
mod tests;
