//! The settings of registries.

use pilotfish_model::{ClusterId, Namespace};
use pilotfish_source::GuardSettings;
use std::sync::Arc;

/// How far the multi-cluster services API (ServiceExport and ServiceImport) counts. Each step holds the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MultiClusterServices {
    /// Not at all: every cluster's endpoints are sent everywhere (Istio's default).
    #[default]
    Off,
    /// Endpoints of Services that are not exported are sent within their cluster only (`ENABLE_MCS_SERVICE_DISCOVERY`).
    Discovery,
    /// Imported Services have a host below `clusterset.local` (`ENABLE_MCS_HOST`).
    Hosts,
    /// Only that host crosses clusters, never the Service's own (`ENABLE_MCS_CLUSTER_LOCAL`).
    ClusterLocal,
}

impl MultiClusterServices {
    /// Reads `off`, `discovery`, `hosts` or `cluster-local`.
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

/// Settings that hold for as long as a registry lives. The defaults are Istio's.
#[derive(Clone, Debug)]
pub struct RegistrySettings {
    /// The cluster that is read.
    pub cluster: ClusterId,
    /// The domain of Kubernetes Services' host names.
    pub domain: Arc<str>,
    /// The namespace whose label `topology.istio.io/network` is the network of the whole cluster.
    pub system_namespace: Namespace,
    /// Whether Gateways of the class `istio-remote`, which stand for gateways of other clusters, count: in the cluster that
    /// holds the configuration.
    pub remote_gateways: bool,
    /// Whether an endpoint carries the addresses of both IP families.
    pub dual_stack: bool,
    /// Whether Kubernetes Services select WorkloadEntries.
    pub select_workload_entries: bool,
    /// Whether ServiceEntries select Pods.
    pub select_pods: bool,
    /// Whether ServiceEntries select WorkloadEntries of other clusters.
    pub select_remote_workload_entries: bool,
    /// Whether WorkloadEntries can ask that their health counts.
    pub workload_entry_health_checks: bool,
    /// Whether hosts of ServiceEntries without an address are given one by their name.
    pub allocate_addresses: bool,
    /// How far ServiceExports and ServiceImports count.
    pub multi_cluster_services: MultiClusterServices,
    /// Labels of Services that ask for persistent sessions: endpoints that end are kept for them.
    pub persistent_session_labels: Arc<[Arc<str>]>,
    /// Thresholds of the guard, for registries without settings of their own.
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
