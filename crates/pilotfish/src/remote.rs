//! How remote clusters become registries: each reading of a cluster is a feed of its own, with the registries that read it.

use pilotfish_kube::remote::ClusterGeneration;
use pilotfish_model::{Provider, ShardKey};
use pilotfish_registry::{
    Hub, KubernetesRegistry, Registry, RegistrySettings, ServiceEntryRegistry, SourceEvent,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

/// The name of the source of Secrets with kubeconfigs. It has no objects: it is in sync when the clusters that were there at the
/// start have been opened.
pub(crate) const REMOTE_SECRETS: &str = "remote secrets";

/// The name of the source of a cluster's objects.
pub(crate) fn cluster_source(cluster: &str) -> String {
    format!("cluster {cluster}")
}

/// The feed of one reading of a remote cluster.
pub(crate) fn feed_of(reading: &ClusterGeneration) -> String {
    reading.to_string()
}

/// Makes registries for remote clusters.
pub struct RemoteRegistries {
    /// The feed of the cluster that holds the configuration.
    pub config_feed: Arc<str>,
    /// As for the registries of that cluster.
    settings: RegistrySettings,
    services: bool,
    workload_entries: bool,
    clusters: BTreeSet<Arc<str>>,
}

impl RemoteRegistries {
    /// For the registries of those names, which run for the cluster with the configuration.
    pub fn new(config_feed: Arc<str>, settings: RegistrySettings, registries: &[String]) -> Self {
        let has = |name: &str| registries.iter().any(|known| known.trim().eq_ignore_ascii_case(name));
        let services = has("Kubernetes");
        let selected = settings.select_workload_entries || settings.select_remote_workload_entries;
        let workload_entries = selected && (services || has("ServiceEntry"));
        Self { config_feed, settings, services, workload_entries, clusters: BTreeSet::new() }
    }

    /// How many remote clusters there are.
    pub fn count(&self) -> usize {
        self.clusters.len()
    }

    /// Makes the feed and the registries of a reading. Where the cluster is read already, they take over when they are in sync.
    pub fn open(&mut self, hub: &mut Hub, reading: &ClusterGeneration) {
        let feed = feed_of(reading);
        hub.add_source(&feed, &cluster_source(&reading.cluster));
        for registry in self.registries(&reading.cluster) {
            hub.replace_registry(registry, Some(&feed));
        }
        self.clusters.insert(reading.cluster.clone());
    }

    fn registries(&self, cluster: &str) -> Vec<Box<dyn Registry>> {
        let settings = RegistrySettings {
            cluster: cluster.into(),
            // Other clusters have no say in what stands for remote gateways.
            remote_gateways: false,
            ..self.settings.clone()
        };
        let mut registries: Vec<Box<dyn Registry>> = Vec::new();
        if self.services {
            registries.push(Box::new(KubernetesRegistry::new(settings.clone())));
        }
        if self.workload_entries {
            registries.push(Box::new(ServiceEntryRegistry::workload_entries_only(settings)));
        }
        registries
    }

    /// Readiness goes on without a reading.
    pub fn give_up(&self, hub: &mut Hub, reading: &ClusterGeneration, reason: &Arc<str>) {
        tracing::warn!(cluster = %reading.cluster, %reason, "nobody waits for this cluster any longer");
        let feed = feed_of(reading);
        let event = SourceEvent::Failed { at: SystemTime::now(), reason: reason.clone() };
        if let Err(error) = hub.source_event(&feed, &cluster_source(&reading.cluster), event) {
            tracing::error!(%error, "a reading without a feed");
        }
        hub.give_up(&feed);
    }

    /// A cluster leaves with all that it had.
    pub fn remove(&mut self, hub: &mut Hub, cluster: &Arc<str>, readings: &[ClusterGeneration]) {
        for provider in [Provider::Kubernetes, Provider::External] {
            hub.remove_registry(&ShardKey { provider, cluster: (&**cluster).into() });
        }
        for reading in readings {
            hub.remove_feed(&feed_of(reading));
        }
        self.clusters.remove(cluster);
    }
}
