//! Settings of registries.

use pilotfish_model::{ClusterId, Namespace};
use pilotfish_runtime::GuardSettings;
use std::sync::Arc;

/// Level of support for the multi-cluster services API (ServiceExport and ServiceImport). Each level includes
/// the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MultiClusterServices {
    /// No support: the endpoints of every cluster are sent to proxies of all clusters (Istio's default).
    #[default]
    Off,
    /// Endpoints of Services that are not exported are sent within their cluster only
    /// (`ENABLE_MCS_SERVICE_DISCOVERY`).
    Discovery,
    /// Imported Services have a host below `clusterset.local` (`ENABLE_MCS_HOST`).
    Hosts,
    /// Only that host crosses clusters, never the Service's own (`ENABLE_MCS_CLUSTER_LOCAL`).
    ClusterLocal,
}

impl MultiClusterServices {
    /// Parses `off`, `discovery`, `hosts` or `cluster-local`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "off" => Self::Off,
            "discovery" => Self::Discovery,
            "hosts" => Self::Hosts,
            "cluster-local" => Self::ClusterLocal,
            _ => return None,
        })
    }
}

/// Settings that are fixed for the lifetime of a registry. The defaults are Istio's.
#[derive(Clone, Debug)]
pub struct RegistrySettings {
    /// Cluster that is read.
    pub cluster: ClusterId,
    /// Domain of the host names of Kubernetes Services.
    pub domain: Arc<str>,
    /// Namespace whose label `topology.istio.io/network` is the network of the whole cluster.
    pub system_namespace: Namespace,
    /// True if Gateways of the class `istio-remote`, which stand for gateways of other clusters, are read: in
    /// the cluster that holds the configuration.
    pub remote_gateways: bool,
    /// True if endpoints have the addresses of both IP families.
    pub dual_stack: bool,
    /// True if Kubernetes Services select WorkloadEntries.
    pub select_workload_entries: bool,
    /// True if ServiceEntries select Pods.
    pub select_pods: bool,
    /// True if ServiceEntries select WorkloadEntries of other clusters.
    pub select_remote_workload_entries: bool,
    /// True if an annotation of a WorkloadEntry can make it depend on its health checks.
    pub workload_entry_health_checks: bool,
    /// True if hosts of ServiceEntries without an address get one that is derived from their name.
    pub allocate_addresses: bool,
    /// Level of support for ServiceExports and ServiceImports.
    pub multi_cluster_services: MultiClusterServices,
    /// Labels of Services that request persistent sessions, for which terminating endpoints are kept.
    pub persistent_session_labels: Arc<[Arc<str>]>,
    /// Thresholds of the guard, for registries without their own.
    pub guard: GuardSettings,
}

impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            cluster: "Kubernetes".into(),
            domain: "cluster.local".into(),
            system_namespace: "istio-system".into(),
            remote_gateways: true,
            dual_stack: false,
            select_workload_entries: true,
            select_pods: true,
            select_remote_workload_entries: true,
            workload_entry_health_checks: true,
            allocate_addresses: true,
            multi_cluster_services: MultiClusterServices::Off,
            persistent_session_labels: Arc::from([
                "istio.io/persistent-session".into(),
                "istio.io/persistent-session-header".into(),
            ]),
            guard: GuardSettings::default(),
        }
    }
}
