//! What the server has, as far as it told: full answers, changes, and the hash that tells whether both agree.
//!
//! ```text
//! /apps ── replace ──▶ instances ◀── apply ── /apps/delta
//!                          │
//!          which services changed, and their members
//! ```
//!
//! A state machine without IO. The server keeps changes of the last three minutes and gives all of them each time, so the
//! same change comes often, and applying it again changes nothing.

use crate::instance::{Instance, InstanceKey, Status};
use crate::mapping::By;
use crate::wire::{Applications, InstanceInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

/// What the server has.
#[derive(Debug)]
pub(crate) struct Replica {
    by: By,
    instances: BTreeMap<InstanceKey, Arc<Instance>>,
    /// Whose instances are whose. A service without instances is none.
    members: BTreeMap<Arc<str>, BTreeSet<InstanceKey>>,
    counts: BTreeMap<Status, usize>,
}

/// Whether what we have is what the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// It has as many instances of each status.
    Agrees,
    /// It has not.
    Differs,
    /// It does not say.
    Unsaid,
}

impl Replica {
    pub(crate) fn new(by: By) -> Self {
        Self { by, instances: BTreeMap::new(), members: BTreeMap::new(), counts: BTreeMap::new() }
    }

    /// Takes a full answer: what it does not name is gone.
    pub(crate) fn replace(&mut self, full: Applications) -> Agreement {
        *self = Self::new(self.by);
        for instance in full.instances.into_iter().filter_map(Instance::read) {
            self.set(instance, &mut BTreeSet::new());
        }
        self.agreement(full.hash.as_deref())
    }

    /// Takes changes, and says which services they concern and whether everything agrees now. What does not is to be read in full.
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

    /// All services that have instances.
    pub(crate) fn services(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.keys()
    }

    /// The instances of a service, in the order of their keys. Empty for one that is gone.
    pub(crate) fn instances(&self, service: &str) -> impl Iterator<Item = &Arc<Instance>> {
        let keys = self.members.get(service).into_iter().flatten();
        keys.filter_map(|key| self.instances.get(key))
    }

    /// How many instances of each status there are, as the server writes it: `DOWN_1_UP_3_`.
    pub(crate) fn hash(&self) -> String {
        let mut hash = String::new();
        for (status, count) in &self.counts {
            let _ = write!(hash, "{status}_{count}_");
        }
        hash
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
    /// What is no deletion is set: so does Netflix's client with both `ADDED` and `MODIFIED`.
    fn of(info: &InstanceInfo) -> Self {
        if info.action_type.0 == "DELETED" { Self::Delete } else { Self::Set }
    }
}

#[cfg(test)]
mod tests;
