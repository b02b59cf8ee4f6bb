//! Workloads: a pod or a WorkloadEntry, whether or not a service has it.

use crate::{Backend, ClusterId, Labels, Locality, Namespace, NetworkId, ObjectRef, TlsMode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub enum WorkloadKind {
    /// A Kubernetes Pod.
    Pod,
    /// An Istio WorkloadEntry.
    WorkloadEntry,
}

/// Which workload. Keyed by name, not by address: addresses are reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Pod or WorkloadEntry; pods come first.
    pub kind: WorkloadKind,
    /// The namespace.
    pub namespace: Namespace,
    /// The name.
    pub name: Arc<str>,
    /// The cluster.
    pub cluster: ClusterId,
}

/// A running thing with addresses and labels: carrier of selection across registries, and what a proxy belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// SPIFFE identity; empty when it has none.
    pub identity: Arc<str>,
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
    /// The object that made it.
    pub provenance: ObjectRef,
}

impl Workload {
    /// What is behind each of its endpoints, whichever the port.
    #[must_use]
    pub fn backend(&self) -> Backend {
        Backend {
            labels: self.labels.clone(),
            locality: self.locality.clone(),
            network: self.network.clone(),
            cluster: self.key.cluster.clone(),
            weight: self.weight,
            service_account: self.identity.clone(),
            tls_mode: self.tls_mode,
            hostname: self.hostname.clone(),
            sub_domain: self.sub_domain.clone(),
            node: self.node.clone(),
            workload_name: self.workload_name.clone(),
            namespace: self.key.namespace.clone(),
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
