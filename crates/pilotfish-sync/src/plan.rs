//! What has to be called so that the registry has what it should.

use crate::actual::{Actual, ActualInstance, ActualService};
use crate::{AliasKey, Desired, DesiredService, Instance, InstanceKey, Metadata, ServiceKey, Target, Text};
use std::collections::BTreeSet;

/// One call. Its elements succeed or fail by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Makes namespaces.
    CreateNamespaces(Vec<Text>),
    /// Makes services.
    CreateServices(Vec<ServiceWrite>),
    /// Changes services.
    UpdateServices(Vec<ServiceWrite>),
    /// Makes an alias of a service.
    CreateAlias(AliasKey, ServiceKey),
    /// Lets an alias stand for this service.
    UpdateAlias(AliasKey, ServiceKey),
    /// Registers instances.
    CreateInstances(Vec<InstanceWrite>),
    /// Changes instances.
    UpdateInstances(Vec<InstanceWrite>),
    /// Takes instances out of rotation that are deleted next.
    RetireInstances(Vec<InstanceRetirement>),
    /// Deregisters instances.
    DeleteInstances(Vec<InstanceKey>),
    /// Deletes aliases.
    DeleteAliases(Vec<AliasKey>),
}

impl Call {
    /// What it does, in a word or two for logs, tables and labels of metrics.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::CreateNamespaces(_) => "create_namespaces",
            Self::CreateServices(_) => "create_services",
            Self::UpdateServices(_) => "update_services",
            Self::CreateAlias(..) => "create_alias",
            Self::UpdateAlias(..) => "update_alias",
            Self::CreateInstances(_) => "create_instances",
            Self::UpdateInstances(_) => "update_instances",
            Self::RetireInstances(_) => "retire_instances",
            Self::DeleteInstances(_) => "delete_instances",
            Self::DeleteAliases(_) => "delete_aliases",
        }
    }

    /// How many elements it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::CreateNamespaces(all) => all.len(),
            Self::CreateServices(all) | Self::UpdateServices(all) => all.len(),
            Self::CreateAlias(..) | Self::UpdateAlias(..) => 1,
            Self::CreateInstances(all) | Self::UpdateInstances(all) => all.len(),
            Self::RetireInstances(all) => all.len(),
            Self::DeleteInstances(all) => all.len(),
            Self::DeleteAliases(all) => all.len(),
        }
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same call with these of its elements alone, counted from 0.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(usize) -> bool) -> Self {
        fn some<T: Clone>(all: &[T], wanted: impl Fn(usize) -> bool) -> Vec<T> {
            all.iter().enumerate().filter(|(at, _)| wanted(*at)).map(|(_, one)| one.clone()).collect()
        }
        match self {
            Self::CreateNamespaces(all) => Self::CreateNamespaces(some(all, wanted)),
            Self::CreateServices(all) => Self::CreateServices(some(all, wanted)),
            Self::UpdateServices(all) => Self::UpdateServices(some(all, wanted)),
            Self::CreateInstances(all) => Self::CreateInstances(some(all, wanted)),
            Self::UpdateInstances(all) => Self::UpdateInstances(some(all, wanted)),
            Self::RetireInstances(all) => Self::RetireInstances(some(all, wanted)),
            Self::DeleteInstances(all) => Self::DeleteInstances(some(all, wanted)),
            Self::DeleteAliases(all) => Self::DeleteAliases(some(all, wanted)),
            Self::CreateAlias(..) | Self::UpdateAlias(..) => self.clone(),
        }
    }

    /// The service that an element is about; `None` for a namespace.
    #[must_use]
    pub fn service(&self, at: usize) -> Option<&ServiceKey> {
        match self {
            Self::CreateNamespaces(_) => None,
            Self::CreateServices(all) | Self::UpdateServices(all) => all.get(at).map(|write| &write.key),
            Self::CreateAlias(_, service) | Self::UpdateAlias(_, service) => Some(service),
            Self::CreateInstances(all) | Self::UpdateInstances(all) => {
                all.get(at).map(|write| &write.key.service)
            }
            Self::RetireInstances(all) => all.get(at).map(|one| &one.key.service),
            Self::DeleteInstances(all) => all.get(at).map(|key| &key.service),
            Self::DeleteAliases(all) => all.get(at).map(|alias| &alias.0),
        }
    }
}

/// What a service becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceWrite {
    /// Which service.
    pub key: ServiceKey,
    /// All of its metadata: what others have set stays.
    pub metadata: Metadata,
    /// The ports that we want it to have.
    pub ports: BTreeSet<u16>,
    /// Who it belongs to: as it was, empty for a new one.
    pub owners: Text,
}

/// What an instance becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceWrite {
    /// Which instance.
    pub key: InstanceKey,
    /// All of it.
    pub instance: Instance,
    /// Whether it is out of rotation; `None` leaves that as it is.
    pub isolate: Option<bool>,
}

/// An instance that is taken out of rotation before it is deleted: clients let it go before its connections end, and a registry
/// that shows deleted instances does not send requests to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRetirement {
    /// Service and place of the instance.
    pub key: InstanceKey,
    /// All of its metadata from now on.
    pub metadata: Metadata,
}

