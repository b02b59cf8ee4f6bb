//! Several clusters in one hub.

use pilotfish_model::{ChangeSet, World, WorldWriter};
use pilotfish_registry::testing::objects;
use pilotfish_registry::{
    Hub, HubSettings, KubernetesRegistry, ObjectEvent, RegistrySettings, ServiceEntryRegistry, SourceEvent,
};
use std::sync::Arc;

pub fn settings(cluster: &str) -> RegistrySettings {
    RegistrySettings { cluster: cluster.into(), ..RegistrySettings::default() }
}

/// A hub with a feed for each of some clusters; the first is the primary one and has the configuration.
pub struct Mesh {
    pub hub: Hub,
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
        let mut hub = Hub::new(HubSettings { config_feed: primary.into(), primary: primary.into() });
        for cluster in clusters {
            let settings = RegistrySettings { cluster: (*cluster).into(), ..settings.clone() };
            hub.add_source(cluster, "s");
            hub.add_registry(Box::new(KubernetesRegistry::new(settings.clone())), Some(cluster));
            let entries: Box<ServiceEntryRegistry> = if cluster == &primary {
                Box::new(ServiceEntryRegistry::new(settings))
            } else {
                Box::new(ServiceEntryRegistry::workload_entries_only(settings))
            };
            hub.add_registry(entries, Some(cluster));
        }
        Self { hub, writer: WorldWriter::new(), world: Arc::default() }
    }

    pub fn send(&mut self, feed: &str, event: SourceEvent) {
        self.hub.source_event(feed, "s", event).unwrap();
    }

    pub fn apply(&mut self, feed: &str, text: &str) {
        for object in objects(text).unwrap() {
            self.send(feed, SourceEvent::Object(ObjectEvent::Applied(object)));
        }
    }

    /// Takes away the object of `Kind ns/name`.
    pub fn delete(&mut self, feed: &str, key: &str) {
        self.send(feed, SourceEvent::Object(ObjectEvent::Deleted(super::object_key(key))));
    }

    pub fn settle(&mut self) -> ChangeSet {
        for update in self.hub.settle() {
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
