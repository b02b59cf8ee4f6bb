//! Clusters (CDS).
//!
//! ```text
//! scope ─▶ one batch per service: for each port the default cluster, then one per subset   (outbound.rs)
//! BlackHole, Passthrough and the like                                                   (fixed.rs)
//! targets of the workload ─▶ one cluster per workload port                              (inbound.rs)
//! ```
//!
//! A view has parts: the clusters of the proxy's own ports, those that depend on the client's locality or
//! labels, and all others, which most proxies of a namespace share. The clusters of a service and a rule are
//! one result for all namespaces that see the same service and rule.
//!
//! A cluster is a [`draft::Draft`] first, to which the parts of a traffic policy are applied in Istio's
//! order: HTTP/2 upgrade, connection pool, outlier detection, load balancer, TLS, PROXY protocol. Later parts
//! read what earlier ones did. At the end EnvoyFilters patch the finished cluster (finish.rs).

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
pub(crate) use outbound::{MAX_SERVICE_CLUSTERS, MAX_SERVICE_CLUSTERS_BYTES, has_cluster};
pub(crate) use view::ClusterView;

use crate::engine::{Cx, ResourceBatch, ResourceBatchKey};
use crate::scope::{Scope, ServicesOf};
use crate::xds::eds::ClientLocality;
use pilotfish_model::Labels;

impl ClusterView {
    /// The batches of the part, in the order in which they are sent; `None` for clients that subscribe by
    /// name.
    #[must_use]
    pub(crate) fn batch_keys(&self, cx: &Cx<'_>) -> Option<Vec<ResourceBatchKey>> {
        match self {
            Self::Inbound(_) => Some(vec![ResourceBatchKey::Inbound]),
            Self::Client(view) => Some(service_keys(cx, &view.facets.scope, true)),
            Self::Outbound(facets) => {
                let mut batch_keys = service_keys(cx, &facets.scope, false);
                batch_keys.push(ResourceBatchKey::Static);
                if !facets.proxy.patches.is_empty() {
                    batch_keys.push(ResourceBatchKey::Added);
                }
                Some(batch_keys)
            }
            Self::Grpc(_) => None,
        }
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        match (self, batch_key) {
            (Self::Inbound(view), ResourceBatchKey::Inbound) => inbound::clusters(cx, view).into(),
            (Self::Client(view), ResourceBatchKey::Service(service)) => {
                outbound::clusters(cx, &view.facets, &view.labels, &view.client_locality, service)
            }
            (Self::Outbound(facets), ResourceBatchKey::Service(service)) => {
                outbound::clusters(cx, facets, &Labels::default(), ClientLocality::anywhere(), service)
            }
            (Self::Outbound(facets), ResourceBatchKey::Static) => fixed::clusters(cx, &facets.proxy).into(),
            (Self::Outbound(facets), ResourceBatchKey::Added) => finish::added(cx, &facets.proxy).into(),
            (Self::Grpc(view), ResourceBatchKey::Named(name)) => grpc::clusters(cx, view, name).into(),
            _ => ResourceBatch::default(),
        }
    }
}

/// The services of a scope whose clusters depend on the client, or those whose do not.
fn service_keys(cx: &Cx<'_>, scope: &Scope, depends_on_client: bool) -> Vec<ResourceBatchKey> {
    let services = cx.get(&ServicesOf(scope.clone()));
    let wanted =
        services.list.iter().filter(|it| view::depends_on_client(cx, scope, it) == depends_on_client);
    wanted.map(|service| ResourceBatchKey::Service(service.key())).collect()
}

#[cfg(test)]
mod dynamic_dns_tests;
#[cfg(test)]
mod tests;
