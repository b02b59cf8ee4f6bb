//! Workloads: a Pod, a WorkloadEntry or an instance of another registry, whether or not a service has it.

use crate::{
    ClusterId, Endpoint, EndpointAttributes, HealthStatus, Labels, Locality, Namespace, NetworkId, Origin,
    Port, ShardKey, SpiffeId, TlsMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a workload is. Rules of Kubernetes and Istio tell Pods and WorkloadEntries apart; all other workloads are alike,
/// whatever registry they come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum WorkloadKind {
    /// A Kubernetes Pod.
    Pod,
    /// An Istio WorkloadEntry.
    WorkloadEntry,
    /// An instance of a registry that has no objects. The registry is part of the key: two of them may use one name.
    Registered(Arc<ShardKey>),
}

impl WorkloadKind {
    /// The word for messages and JSON.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::WorkloadEntry => "WorkloadEntry",
            Self::Registered(_) => "Registered",
        }
    }
}

/// Which workload. Keyed by name, not by address: addresses are reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct WorkloadKey {
    /// What it is; Pods sort first, then WorkloadEntries.
    pub kind: WorkloadKind,
    /// The namespace.
    pub namespace: Namespace,
    /// The name.
    pub name: Arc<str>,
    /// The cluster.
    pub cluster: ClusterId,
}

/// A running thing with addresses and labels: carrier of selection across registries, and what a proxy belongs to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Workload {
    /// Which one.
    pub key: WorkloadKey,
    /// Its addresses, the primary one first. A WorkloadEntry may have a host name or a `unix://` path here, or nothing
    /// when only its network's gateway reaches it.
    pub addresses: Arc<[Arc<str>]>,
    /// Named ports: container ports of a pod, `ports` of a WorkloadEntry.
    pub ports: Arc<BTreeMap<Arc<str>, u32>>,
    /// Labels, with topology labels added.
    pub labels: Labels,
    /// Where it runs.
    pub locality: Locality,
    /// Its network.
    pub network: NetworkId,
    /// Relative weight; 0 for "not set".
    pub weight: u32,
    /// The name of its service account, not the SPIFFE identity; empty for none.
    pub service_account: Arc<str>,
    /// The identity that its certificate carries; `None` where it has none.
    pub identity: Option<SpiffeId>,
    /// Whether it accepts mutual TLS.
    pub tls_mode: TlsMode,
    /// The node that it runs on.
    pub node: Arc<str>,
    /// The addresses at which that node is reached from outside.
    pub node_addresses: Arc<[Arc<str>]>,
    /// The name of its Deployment and the like, for telemetry.
    pub workload_name: Arc<str>,
    /// Pod host name.
    pub hostname: Arc<str>,
    /// Pod sub-domain.
    pub sub_domain: Arc<str>,
    /// Whether it shares the node's address.
    pub host_network: bool,
    /// Whether it may receive traffic: a pod that is ready, an entry that is healthy or unchecked.
    pub ready: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Creation time, seconds since the epoch.
    pub created: i64,
    /// What made it.
    pub provenance: Origin,
}

impl Workload {
    /// A workload of a registry that has no objects: ready, without labels, locality or identity. A registry that knows more
    /// sets the fields.
    pub fn registered(
        shard: &ShardKey,
        namespace: impl Into<Namespace>,
        name: impl Into<Arc<str>>,
        addresses: impl Into<Arc<[Arc<str>]>>,
    ) -> Self {
        let name = name.into();
        Self {
            provenance: Origin::registered(shard.clone(), name.clone()),
            workload_name: name.clone(),
            key: WorkloadKey {
                kind: WorkloadKind::Registered(Arc::new(shard.clone())),
                namespace: namespace.into(),
                name,
                cluster: shard.cluster.clone(),
            },
            addresses: addresses.into(),
            ports: Arc::default(),
            labels: Labels::default(),
            locality: Locality::default(),
            network: NetworkId::default(),
            weight: 0,
            service_account: Arc::default(),
            identity: None,
            tls_mode: TlsMode::Disabled,
            node: Arc::default(),
            node_addresses: Arc::default(),
            hostname: Arc::default(),
            sub_domain: Arc::default(),
            host_network: false,
            ready: true,
            terminating: false,
            created: 0,
        }
    }

    /// The endpoint that this workload is for a service port, at the port `number` of its addresses.
    #[must_use]
    pub fn endpoint(&self, service_port: &Port, number: u32) -> Endpoint {
        let health = if self.ready { HealthStatus::Healthy } else { HealthStatus::Unhealthy };
        Endpoint {
            addresses: self.addresses.clone(),
            port: number,
            service_port: service_port.name.clone(),
            service_port_id: Some(service_port.id()),
            health,
            attributes: Arc::new(self.endpoint_attributes()),
        }
    }

    /// The attributes of each of its endpoints, whichever the port.
    #[must_use]
    pub fn endpoint_attributes(&self) -> EndpointAttributes {
        EndpointAttributes {
            labels: self.labels.clone(),
            locality: self.locality.clone(),
            network: self.network.clone(),
            cluster: self.key.cluster.clone(),
            weight: self.weight,
            identity: self.identity.clone(),
            tls_mode: self.tls_mode,
            hostname: self.hostname.clone(),
            sub_domain: self.sub_domain.clone(),
            node: self.node.clone(),
            workload_name: self.workload_name.clone(),
            namespace: self.key.namespace.clone(),
            entry: None,
            provenance: self.provenance.clone(),
        }
    }

    /// The first address; empty when there is none.
    #[must_use]
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", |address| address)
    }

    /// Whether the address is neither an IP nor missing (a host name or a Unix path): only DNS services may select it.
    #[must_use]
    pub fn is_dns_only(&self) -> bool {
        let address = self.address();
        address.starts_with("unix://")
            || (!address.is_empty() && address.parse::<std::net::IpAddr>().is_err())
    }
}
