//! How many instances there are of what.

use crate::Health;
use std::collections::HashMap;
use std::sync::Arc;

/// How many there are of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Services that have an instance.
    pub services: usize,
    owners: usize,
    health: [usize; Health::ALL.len()],
}

/// Counts that are kept while changes happen, so that asking costs nothing.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) counts: Counts,
    owners: HashMap<Arc<str>, usize>,
}

impl Counts {
    /// Instances in all.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.health.iter().sum()
    }

    /// Instances of that health.
    #[must_use]
    pub fn of(&self, health: Health) -> usize {
        self.health.get(health as usize).copied().unwrap_or_default()
    }

    /// Identities that have an instance.
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
    /// Instances that an identity registered.
    pub(super) fn of_owner(&self, owner: &str) -> usize {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    pub(super) fn added(&mut self, owner: &Arc<str>, health: Health) {
        self.counts.add(health);
        *self.owners.entry(Arc::clone(owner)).or_default() += 1;
        self.counts.owners = self.owners.len();
    }

    pub(super) fn removed(&mut self, owner: &str, health: Health) {
        self.counts.subtract(health);
        if let Some(count) = self.owners.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(owner);
            }
        }
        self.counts.owners = self.owners.len();
    }

    pub(super) fn moved(&mut self, from: Health, to: Health) {
        self.counts.moved(from, to);
    }
}
