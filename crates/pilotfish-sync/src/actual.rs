//! What the other registry has, as far as it was read, and what calls made of it.

use crate::plan::{Call, InstanceRetirement, InstanceWrite, ServiceWrite};
use crate::{AliasKey, InstanceKey, Metadata, Place, ServiceKey, Target, Text};
use std::collections::{BTreeMap, BTreeSet};

/// What the other registry has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actual {
    /// Namespaces.
    pub namespaces: BTreeSet<Text>,
    /// Services, whoever made them.
    pub services: BTreeMap<ServiceKey, ActualService>,
    /// Aliases, whoever made them.
    pub aliases: BTreeMap<AliasKey, ActualAlias>,
    /// Instances by service: all that are ours, and those of others that were seen.
    pub instances: BTreeMap<ServiceKey, BTreeMap<Place, ActualInstance>>,
}

/// A service that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActualService {
    /// Its metadata.
    pub metadata: Metadata,
    /// Its ports.
    pub ports: BTreeSet<u16>,
    /// Who it belongs to, in the registry's own words.
    pub owners: Text,
}

/// An alias that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualAlias {
    /// The service that it stands for.
    pub service: ServiceKey,
    /// Whether we made it, for this cluster.
    pub is_ours: bool,
    /// Whether we may change where it points to: it is ours, or of the controller before us.
    pub is_adoptable: bool,
}

/// An instance that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActualInstance {
    /// Its protocol.
    pub protocol: Text,
    /// Its version.
    pub version: Text,
    /// Its weight.
    pub weight: u32,
    /// Whether the registry takes it as healthy.
    pub healthy: bool,
    /// Whether it is out of rotation.
    pub isolated: bool,
    /// The heartbeat period of its health check, in seconds.
    pub ttl: Option<u8>,
    /// Its metadata.
    pub metadata: Metadata,
    /// Changes with every write of the instance; empty where the registry has none, or after a write of ours.
    pub revision: Text,
}

impl Actual {
    /// An instance, when it was seen.
    #[must_use]
    pub fn instance(&self, key: &InstanceKey) -> Option<&ActualInstance> {
        self.instances.get(&key.service)?.get(&key.place)
    }

    /// Sets what was seen of an instance: `None` when it is not there.
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

    /// How many instances are ours.
    pub fn owned(&self, target: &dyn Target) -> usize {
        let all = self.instances.values().flat_map(BTreeMap::values);
        all.filter(|instance| target.owns(&instance.metadata)).count()
    }

    /// What a call that succeeded as a whole has made of it.
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
        // Whether one with a health check is healthy is for its heartbeats to say.
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
