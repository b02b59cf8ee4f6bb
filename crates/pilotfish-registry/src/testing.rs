//! Worlds made of objects in one call, for the tests of this crate and of those that read worlds.

use crate::{Hub, HubSettings, ObjectEvent, RegistrySettings, SourceEvent, select};
use pilotfish_model::{Object, World, WorldWriter};
use std::sync::Arc;

/// The name of the one source that feeds the hubs of this module.
pub const SOURCE: &str = "test";

/// The registries that read objects, for the cluster `Kubernetes`, fed by one source that is not yet in sync.
#[must_use]
pub fn hub() -> Hub {
    let settings = HubSettings::default();
    let feed = settings.config_feed.clone();
    let mut hub = Hub::new(settings);
    hub.add_source(&feed, SOURCE);
    for registry in select(&["Kubernetes", "ServiceEntry"]).into_iter().flatten() {
        hub.add_registry((registry.new)(RegistrySettings::default()), Some(&feed));
    }
    hub
}

/// Sends one message of the source to a hub made by [`hub`].
pub fn send(hub: &mut Hub, event: SourceEvent) {
    let feed = HubSettings::default().config_feed;
    if let Err(error) = hub.source_event(&feed, SOURCE, event) {
        tracing::error!(%error, "the hub was not made by this module");
    }
}

/// The world of some objects, with all registries in sync: cluster `Kubernetes`, domain `cluster.local`.
#[must_use]
pub fn world_from_objects(objects: impl IntoIterator<Item = Object>) -> Arc<World> {
    let mut hub = hub();
    for object in objects {
        send(&mut hub, SourceEvent::Object(ObjectEvent::Applied(object)));
    }
    send(&mut hub, SourceEvent::Synced);
    let mut writer = WorldWriter::new();
    for update in hub.settle() {
        writer.apply(update);
    }
    writer.publish().map(|(world, _)| world).unwrap_or_default()
}