/// Calls in phases: those of a phase may be sent at once, after all of the phase before. What is new is there before anything is deleted,
/// so that a service that gets another name has instances all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The phases; none of them is empty.
    pub phases: Vec<Vec<Call>>,
    /// Instances of others where ours should be. They are not touched.
    pub conflicts: Vec<InstanceKey>,
    /// Aliases that cannot be made: the name is a service's, or an alias of others.
    pub taken_aliases: Vec<AliasKey>,
    /// Instances that a person has isolated although they are ready. They stay isolated.
    pub isolated: Vec<InstanceKey>,
}

impl Plan {
    /// Whether there is nothing to call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.phases.is_empty()
    }

    /// All calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.phases.iter().flatten()
    }

    /// The instances that would go.
    pub fn deletions(&self) -> impl Iterator<Item = &InstanceKey> {
        self.calls().flat_map(|call| match call {
            Call::DeleteInstances(keys) => keys.as_slice(),
            _ => &[],
        })
    }

    /// How many instances would come.
    #[must_use]
    pub fn creations(&self) -> usize {
        let of = |call: &Call| if matches!(call, Call::CreateInstances(_)) { call.len() } else { 0 };
        self.calls().map(of).sum()
    }

    /// The plan without deletions, and without what prepares them.
    #[must_use]
    pub fn without_deletions(mut self) -> Self {
        for phase in &mut self.phases {
            phase.retain(|call| {
                !matches!(call, Call::RetireInstances(_) | Call::DeleteInstances(_) | Call::DeleteAliases(_))
            });
        }
        self.phases.retain(|phase| !phase.is_empty());
        self
    }
}

/// Compares. `scope` limits it to some services; without one everything counts, and so do instances of ours in services that nobody
/// wants any more.
#[must_use]
pub fn plan(
    target: &dyn Target,
    desired: &Desired,
    actual: &Actual,
    scope: Option<&BTreeSet<ServiceKey>>,
) -> Plan {
    let can = target.capabilities();
    let mut draft = Draft::new(target, actual);
    if can.namespaces {
        draft.namespaces = desired.namespaces.difference(&actual.namespaces).cloned().collect();
    }
    let in_scope = |key: &ServiceKey| scope.is_none_or(|scope| scope.contains(key));
    for (key, service) in desired.services.iter().filter(|(key, _)| in_scope(key)) {
        if can.services {
            draft.service(key, service);
        }
        draft.instances(key, service);
    }
    for (key, places) in actual.instances.iter().filter(|(key, _)| in_scope(key)) {
        let wanted = desired.services.get(key).map(|service| &service.instances);
        let is_wanted = |place| wanted.is_some_and(|wanted| wanted.contains_key(place));
        let gone = places.iter().filter(|(place, known)| !is_wanted(place) && target.owns(&known.metadata));
        for (place, known) in gone {
            let key = InstanceKey::new(key.clone(), place.clone());
            draft
                .retired
                .push(InstanceRetirement { key: key.clone(), metadata: target.retired(&known.metadata) });
            draft.deleted.push(key);
        }
    }
    if can.aliases {
        draft.aliases(desired, scope);
    }
    draft.finish(can.batch.max(1))
}

/// A plan in the making.
struct Draft<'a> {
    target: &'a dyn Target,
    actual: &'a Actual,
    namespaces: Vec<Text>,
    new_services: Vec<ServiceWrite>,
    changed_services: Vec<ServiceWrite>,
    aliases: Vec<Call>,
    created: Vec<InstanceWrite>,
    updated: Vec<InstanceWrite>,
    retired: Vec<InstanceRetirement>,
    deleted: Vec<InstanceKey>,
    old_aliases: Vec<AliasKey>,
    aliases_in_the_way: Vec<AliasKey>,
    conflicts: Vec<InstanceKey>,
    taken_aliases: Vec<AliasKey>,
    isolated: Vec<InstanceKey>,
}

impl<'a> Draft<'a> {
    fn new(target: &'a dyn Target, actual: &'a Actual) -> Self {
        Self {
            target,
            actual,
            namespaces: Vec::new(),
            new_services: Vec::new(),
            changed_services: Vec::new(),
            aliases: Vec::new(),
            created: Vec::new(),
            updated: Vec::new(),
            retired: Vec::new(),
            deleted: Vec::new(),
            old_aliases: Vec::new(),
            aliases_in_the_way: Vec::new(),
            conflicts: Vec::new(),
            taken_aliases: Vec::new(),
            isolated: Vec::new(),
        }
    }

    fn service(&mut self, key: &ServiceKey, wanted: &DesiredService) {
        match self.actual.services.get(key) {
            None => self.new_services.push(ServiceWrite {
                key: key.clone(),
                metadata: wanted.metadata.clone(),
                ports: wanted.ports.clone(),
                owners: Text::default(),
            }),
            Some(known) => self.changed_services.extend(merged(key, wanted, known)),
        }
    }

