//! Clusters (CDS).
//!
//! ```text
//! scope ─▶ one batch per service: for each port the default cluster, then one per subset   (outbound.rs)
//! BlackHole, Passthrough and the like                                                   (fixed.rs)
//! targets of the workload ─▶ one cluster per workload port                              (inbound.rs)
//! ```
//!
//! A cluster is a [`draft::Draft`] first, to which the parts of a traffic policy are applied in Istio's order: HTTP/2
//! upgrade, connection pool, outlier detection, load balancer, TLS, PROXY protocol. Later parts read what earlier ones
//! did. At the end EnvoyFilters patch the finished cluster (finish.rs).

mod connection_pool;
mod draft;
mod finish;
mod fixed;
mod grpc;
mod inbound;
mod load_balancer;
mod names;
mod outbound;
mod outlier_detection;
mod proxy_protocol;
mod sni_dnat;
mod tls;
mod view;

pub(crate) use grpc::common_tls as grpc_tls;
pub(crate) use outbound::{MAX_SERVICE_CLUSTERS, MAX_SERVICE_CLUSTERS_BYTES};
pub(crate) use view::ClusterView;

use crate::engine::{Cx, ResourceBatch, ResourceBatchKey};
use crate::proxy::ProxyKind;
use crate::scope::ServicesOf;
use pilotfish_model::ServiceKey;

impl ClusterView {
    /// The batches of the whole set, in the order in which they are sent; `None` for clients that subscribe by name.
    #[must_use]
    pub(crate) fn batch_keys(&self, cx: &Cx<'_>) -> Option<Vec<ResourceBatchKey>> {
        let kind = self.facets.scope.kind;
        if kind == ProxyKind::Grpc {
            return None;
        }
        let services = cx.get(&ServicesOf(self.facets.scope.clone()));
        let key = |service: &pilotfish_model::Service| ServiceKey {
            hostname: service.hostname.clone(),
            namespace: service.namespace.clone(),
        };
        let mut batch_keys: Vec<ResourceBatchKey> =
            services.list.iter().map(|service| ResourceBatchKey::Service(key(service))).collect();
        batch_keys.push(ResourceBatchKey::Static);
        if kind == ProxyKind::Sidecar {
            batch_keys.push(ResourceBatchKey::Inbound);
        }
        if !self.facets.patches.is_empty() {
            batch_keys.push(ResourceBatchKey::Added);
        }
        Some(batch_keys)
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        match batch_key {
            ResourceBatchKey::Service(service) => {
                let query =
                    outbound::ServiceClusters { facets: self.facets.clone(), service: service.clone() };
                ResourceBatch::clone(&cx.get(&query))
            }
            ResourceBatchKey::Static => fixed::clusters(cx, &self.facets).into(),
            ResourceBatchKey::Inbound => inbound::clusters(cx, self).into(),
            ResourceBatchKey::Added => finish::added(cx, &self.facets).into(),
            ResourceBatchKey::Named(name) => grpc::clusters(cx, &self.facets, name).into(),
            ResourceBatchKey::Port(_) => ResourceBatch::default(),
        }
    }
}

#[cfg(test)]
mod tests;
