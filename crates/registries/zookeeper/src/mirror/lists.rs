//! Lists of children: new children are read or added, missing ones are removed.

use super::{Layout, Mirror, Place};
use std::collections::BTreeSet;

impl Mirror {
    /// Handles a list of children.
    pub(super) fn listed(&mut self, place: Place<'_>, names: Vec<String>) {
        let names: BTreeSet<String> = names.into_iter().collect();
        match place {
            Place::DubboRoot => self.list_interfaces(&names),
            Place::ServicesRoot => self.list_applications(&names),
            Place::MappingRoot => {
                let gone: Vec<String> = self
                    .known
                    .mapped_interfaces()
                    .filter(|name| !names.contains(*name))
                    .map(str::to_owned)
                    .collect();
                gone.iter().for_each(|name| self.gone(Place::Mapping(name)));
                names.iter().for_each(|name| self.want(Place::Mapping(name)));
            }
            Place::Providers(interface) => {
                let known =
                    self.known.interfaces.get(interface).into_iter().flat_map(|it| it.providers.keys());
                let gone: Vec<String> = known.filter(|node| !names.contains(*node)).cloned().collect();
                gone.iter().for_each(|node| self.gone(Place::Provider(interface, node)));
                names.iter().for_each(|node| self.created(Place::Provider(interface, node)));
            }
            Place::Configurators(interface) => {
                let known =
                    self.known.interfaces.get(interface).into_iter().flat_map(|it| it.overrides.keys());
                let gone: Vec<String> = known.filter(|node| !names.contains(*node)).cloned().collect();
                gone.iter().for_each(|node| self.gone(Place::Configurator(interface, node)));
                names.iter().for_each(|node| self.created(Place::Configurator(interface, node)));
            }
            Place::Application(application) => {
                let known =
                    self.known.applications.get(application).into_iter().flat_map(|it| it.instances.keys());
                let gone: Vec<String> = known.filter(|node| !names.contains(*node)).cloned().collect();
                gone.iter().for_each(|node| self.gone(Place::Instance(application, node)));
                names.iter().for_each(|node| self.want(Place::Instance(application, node)));
            }
            _ => {}
        }
    }

    pub(super) fn list_interfaces(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> =
            self.known.interfaces.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.gone(Place::Interface(name)));
        for name in names.iter().filter(|name| Layout::is_interface(name)) {
            if !self.known.interfaces.contains_key(name) {
                self.created(Place::Interface(name));
                self.want(Place::Providers(name));
                self.want(Place::Configurators(name));
            }
        }
    }

    pub(super) fn list_applications(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> =
            self.known.applications.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.gone(Place::Application(name)));
        for name in names {
            if !self.known.applications.contains_key(name) {
                self.created(Place::Application(name));
                self.want(Place::Application(name));
            }
        }
    }
}
