//! Workloads: Pods, WorkloadEntries and instances of other registries, with or without a service.

use crate::{
    ClusterId, Endpoint, EndpointAttributes, HealthStatus, Labels, Locality, Namespace, NetworkId, Origin,
    Port, ShardKey, SpiffeId, TlsMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kind of a workload. Rules of Kubernetes and Istio distinguish Pods and WorkloadEntries; all other
/// workloads are alike, regardless of their registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum WorkloadKind {
    Pod,
    WorkloadEntry,
    /// An instance of a registry without objects. The registry is part of the key: two of them may use one
    /// name.
    Registered(Arc<ShardKey>),
}

impl WorkloadKind {
    /// Word for messages and JSON.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::WorkloadEntry => "WorkloadEntry",
            Self::Registered(_) => "Registered",
        }
    }
}

/// Key of a workload, by name and not by address: addresses are reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct WorkloadKey {
    /// Kind; Pods sort first, then WorkloadEntries.
    pub kind: WorkloadKind,
    pub namespace: Namespace,
    pub name: Arc<str>,
    pub cluster: ClusterId,
}

/// A workload with addresses and labels: services select it, and a proxy belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Workload {
    pub key: WorkloadKey,
    /// Its addresses, the primary one first. A WorkloadEntry may have a host name or a `unix://` path here,
    /// or none if it is reached through its network's gateway only.
    pub addresses: Arc<[Arc<str>]>,
    /// Named ports: container ports of a pod, `ports` of a WorkloadEntry.
    pub ports: Arc<BTreeMap<Arc<str>, u32>>,
    /// Labels, with topology labels added.
    pub labels: Labels,
    pub locality: Locality,
    pub network: NetworkId,
    /// Relative weight; 0 if unset.
    pub weight: u32,
    /// Name of its service account, not the SPIFFE identity; empty for none.
    pub service_account: Arc<str>,
    /// Identity in its certificate; `None` without one.
    pub identity: Option<SpiffeId>,
    pub tls_mode: TlsMode,
    pub node: Arc<str>,
    /// Addresses at which its node is reached from outside.
    pub node_addresses: Arc<[Arc<str>]>,
    /// Name of its Deployment or the like, for telemetry.
    pub workload_name: Arc<str>,
    pub hostname: Arc<str>,
    pub sub_domain: Arc<str>,
    /// True if it shares the node's address.
    pub host_network: bool,
    /// True if it may receive traffic: a pod that is ready, an entry that is healthy or unchecked.
    pub ready: bool,
    /// True if it is being deleted.
    pub terminating: bool,
    /// Creation time in seconds since the epoch.
    pub created: i64,
    pub provenance: Origin,
}

impl Workload {
    /// A workload of a registry without objects: ready, without labels, locality or identity. A registry with
    /// more data sets the fields.
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

    /// Endpoint of this workload for a service port, with port `number` at its addresses.
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

    /// Attributes of all of its endpoints, independent of the port.
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

    /// First address; empty if there is none.
    #[must_use]
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", |address| address)
    }

    /// True if the address is a host name or a Unix path: only DNS services may select it.
    #[must_use]
    pub fn is_dns_only(&self) -> bool {
        let address = self.address();
        address.starts_with("unix://")
            || (!address.is_empty() && address.parse::<std::net::IpAddr>().is_err())
    }
}
