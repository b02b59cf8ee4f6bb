//! Replacement of nodes that cannot be read any more.

use super::{Mirror, Place, Registrations};

impl Mirror {
    /// Restores the last readable state of an unreadable node, from this session or the previous one.
    pub(super) fn stand_in(&mut self, place: Place<'_>) {
        match place {
            Place::Providers(interface) => {
                let before = self.before.interfaces.get(interface).map(|known| known.providers.clone());
                let nodes = before.unwrap_or_default().into_keys();
                nodes.for_each(|node| self.created(Place::Provider(interface, &node)));
            }
            Place::Configurators(interface) => {
                let before = self.before.interfaces.get(interface).map(|known| known.overrides.clone());
                let nodes = before.unwrap_or_default().into_keys();
                nodes.for_each(|node| self.created(Place::Configurator(interface, &node)));
            }
            Place::Application(application) => {
                let before = self.before.applications.get(application).map(|known| known.instances.clone());
                before.unwrap_or_default().into_iter().for_each(|(node, instance)| {
                    self.instance(application, &node, instance);
                });
            }
            Place::Instance(application, node) => {
                let known =
                    |of: &Registrations| of.applications.get(application)?.instances.get(node).cloned();
                if known(&self.known).is_none()
                    && let Some(instance) = known(&self.before)
                {
                    self.instance(application, node, instance);
                }
            }
            Place::Revision(application, revision) => {
                let known =
                    |of: &Registrations| of.applications.get(application)?.metadata.get(revision).cloned();
                if known(&self.known).is_none()
                    && let Some(metadata) = known(&self.before)
                {
                    self.revision(application, revision, metadata);
                }
            }
            Place::MappingRoot => {
                let before: Vec<String> = self.before.mapped_interfaces().map(str::to_owned).collect();
                before.iter().for_each(|interface| self.stand_in(Place::Mapping(interface)));
            }
            Place::Mapping(interface) => {
                if self.known.mapping_of(interface).is_none()
                    && let Some(applications) = self.before.mapping_of(interface).cloned()
                {
                    self.map(interface, &applications);
                }
            }
            _ => {}
        }
    }
}
