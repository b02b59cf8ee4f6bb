//! Plan of the calls that make the actual content equal to the desired one.

use crate::reconcile::actual::{Actual, ActualInstance, ActualService};
use crate::reconcile::calls::{Call, InstanceRetirement, InstanceWrite, ServiceWrite};
use crate::reconcile::{AliasKey, Desired, DesiredService, Instance, InstanceKey, ServiceKey, Target, Text};
use std::collections::BTreeSet;

/// Calls in phases: the calls of a phase may be sent concurrently, after all of the previous phase. Creations
/// precede deletions, so that a renamed service has instances all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The phases; none of them is empty.
    pub phases: Vec<Vec<Call>>,
    /// Instances of other owners at places where ours are desired. They are not changed.
    pub conflicts: Vec<InstanceKey>,
    /// Aliases that cannot be created: the name is a service's, or an alias of another owner.
    pub taken_aliases: Vec<AliasKey>,
    /// Ready instances that were isolated manually. They stay isolated.
    pub isolated: Vec<InstanceKey>,
}

impl Plan {
    /// True if there are no calls.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.phases.is_empty()
    }

    /// Returns all calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.phases.iter().flatten()
    }

    /// Returns the instances that the plan deletes.
    pub fn deletions(&self) -> impl Iterator<Item = &InstanceKey> {
        self.calls().flat_map(|call| match call {
            Call::DeleteInstances(keys) => keys.as_slice(),
            _ => &[],
        })
    }

    /// Number of instances that the plan creates.
    #[must_use]
    pub fn creations(&self) -> usize {
        let of = |call: &Call| if matches!(call, Call::CreateInstances(_)) { call.len() } else { 0 };
        self.calls().map(of).sum()
    }

    /// Removes the deletions and the calls that prepare them.
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

/// Compares desired and actual content. `scope` limits the comparison to some services; without it everything
/// is compared, including our instances in services that are not desired any more.
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

/// A plan under construction.
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
        // A manual isolation gets no mark: otherwise it would end when the instance becomes ready.
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
                // The registry refuses an alias with the name of a service.
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
        // The name of a service must be free before the service is created.
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

/// Merges desired fields into a service; `None` if it has all of them.
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
