//! Several clusters in one controller.

use pilotfish_config::SourceEvent;
use pilotfish_model::{ChangeSet, World, WorldWriter};
use pilotfish_registry::testing::{EXTERNAL, KUBERNETES, objects};
use pilotfish_registry::{
    AggregateController, AggregateSettings, KubernetesRegistry, RegistrySettings, ServiceEntryRegistry,
};
use std::sync::Arc;

pub fn settings(cluster: &str) -> RegistrySettings {
    RegistrySettings { cluster: cluster.into(), ..RegistrySettings::default() }
}

/// A controller with a feed for each of some clusters; the first is the primary one and has the
/// configuration.
pub struct Mesh {
    pub controller: AggregateController,
    writer: WorldWriter,
    world: Arc<World>,
}

impl Mesh {
    pub fn new(clusters: &[&str]) -> Self {
        Self::with(clusters, &RegistrySettings::default())
    }

    /// The same with other settings, but for the cluster.
    pub fn with(clusters: &[&str], settings: &RegistrySettings) -> Self {
        let primary = clusters[0];
        let aggregate = AggregateSettings {
            config_feed: primary.into(),
            primary: primary.into(),
            ..AggregateSettings::default()
        };
        Self::with_aggregate(aggregate, clusters, settings)
    }

    /// The same with other settings of the controller.
    pub fn with_aggregate(
        aggregate: AggregateSettings,
        clusters: &[&str],
        settings: &RegistrySettings,
    ) -> Self {
        let primary = clusters[0];
        let mut controller = AggregateController::new(aggregate);
        for cluster in clusters {
            let settings = RegistrySettings { cluster: (*cluster).into(), ..settings.clone() };
            controller.add_source(cluster, "s");
            controller.add_registry(Box::new(KubernetesRegistry::new(KUBERNETES, settings.clone())), cluster);
            let entries: Box<ServiceEntryRegistry> = if cluster == &primary {
                Box::new(ServiceEntryRegistry::new(EXTERNAL, settings))
            } else {
                Box::new(ServiceEntryRegistry::workload_entries_only(EXTERNAL, settings))
            };
            controller.add_registry(entries, cluster);
        }
        Self { controller, writer: WorldWriter::new(), world: Arc::default() }
    }

    pub fn send(&mut self, feed: &str, event: SourceEvent) {
        self.controller.source_event(feed, "s", event).unwrap();
    }

    pub fn apply(&mut self, feed: &str, text: &str) {
        for object in objects(text).unwrap() {
            self.send(feed, SourceEvent::Apply(object));
        }
    }

    /// Takes away the object of `Kind ns/name`.
    pub fn delete(&mut self, feed: &str, key: &str) {
        self.send(feed, SourceEvent::Delete(super::object_key(key)));
    }

    pub fn settle(&mut self) -> ChangeSet {
        for update in self.controller.settle() {
            self.writer.apply(update);
        }
        let Some((world, changes)) = self.writer.publish() else { return ChangeSet::default() };
        self.world = world;
        changes
    }

    pub fn world(&mut self) -> Arc<World> {
        self.settle();
        self.world.clone()
    }
}
