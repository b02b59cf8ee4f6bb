//! Replica of the server's instances, from full answers and deltas, with the hash that verifies it.
//!
//! ```text
//! /apps ── replace ──▶ instances ◀── apply ── /apps/delta
//!                          │
//!          changed services and their members
//! ```
//!
//! A state machine without IO. The server returns all deltas of the last three minutes each time, so the same
//! delta is received several times, and applying it again changes nothing.

use crate::mapping::By;
use pilotfish_eureka_wire::{Applications, InstanceInfo};
use pilotfish_eureka_wire::{Instance, InstanceKey, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Instances and services of the server.
#[derive(Debug)]
pub(crate) struct Replica {
    by: By,
    instances: BTreeMap<InstanceKey, Arc<Instance>>,
    /// Instances of each service. A service without instances does not exist.
    members: BTreeMap<Arc<str>, BTreeSet<InstanceKey>>,
    counts: BTreeMap<Status, usize>,
}

/// Result of comparing the hash with the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// The counts of each status match.
    Agrees,
    Differs,
    /// The server sent no hash.
    Unsaid,
}

impl Replica {
    pub(crate) fn new(by: By) -> Self {
        Self { by, instances: BTreeMap::new(), members: BTreeMap::new(), counts: BTreeMap::new() }
    }

    /// Replaces all instances by a full answer.
    pub(crate) fn replace(&mut self, full: Applications) -> Agreement {
        *self = Self::new(self.by);
        for instance in full.instances.into_iter().filter_map(Instance::read) {
            self.set(instance, &mut BTreeSet::new());
        }
        self.agreement(full.hash.as_deref())
    }

    /// Applies deltas, and returns the services affected and the hash comparison. If the hash differs, a full
    /// read is needed.
    pub(crate) fn apply(&mut self, delta: Applications) -> (BTreeSet<Arc<str>>, Agreement) {
        let mut touched = BTreeSet::new();
        for info in delta.instances {
            match Action::of(&info) {
                Action::Set => Instance::read(info).map(|instance| self.set(instance, &mut touched)),
                Action::Delete => {
                    Instance::read(info).map(|instance| self.delete(&instance.key, &mut touched))
                }
            };
        }
        (touched, self.agreement(delta.hash.as_deref()))
    }

    /// Returns all services, each with at least one instance.
    pub(crate) fn services(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.keys()
    }

    /// Returns the instances of a service, sorted by key. Empty for an unknown service.
    pub(crate) fn instances(&self, service: &str) -> impl Iterator<Item = &Arc<Instance>> {
        let keys = self.members.get(service).into_iter().flatten();
        keys.filter_map(|key| self.instances.get(key))
    }

    /// Returns the hash in the server's format, the number of instances by status: `DOWN_1_UP_3_`.
    pub(crate) fn hash(&self) -> String {
        pilotfish_eureka_wire::hash(&self.counts)
    }

    fn agreement(&self, hash: Option<&str>) -> Agreement {
        match hash {
            None => Agreement::Unsaid,
            Some(hash) if hash == self.hash() => Agreement::Agrees,
            Some(_) => Agreement::Differs,
        }
    }

    fn set(&mut self, instance: Instance, touched: &mut BTreeSet<Arc<str>>) {
        if self.instances.get(&instance.key).is_some_and(|known| **known == instance) {
            return;
        }
        self.delete(&instance.key, touched);
        for service in self.by.services(&instance) {
            self.members.entry(service.clone()).or_default().insert(instance.key.clone());
            touched.insert(service);
        }
        *self.counts.entry(instance.status).or_default() += 1;
        self.instances.insert(instance.key.clone(), Arc::new(instance));
    }

    fn delete(&mut self, key: &InstanceKey, touched: &mut BTreeSet<Arc<str>>) {
        let Some(known) = self.instances.remove(key) else { return };
        for service in self.by.services(&known) {
            if let Some(members) = self.members.get_mut(&service) {
                members.remove(key);
                if members.is_empty() {
                    self.members.remove(&service);
                }
            }
            touched.insert(service);
        }
        if let Some(count) = self.counts.get_mut(&known.status) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&known.status);
            }
        }
    }
}

enum Action {
    Set,
    Delete,
}

impl Action {
    /// Every action but `DELETED` sets the instance: Netflix's client treats `ADDED` and `MODIFIED` the same
    /// way.
    fn of(info: &InstanceInfo) -> Self {
        if info.action_type.0 == "DELETED" { Self::Delete } else { Self::Set }
    }
}

#[cfg(test)]
mod tests;