    fn instances(&mut self, key: &ServiceKey, wanted: &DesiredService) {
        let known = self.actual.instances.get(key);
        for (place, instance) in &wanted.instances {
            let key = || InstanceKey::new(key.clone(), place.clone());
            match known.and_then(|known| known.get(place)) {
                None => {
                    let mut instance = instance.clone();
                    let isolate = (!instance.ready).then_some(true);
                    self.target.mark_isolated(&mut instance.metadata, !instance.ready);
                    self.created.push(InstanceWrite { key: key(), instance, isolate });
                }
                Some(known) if !self.target.owns(&known.metadata) => self.conflicts.push(key()),
                Some(known) => self.update(key(), instance, known),
            }
        }
    }

    fn update(&mut self, key: InstanceKey, wanted: &Instance, known: &ActualInstance) {
        let by_us = self.target.isolated_by_us(&known.metadata);
        let by_others = known.isolated && !by_us;
        // Who was isolated by a person before is not marked: else it would be let in again when it becomes ready.
        let mut instance = wanted.clone();
        self.target.mark_isolated(&mut instance.metadata, !wanted.ready && !by_others);
        let isolate = match (wanted.ready, known.isolated) {
            (false, false) => Some(true),
            (true, true) if by_us => Some(false),
            _ => None,
        };
        if wanted.ready && by_others {
            self.isolated.push(key.clone());
        }
        let is_same = isolate.is_none()
            && instance.protocol == known.protocol
            && instance.version == known.version
            && instance.weight == known.weight
            && instance.ttl == known.ttl
            && self.target.same_metadata(&instance.metadata, &known.metadata)
            && (known.healthy || instance.ttl.is_some());
        if !is_same {
            self.updated.push(InstanceWrite { key, instance, isolate });
        }
    }

    fn aliases(&mut self, desired: &Desired, scope: Option<&BTreeSet<ServiceKey>>) {
        let wanted = desired.aliases();
        let in_scope = |key: &ServiceKey| scope.is_none_or(|scope| scope.contains(key));
        for (alias, service) in wanted.iter().filter(|(_, service)| in_scope(service)) {
            match self.actual.aliases.get(*alias) {
                // A service of that name is no alias: making one would be refused.
                None if self.actual.services.contains_key(&alias.0) => {
                    self.taken_aliases.push((*alias).clone());
                }
                None => self.aliases.push(Call::CreateAlias((*alias).clone(), (*service).clone())),
                Some(known) if known.is_ours && known.service == **service => {}
                Some(known) if known.is_adoptable => {
                    self.aliases.push(Call::UpdateAlias((*alias).clone(), (*service).clone()));
                }
                Some(_) => self.taken_aliases.push((*alias).clone()),
            }
        }
        let old = self.actual.aliases.iter().filter(|(alias, known)| {
            known.is_ours && in_scope(&known.service) && !wanted.contains_key(alias)
        });
        let old = old.map(|(alias, _)| alias.clone());
        // The name of a service has to be free before the service is made.
        (self.aliases_in_the_way, self.old_aliases) =
            old.partition(|alias| desired.services.contains_key(&alias.0));
        let named =
            desired.services.iter().filter(|(key, _)| in_scope(key)).flat_map(|(_, one)| &one.aliases);
        self.taken_aliases.extend(named.filter(|alias| desired.services.contains_key(&alias.0)).cloned());
    }

    fn finish(self, batch: usize) -> Plan {
        fn batches<T: Clone>(all: &[T], batch: usize, call: fn(Vec<T>) -> Call) -> Vec<Call> {
            all.chunks(batch).map(|some| call(some.to_vec())).collect()
        }
        let mut services = batches(&self.new_services, batch, Call::CreateServices);
        services.extend(batches(&self.changed_services, batch, Call::UpdateServices));
        let mut instances = batches(&self.created, batch, Call::CreateInstances);
        instances.extend(batches(&self.updated, batch, Call::UpdateInstances));
        let phases = vec![
            batches(&self.aliases_in_the_way, batch, Call::DeleteAliases),
            batches(&self.namespaces, batch, Call::CreateNamespaces),
            services,
            instances,
            self.aliases,
            batches(&self.old_aliases, batch, Call::DeleteAliases),
            batches(&self.retired, batch, Call::RetireInstances),
            batches(&self.deleted, batch, Call::DeleteInstances),
        ];
        Plan {
            phases: phases.into_iter().filter(|phase| !phase.is_empty()).collect(),
            conflicts: self.conflicts,
            taken_aliases: self.taken_aliases,
            isolated: self.isolated,
        }
    }
}

/// The service with what it should have and what others gave it; `None` when it has all of it.
fn merged(key: &ServiceKey, wanted: &DesiredService, known: &ActualService) -> Option<ServiceWrite> {
    let has = |(name, value): (&Text, &Text)| known.metadata.get(name) == Some(value);
    if wanted.metadata.iter().all(has) && wanted.ports.is_subset(&known.ports) {
        return None;
    }
    let mut metadata = known.metadata.clone();
    metadata.extend(wanted.metadata.iter().map(|(name, value)| (name.clone(), value.clone())));
    let owners = known.owners.clone();
    Some(ServiceWrite { key: key.clone(), metadata, ports: wanted.ports.clone(), owners })
}
