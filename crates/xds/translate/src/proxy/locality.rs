//! Locality of a proxy.

use crate::engine::Cx;
use crate::proxy::workload::labels_of;
use crate::proxy::{Proxy, ProxyKind};
use pilotfish_model::{LabelMap, Labels, Locality, topology};
use std::sync::Arc;

/// Locality, node and labels of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyLocality {
    /// From the labels of its workload, or else from its node. For a gRPC client, the node takes precedence:
    /// no agent sets it, so it comes from the bootstrap.
    pub locality: Locality,
    /// The Kubernetes node: from the proxy's metadata, or else from the labels of its workload; empty if
    /// unknown.
    pub node: Arc<str>,
    /// The labels of its workload, with topology labels.
    pub labels: Labels,
}

impl ProxyLocality {
    /// Determines the locality of a proxy.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Self {
        let own = labels_of(cx, proxy);
        let is_stated = proxy.kind == ProxyKind::Grpc && proxy.locality != Locality::default();
        let registered = locality_in(&own).filter(|_| !is_stated);
        let locality = registered.unwrap_or_else(|| proxy.locality.clone());
        let node: Arc<str> = match proxy.meta("NODE_NAME") {
            "" => own.shared(topology::HOSTNAME).cloned().unwrap_or_default(),
            node => node.into(),
        };
        let labels = with_topology(&own, proxy, &locality, &node);
        Self { locality, node, labels: Arc::new(labels) }
    }
}

fn with_topology(own: &LabelMap, proxy: &Proxy, locality: &Locality, node: &str) -> LabelMap {
    // The network in the registries takes precedence over the proxy's own.
    let unknown = own.get(topology::NETWORK).is_none_or(str::is_empty);
    let added = [
        (topology::REGION, &*locality.region),
        (topology::ZONE, &*locality.zone),
        (topology::SUB_ZONE, &*locality.sub_zone),
        (topology::CLUSTER, proxy.cluster.as_str()),
        (topology::HOSTNAME, node),
        (topology::NETWORK, if unknown { proxy.network.as_str() } else { "" }),
    ];
    let added = added.into_iter().filter(|(_, value)| !value.is_empty());
    own.with(added.map(|(key, value)| (key.into(), value.into())))
}

fn locality_in(labels: &LabelMap) -> Option<Locality> {
    let part = |key: &str| labels.shared(key).cloned();
    let parts = (part(topology::REGION), part(topology::ZONE), part(topology::SUB_ZONE));
    let text = |part: Option<Arc<str>>| part.unwrap_or_else(|| "".into());
    match parts {
        (None, None, None) => None,
        (region, zone, sub_zone) => {
            Some(Locality { region: text(region), zone: text(zone), sub_zone: text(sub_zone) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Query;
    use crate::testing::{evaluate, pod, sidecar, world};
    use pilotfish_model::Update;

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Place(Proxy);

    impl Query for Place {
        type Output = Locality;

        fn compute(&self, cx: &Cx<'_>) -> Locality {
            ProxyLocality::of(cx, &self.0).locality
        }
    }

    #[test]
    fn explicit_locality_of_a_grpc_client_comes_before_that_of_its_workload() {
        let labels = [(topology::REGION, "east")];
        let world = world([Update::Workload(Arc::new(pod("web-0", "shop", "10.0.0.1", &labels)))]);
        let (east, west) = (Locality::parse("east"), Locality::parse("west"));
        for (kind, stated, wanted) in [
            (ProxyKind::Grpc, &west, &west),
            (ProxyKind::Grpc, &Locality::default(), &east),
            (ProxyKind::Sidecar, &west, &east),
        ] {
            let proxy = Proxy { kind, locality: stated.clone(), ..sidecar("web-0", "shop") };
            assert_eq!(&*evaluate(&world, &Place(proxy)), wanted, "{kind:?} {stated:?}");
        }
    }
}
