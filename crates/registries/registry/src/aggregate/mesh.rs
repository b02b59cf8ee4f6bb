//! Routes objects of feeds to the registries that read them, to the world, and into the mesh-wide settings.

use super::{AggregateController, RegistryEntry};
use crate::registry::{Mesh, ObjectEvent};
use pilotfish_config::mesh::{MeshConfig, MeshNetworks};
use pilotfish_model::{Kind, Object, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl AggregateController {
    /// Passes events of a feed on to the registries that read it; those of the configuration feed to the
    /// world, too.
    pub(super) fn route(&mut self, feed: &str, events: &[ObjectEvent]) {
        for event in events {
            let kind = event.key().kind;
            for entry in self.all_entries_mut().filter(|entry| entry.feed().is_some_and(|own| **own == *feed))
            {
                if entry.reads(kind) {
                    entry.input(|registry| registry.apply(event));
                }
            }
            if *feed == *self.settings.config_feed {
                self.configure(event);
            } else if kind == Kind::MeshConfig {
                self.pass_mesh_to(|entry| entry.feed().is_some_and(|own| **own == *feed));
            }
        }
    }

    /// Passes an object of the configuration feed to the world, and mesh-wide settings to the registries.
    fn configure(&mut self, event: &ObjectEvent) {
        let kind = event.key().kind;
        if is_for_registries(kind) {
            return;
        }
        self.updates.push(match event {
            ObjectEvent::Applied(object) => Update::Object(object.clone()),
            ObjectEvent::Deleted(key) => Update::RemoveObject(key.clone()),
        });
        let object = event.object();
        let mesh = match kind {
            Kind::MeshConfig => {
                Mesh { config: object.and_then(Object::typed::<MeshConfig>), ..self.mesh.clone() }
            }
            Kind::MeshNetworks => {
                Mesh { networks: object.and_then(Object::typed::<MeshNetworks>), ..self.mesh.clone() }
            }
            _ => return,
        };
        if mesh == self.mesh {
            return;
        }
        self.mesh = mesh;
        self.touched.gateways = true;
        self.pass_mesh_to(|_| true);
        self.select_namespaces();
    }

    /// Mesh-wide settings for registries that read a feed. Of another cluster's settings only the trust
    /// domain is used.
    pub(super) fn mesh_of(&self, feed: &str) -> Mesh {
        let other = (*feed != *self.settings.config_feed).then_some(feed);
        let own = other.and_then(|feed| self.feeds.get(feed)).and_then(|feed| {
            let config = feed.visible(&[Kind::MeshConfig]).next()?.typed::<MeshConfig>()?;
            Some(config.trust_domain.as_str().into())
        });
        Mesh { own_trust_domain: own, ..self.mesh.clone() }
    }

    /// Passes the current mesh-wide settings to registries.
    fn pass_mesh_to(&mut self, to: impl Fn(&RegistryEntry) -> bool) {
        let feeds: BTreeSet<Arc<str>> =
            self.all_entries().filter_map(|entry| entry.feed().cloned()).collect();
        let meshes: BTreeMap<Arc<str>, Mesh> =
            feeds.into_iter().map(|feed| (feed.clone(), self.mesh_of(&feed))).collect();
        for entry in self.all_entries_mut().filter(|entry| to(entry)) {
            if let Some(mesh) = entry.feed().and_then(|feed| meshes.get(feed)) {
                entry.input(|registry| registry.mesh(mesh));
            }
        }
    }

    /// Applies the discovery selectors of the mesh.
    pub(super) fn select_namespaces(&mut self) {
        let selectors = self.mesh.config.as_ref().map(|config| config.discovery_selectors.clone());
        let selectors = selectors.unwrap_or_default();
        let names: Vec<Arc<str>> = self.feeds.keys().cloned().collect();
        for name in names {
            let mut events = Vec::new();
            if let Some(feed) = self.feeds.get_mut(&name) {
                feed.select(&selectors, &mut events);
            }
            self.route(&name, &events);
        }
    }
}

/// The kinds whose content reaches the world as services, endpoints and workloads only.
fn is_for_registries(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Service
            | Kind::EndpointSlice
            | Kind::Pod
            | Kind::Node
            | Kind::ServiceExport
            | Kind::ServiceImport
    )
}
