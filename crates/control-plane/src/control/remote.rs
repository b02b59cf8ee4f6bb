//! Registries of remote clusters: each generation of a cluster is a feed of its own, with the registries that
//! read it.

use pilotfish_config::SourceEvent;
use pilotfish_kube::remote::ClusterGeneration;
use pilotfish_model::{Provider, ShardKey};
use pilotfish_registry::{
    AggregateController, KUBERNETES, KubernetesRegistry, Registry, RegistrySettings, RegistryTable,
    SERVICE_ENTRY, ServiceEntryRegistry, UnknownRegistry,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

/// Name of the source of Secrets with kubeconfigs. It has no objects, and is in sync once the clusters that
/// existed at the start have been opened.
pub const REMOTE_SECRETS: &str = "remote secrets";

/// The name of the source of a cluster's objects.
pub fn cluster_source(cluster: &str) -> String {
    format!("cluster {cluster}")
}

/// The feed of one generation of a remote cluster.
pub(crate) fn feed_of(generation: &ClusterGeneration) -> String {
    generation.to_string()
}

/// Factory of registries for remote clusters.
pub struct RemoteRegistries {
    /// The feed of the cluster that holds the configuration.
    pub config_feed: Arc<str>,
    /// Settings of that cluster's registries.
    settings: RegistrySettings,
    /// The providers of Kubernetes and of WorkloadEntries.
    providers: [Provider; 2],
    services: bool,
    workload_entries: bool,
    clusters: BTreeSet<Arc<str>>,
}

impl RemoteRegistries {
    /// Creates registries with the settings of the cluster that holds the configuration, whose id is the name
    /// of the feed. `names` are those of its registries.
    ///
    /// # Errors
    /// If the table lacks Kubernetes or ServiceEntry.
    pub fn new(
        config_feed: Arc<str>,
        table: &RegistryTable,
        names: &[String],
        settings: &RegistrySettings,
    ) -> Result<Self, UnknownRegistry> {
        let has = |name: &str| names.iter().any(|known| known.trim().eq_ignore_ascii_case(name));
        let services = has(KUBERNETES.name);
        let selected = settings.select_workload_entries || settings.select_remote_workload_entries;
        Ok(Self {
            config_feed,
            providers: [table.find(KUBERNETES.name)?.0, table.find(SERVICE_ENTRY.name)?.0],
            services,
            workload_entries: selected && (services || has(SERVICE_ENTRY.name)),
            settings: settings.clone(),
            clusters: BTreeSet::new(),
        })
    }

    /// Number of remote clusters.
    pub fn count(&self) -> usize {
        self.clusters.len()
    }

    /// Creates the feed and the registries of a generation. If the cluster is read already, they replace the
    /// old ones when they are in sync.
    pub fn open(&mut self, controller: &mut AggregateController, generation: &ClusterGeneration) {
        let feed = feed_of(generation);
        controller.add_source(&feed, &cluster_source(&generation.cluster));
        for registry in self.registries(&generation.cluster) {
            controller.replace_registry(registry, &feed);
        }
        self.clusters.insert(generation.cluster.clone());
    }

    fn registries(&self, cluster: &str) -> Vec<Box<dyn Registry>> {
        let settings = RegistrySettings {
            cluster: cluster.into(),
            // Only the cluster with the configuration decides on addresses of remote gateways.
            remote_gateways: false,
            ..self.settings.clone()
        };
        let [kubernetes, entries] = self.providers;
        let mut registries: Vec<Box<dyn Registry>> = Vec::new();
        if self.services {
            registries.push(Box::new(KubernetesRegistry::new(kubernetes, settings.clone())));
        }
        if self.workload_entries {
            registries.push(Box::new(ServiceEntryRegistry::workload_entries_only(entries, settings)));
        }
        registries
    }

    /// Stops readiness from waiting for a generation, and marks its source as failed.
    pub(crate) fn give_up(
        &self,
        controller: &mut AggregateController,
        generation: &ClusterGeneration,
        reason: &Arc<str>,
        at: SystemTime,
    ) {
        tracing::warn!(cluster = %generation.cluster, %reason, "readiness no longer waits for this cluster");
        let feed = feed_of(generation);
        let event = SourceEvent::Failed { at, reason: reason.clone() };
        if let Err(error) = controller.source_event(&feed, &cluster_source(&generation.cluster), event) {
            tracing::error!(%error, "cannot mark the source of a remote cluster as failed");
        }
        for provider in self.providers {
            controller.give_up(&ShardKey::new(provider, &*generation.cluster));
        }
    }

    /// Removes a cluster, with its registries and feeds.
    pub fn remove(
        &mut self,
        controller: &mut AggregateController,
        cluster: &Arc<str>,
        generations: &[ClusterGeneration],
    ) {
        for provider in self.providers {
            controller.remove_registry(&ShardKey::new(provider, &**cluster));
        }
        for generation in generations {
            controller.remove_feed(&feed_of(generation));
        }
        self.clusters.remove(cluster);
    }
}
