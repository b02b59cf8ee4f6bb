//! What registries are told when they are made.

use pilotfish_model::{ClusterId, Namespace};
use std::sync::Arc;

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
    /// Labels of Services that ask for persistent sessions: endpoints that end are kept for them.
    pub persistent_session_labels: Arc<[Arc<str>]>,
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
            persistent_session_labels: Arc::from([
                "istio.io/persistent-session".into(),
                "istio.io/persistent-session-header".into(),
            ]),
        }
    }
}
