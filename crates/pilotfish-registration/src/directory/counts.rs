//! How many instances there are of what.

use crate::Health;
use std::collections::HashMap;
use std::sync::Arc;

/// How many there are of what. Kept while changes happen, so that asking costs nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Services that have an instance.
    pub services: usize,
    health: [usize; Health::ALL.len()],
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

    /// Instances that an identity registered.
    #[must_use]
    pub fn of_owner(&self, owner: &str) -> usize {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    /// Identities that have an instance.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.owners.len()
    }

    pub(super) fn added(&mut self, owner: &Arc<str>, health: Health) {
        self.add(health);
        *self.owners.entry(Arc::clone(owner)).or_default() += 1;
    }

    pub(super) fn removed(&mut self, owner: &str, health: Health) {
        self.subtract(health);
        if let Some(count) = self.owners.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(owner);
            }
        }
    }

    pub(super) fn moved(&mut self, from: Health, to: Health) {
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
