//! Numbers of instances by health, service and owner.

use crate::{Health, Record};
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers of instances, services and owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Services with an instance.
    pub services: usize,
    /// Estimated bytes of all instances.
    pub bytes: usize,
    owners: usize,
    health: [usize; Health::ALL.len()],
}

/// Counts that are updated with each change, so that reading them is cheap.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) counts: Counts,
    owners: HashMap<Arc<str>, Owned>,
}

/// Instances of one identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) instances: usize,
    /// Estimated bytes of the instances.
    pub(crate) bytes: usize,
}

impl Counts {
    /// Total number of instances.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.health.iter().sum()
    }

    /// Number of instances with this health.
    #[must_use]
    pub fn of(&self, health: Health) -> usize {
        self.health.get(health as usize).copied().unwrap_or_default()
    }

    /// Number of identities with an instance.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.owners
    }

    fn moved(&mut self, from: Health, to: Health) {
        self.subtract(from);
        self.add(to);
    }

    fn add(&mut self, health: Health) {
        if let Some(count) = self.health.get_mut(health as usize) {
            *count += 1;
        }
    }

    fn subtract(&mut self, health: Health) {
        if let Some(count) = self.health.get_mut(health as usize) {
            *count -= 1;
        }
    }
}

impl Counters {
    /// Returns the usage of an identity.
    pub(super) fn of_owner(&self, owner: &str) -> Owned {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    pub(super) fn added(&mut self, record: &Record, health: Health) {
        let bytes = record.instance.weight();
        self.counts.add(health);
        self.counts.bytes += bytes;
        let owned = self.owners.entry(Arc::clone(&record.owner)).or_default();
        owned.instances += 1;
        owned.bytes += bytes;
        self.counts.owners = self.owners.len();
    }

    pub(super) fn removed(&mut self, record: &Record, health: Health) {
        let bytes = record.instance.weight();
        self.counts.subtract(health);
        self.counts.bytes -= bytes;
        if let Some(owned) = self.owners.get_mut(&record.owner) {
            owned.instances -= 1;
            owned.bytes -= bytes;
            if owned.instances == 0 {
                self.owners.remove(&record.owner);
            }
        }
        self.counts.owners = self.owners.len();
    }

    pub(super) fn moved(&mut self, from: Health, to: Health) {
        self.counts.moved(from, to);
    }
}
