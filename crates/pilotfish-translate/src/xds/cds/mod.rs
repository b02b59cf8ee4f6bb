//! Clusters (CDS).
//!
//! ```text
//! scope ─▶ one unit per service: for each port the default cluster, then one per subset   (outbound.rs)
//! BlackHole, Passthrough and the like                                                   (fixed.rs)
//! targets of the workload ─▶ one cluster per workload port                              (inbound.rs)
//! ```
//!
//! A cluster is a [`draft::Draft`] first, to which the parts of a traffic policy are applied in Istio's order: HTTP/2
//! upgrade, connection pool, outlier detection, load balancer, TLS, PROXY protocol. Later parts look at what earlier ones
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
pub(crate) use names::sni_name;
pub(crate) use view::ClusterView;

use crate::engine::{Batch, Cx};
use crate::proxy::ProxyKind;
use crate::scope::ServicesOf;
use crate::translator::view::Unit;
use pilotfish_model::ServiceKey;

impl ClusterView {
    /// The units of the whole set, in the order in which they are sent; `None` for clients that ask by name.
    #[must_use]
    pub(crate) fn units(&self, cx: &Cx<'_>) -> Option<Vec<Unit>> {
        let kind = self.client.scope.kind;
        if kind == ProxyKind::Grpc {
            return None;
        }
        let services = cx.get(&ServicesOf(self.client.scope.clone()));
        let key = |service: &pilotfish_model::Service| ServiceKey {
            hostname: service.hostname.clone(),
            namespace: service.namespace.clone(),
        };
        let mut units: Vec<Unit> = services.list.iter().map(|service| Unit::Service(key(service))).collect();
        units.push(Unit::Static);
        if kind == ProxyKind::Sidecar {
            units.push(Unit::Inbound);
        }
        if !self.client.patches.is_empty() {
            units.push(Unit::Added);
        }
        Some(units)
    }

    /// Generates one unit.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, unit: &Unit) -> Batch {
        match unit {
            Unit::Service(service) => {
                let query =
                    outbound::ServiceClusters { client: self.client.clone(), service: service.clone() };
                Batch::clone(&cx.get(&query))
            }
            Unit::Static => fixed::clusters(cx, &self.client).into(),
            Unit::Inbound => inbound::clusters(cx, self).into(),
            Unit::Added => finish::added(cx, &self.client).into(),
            Unit::Named(name) => grpc::clusters(cx, &self.client, name).into(),
            Unit::Port(_) => Batch::default(),
        }
    }
}

#[cfg(test)]
mod tests;
