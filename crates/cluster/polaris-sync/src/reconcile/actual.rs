//! Content of the other registry, as last read and changed by calls.

use crate::reconcile::calls::{Call, InstanceRetirement, InstanceWrite, ServiceWrite};
use crate::reconcile::{AliasKey, InstanceKey, Metadata, Place, ServiceKey, Target, Text};
use std::collections::{BTreeMap, BTreeSet};

/// Content of the other registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actual {
    pub namespaces: BTreeSet<Text>,
    /// Services of all owners.
    pub services: BTreeMap<ServiceKey, ActualService>,
    /// Aliases of all owners.
    pub aliases: BTreeMap<AliasKey, ActualAlias>,
    /// Instances by service: all of ours, and those of other owners that were read.
    pub instances: BTreeMap<ServiceKey, BTreeMap<Place, ActualInstance>>,
}

/// A service of the other registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActualService {
    pub metadata: Metadata,
    pub ports: BTreeSet<u16>,
    /// Owners, in the registry's format.
    pub owners: Text,
}

/// An alias of the other registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualAlias {
    /// The service of the alias.
    pub service: ServiceKey,
    /// True if this cluster's sync created it.
    pub is_ours: bool,
    /// True if we may change its target: it is ours, or was created by polaris-controller.
    pub is_adoptable: bool,
}

/// An instance of the other registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActualInstance {
    pub protocol: Text,
    pub version: Text,
    pub weight: u32,
    /// True if the registry considers it healthy.
    pub healthy: bool,
    /// True if it is out of rotation.
    pub isolated: bool,
    /// The heartbeat period of its health check, in seconds.
    pub ttl: Option<u8>,
    pub metadata: Metadata,
    /// Changes with every write of the instance; empty if the registry has no revisions, or after a write of
    /// ours.
    pub revision: Text,
}

impl Actual {
    /// Returns an instance that was read.
    #[must_use]
    pub fn instance(&self, key: &InstanceKey) -> Option<&ActualInstance> {
        self.instances.get(&key.service)?.get(&key.place)
    }

    /// Sets the state of an instance: `None` if it does not exist.
    pub fn set_instance(&mut self, key: &InstanceKey, instance: Option<ActualInstance>) {
        match instance {
            Some(instance) => {
                self.instances.entry(key.service.clone()).or_default().insert(key.place.clone(), instance);
            }
            None => {
                if let Some(places) = self.instances.get_mut(&key.service) {
                    places.remove(&key.place);
                    if places.is_empty() {
                        self.instances.remove(&key.service);
                    }
                }
            }
        }
    }

    /// Number of our instances.
    pub fn owned(&self, target: &dyn Target) -> usize {
        let all = self.instances.values().flat_map(BTreeMap::values);
        all.filter(|instance| target.owns(&instance.metadata)).count()
    }

    /// Applies a call whose elements all succeeded.
    pub fn apply(&mut self, call: &Call) {
        match call {
            Call::CreateNamespaces(names) => self.namespaces.extend(names.iter().cloned()),
            Call::CreateServices(services) | Call::UpdateServices(services) => {
                services.iter().for_each(|service| self.wrote_service(service));
            }
            Call::CreateAlias(alias, service) | Call::UpdateAlias(alias, service) => {
                let now = ActualAlias { service: service.clone(), is_ours: true, is_adoptable: true };
                self.aliases.insert(alias.clone(), now);
            }
            Call::DeleteAliases(aliases) => aliases.iter().for_each(|alias| {
                self.aliases.remove(alias);
            }),
            Call::CreateInstances(writes) | Call::UpdateInstances(writes) => {
                writes.iter().for_each(|write| self.wrote_instance(write));
            }
            Call::RetireInstances(retirements) => retirements.iter().for_each(|one| self.retired(one)),
            Call::DeleteInstances(keys) => keys.iter().for_each(|key| self.set_instance(key, None)),
        }
    }

    fn wrote_service(&mut self, write: &ServiceWrite) {
        let service = self.services.entry(write.key.clone()).or_default();
        service.metadata.clone_from(&write.metadata);
        service.ports.extend(&write.ports);
        service.owners = write.owners.clone();
    }

    fn retired(&mut self, retirement: &InstanceRetirement) {
        let places = self.instances.get_mut(&retirement.key.service);
        if let Some(instance) = places.and_then(|places| places.get_mut(&retirement.key.place)) {
            instance.isolated = true;
            instance.metadata.clone_from(&retirement.metadata);
            instance.revision = Text::default();
        }
    }

    fn wrote_instance(&mut self, write: &InstanceWrite) {
        let before = self.instance(&write.key);
        let isolated = write.isolate.unwrap_or_else(|| before.is_some_and(|before| before.isolated));
        let instance = &write.instance;
        // Health of an instance with a health check depends on its heartbeats.
        let healthy = instance.ttl.is_none() || before.is_none_or(|before| before.healthy);
        let now = ActualInstance {
            protocol: instance.protocol.clone(),
            version: instance.version.clone(),
            weight: instance.weight,
            healthy,
            isolated,
            ttl: instance.ttl,
            metadata: instance.metadata.clone(),
            revision: Text::default(),
        };
        self.set_instance(&write.key, Some(now));
    }
}
