//! Updates of the mirror for single nodes: created, read or deleted.

use super::{Application, Interface, MAX_NODES, Mirror, Place};
use crate::dubbo::{DubboUrl, Instance, Metadata, Override, mapped_applications};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Mirror {
    /// Handles a new node. Its children are reported by their own events, or read if their list was
    /// requested.
    pub(super) fn created(&mut self, place: Place<'_>) {
        let Some(path) = self.layout.path(place) else { return };
        match place {
            Place::Interface(name) => self.interface(name, &path),
            Place::Application(name) => self.application(name, &path),
            Place::Provider(interface, node) => self.provider(interface, node, &path),
            Place::Configurator(interface, node) => self.configurator(interface, node, &path),
            place if place.has_data() && self.is_wanted(place) => self.want(place),
            _ => {}
        }
    }

    pub(super) fn interface(&mut self, name: &str, path: &str) {
        if !self.known.interfaces.contains_key(name) && self.has_room(path) {
            self.known.interfaces.insert(name.to_owned(), Interface::default());
            self.changed.interfaces.insert(name.to_owned());
        }
    }

    pub(super) fn application(&mut self, name: &str, path: &str) {
        if !self.known.applications.contains_key(name) && self.has_room(path) {
            self.known.applications.insert(name.to_owned(), Application::default());
            self.changed.applications.insert(name.to_owned());
        }
    }

    pub(super) fn provider(&mut self, interface: &str, node: &str, path: &str) {
        let Some(known) = self.known.interfaces.get(interface) else { return };
        if known.providers.contains_key(node) || !self.has_room(path) {
            return;
        }
        match DubboUrl::parse_node(node) {
            Ok(url) => {
                if let Some(known) = self.known.interfaces.get_mut(interface) {
                    known.providers.insert(node.to_owned(), Arc::new(url));
                    self.changed.interfaces.insert(interface.to_owned());
                }
            }
            Err(error) => {
                self.nodes -= 1;
                self.troubles.note(path, &error);
            }
        }
    }

    pub(super) fn configurator(&mut self, interface: &str, node: &str, path: &str) {
        let Some(known) = self.known.interfaces.get(interface) else { return };
        if known.overrides.contains_key(node) || !self.has_room(path) {
            return;
        }
        let parsed = DubboUrl::parse_node(node).map(Override::of);
        match (parsed, self.known.interfaces.get_mut(interface)) {
            (Ok(Some(given)), Some(known)) => {
                known.overrides.insert(node.to_owned(), given);
                self.changed.interfaces.insert(interface.to_owned());
            }
            (parsed, _) => {
                self.nodes -= 1;
                if let Err(error) = parsed {
                    self.troubles.note(path, &error);
                }
            }
        }
    }

    /// Handles a deleted node, with everything below it.
    pub(super) fn gone(&mut self, place: Place<'_>) {
        if let Some(path) = self.layout.path(place) {
            self.troubles.clear(&path);
        }
        match place {
            Place::Interface(name) => {
                if let Some(interface) = self.known.interfaces.remove(name) {
                    self.nodes -= 1 + interface.providers.len() + interface.overrides.len();
                    self.changed.interfaces.insert(name.to_owned());
                }
            }
            Place::Provider(interface, node) => {
                let known = self.known.interfaces.get_mut(interface);
                if known.is_some_and(|known| known.providers.remove(node).is_some()) {
                    self.nodes -= 1;
                    self.changed.interfaces.insert(interface.to_owned());
                }
            }
            Place::Configurator(interface, node) => {
                let known = self.known.interfaces.get_mut(interface);
                if known.is_some_and(|known| known.overrides.remove(node).is_some()) {
                    self.nodes -= 1;
                    self.changed.interfaces.insert(interface.to_owned());
                }
            }
            Place::Mapping(interface) => self.map(interface, &BTreeSet::new()),
            Place::Application(name) => {
                if let Some(application) = self.known.applications.remove(name) {
                    self.nodes -= 1 + application.instances.len();
                    self.changed.applications.insert(name.to_owned());
                }
            }
            Place::Instance(application, node) => {
                let known = self.known.applications.get_mut(application);
                if known.is_some_and(|known| known.instances.remove(node).is_some()) {
                    self.nodes -= 1;
                    self.changed.applications.insert(application.to_owned());
                    self.forget_revisions(application);
                }
            }
            // The children have their own delete events, or their counts were updated with the response.
            Place::Providers(_)
            | Place::Configurators(_)
            | Place::DubboRoot
            | Place::ServicesRoot
            | Place::MappingRoot => {
                self.listed(place, Vec::new());
            }
            // Instances keep their revision.
            Place::Revision(..) => {}
        }
    }

    /// Handles the data of a node.
    pub(super) fn read(&mut self, place: Place<'_>, path: &str, data: &[u8]) {
        match place {
            Place::Mapping(interface) => self.map(interface, &mapped_applications(data)),
            Place::Instance(application, node) => match Instance::parse(data) {
                Ok(instance) => {
                    self.troubles.clear(path);
                    self.instance(application, node, Arc::new(instance));
                }
                Err(error) => {
                    self.troubles.note(path, &error);
                    self.stand_in(place);
                }
            },
            Place::Revision(application, revision) => match Metadata::parse(data) {
                Ok(metadata) => {
                    self.troubles.clear(path);
                    self.revision(application, revision, Arc::new(metadata));
                }
                Err(error) => {
                    self.troubles.note(path, &error);
                    self.stand_in(place);
                }
            },
            _ => {}
        }
    }

    pub(super) fn map(&mut self, interface: &str, applications: &BTreeSet<String>) {
        let is_known = self.known.mapping_of(interface).is_some();
        match (is_known, applications.is_empty()) {
            (false, false) if !self.has_room(interface) => return,
            (true, true) => self.nodes -= 1,
            _ => {}
        }
        if self.known.map(interface, applications) {
            self.changed.interfaces.insert(interface.to_owned());
        }
    }

    pub(super) fn instance(&mut self, application: &str, node: &str, instance: Arc<Instance>) {
        let Some(known) = self.known.applications.get(application) else { return };
        let is_new = !known.instances.contains_key(node);
        if known.instances.get(node) == Some(&instance) {
            return;
        }
        let path = self.layout.path(Place::Instance(application, node)).unwrap_or_default();
        if is_new && !self.has_room(&path) {
            return;
        }
        let revision = instance.stored_revision().map(str::to_owned);
        if let Some(known) = self.known.applications.get_mut(application) {
            known.instances.insert(node.to_owned(), instance);
            self.changed.applications.insert(application.to_owned());
            if let Some(revision) = revision
                && !known.metadata.contains_key(&revision)
            {
                self.want(Place::Revision(application, &revision));
            }
        }
        self.forget_revisions(application);
    }

    pub(super) fn revision(&mut self, application: &str, revision: &str, metadata: Arc<Metadata>) {
        if !self.is_revision_wanted(application, revision) {
            return;
        }
        if let Some(known) = self.known.applications.get_mut(application)
            && known.metadata.get(revision) != Some(&metadata)
        {
            known.metadata.insert(revision.to_owned(), metadata);
            self.changed.applications.insert(application.to_owned());
        }
    }

    /// Removes revisions that no instance has.
    pub(super) fn forget_revisions(&mut self, application: &str) {
        let Some(known) = self.known.applications.get_mut(application) else { return };
        let Application { instances, metadata } = known;
        if !metadata.is_empty() {
            let used: BTreeSet<&str> =
                instances.values().filter_map(|instance| instance.stored_revision()).collect();
            metadata.retain(|revision, _| used.contains(revision.as_str()));
        }
    }

    /// Counts one more node, unless the limit is reached.
    pub(super) fn has_room(&mut self, path: &str) -> bool {
        if self.nodes >= MAX_NODES {
            self.troubles.note(path, &format_args!("left out: {MAX_NODES} nodes are kept at most"));
            return false;
        }
        self.nodes += 1;
        true
    }
}
