//! What there is around a service, and how namespaces see each other.

mod namespaces;
mod routed;
mod service;

pub use namespaces::namespaces;
pub use routed::service_map;
pub use service::service;

use pilotfish_model::{Endpoint, HealthStatus, Namespace};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::Proxy;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Connected proxies by namespace.
pub type ProxyCounts = BTreeMap<String, usize>;

/// A sidecar of a namespace that nothing selects by labels.
fn sidecar_of(namespace: &Namespace) -> Option<Arc<Proxy>> {
    let id = format!("sidecar~127.0.0.1~any.{namespace}~{namespace}.svc.cluster.local");
    Proxy::from_node(&Node { id, ..Node::default() }).ok().map(Arc::new)
}

fn is_healthy(endpoint: &Endpoint) -> bool {
    matches!(endpoint.health, HealthStatus::Healthy | HealthStatus::Unknown)
}

#[cfg(test)]
mod tests;
