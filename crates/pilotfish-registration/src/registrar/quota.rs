//! Limits of instances, counted together with registrations that are under way.

use crate::directory::Directory;
use crate::{InstanceKey, Limits, ServiceKey};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Registrations of new instances that are under way: asked for, and not in the directory yet.
#[derive(Debug, Default)]
pub(super) struct Quota {
    pending: HashMap<InstanceKey, Arc<str>>,
    services: HashMap<ServiceKey, usize>,
    owners: HashMap<Arc<str>, usize>,
}

/// A limit that would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exceeded {
    pub(super) limit: &'static str,
    pub(super) most: usize,
}

impl Quota {
    /// Counts one more, if there is room for it. False when it is counted already.
    pub(super) fn take(
        &mut self,
        limits: &Limits,
        directory: &Directory,
        key: &InstanceKey,
        owner: &Arc<str>,
    ) -> Result<bool, Exceeded> {
        if self.pending.contains_key(key) {
            return Ok(false);
        }
        let service = key.service_key();
        let counts = directory.counts();
        let pending_service = self.services.get(&service).copied().unwrap_or_default();
        let in_service = directory.service_len(key) + pending_service;
        let of_owner = directory.owner_len(owner) + self.owners.get(owner).copied().unwrap_or_default();
        let check = |limit, has, most| if has < most { Ok(()) } else { Err(Exceeded { limit, most }) };
        check("instances", counts.instances() + self.pending.len(), limits.instances)?;
        check("service-instances", in_service, limits.service_instances)?;
        check("owner-instances", of_owner, limits.owner_instances)?;
        if in_service == 0 {
            check("services", counts.services + self.services.len(), limits.services)?;
        }
        self.pending.insert(key.clone(), Arc::clone(owner));
        *self.services.entry(service).or_default() += 1;
        *self.owners.entry(Arc::clone(owner)).or_default() += 1;
        Ok(true)
    }

    /// It is in the directory now, or it failed.
    pub(super) fn settle(&mut self, key: &InstanceKey) {
        if self.pending.is_empty() {
            return;
        }
        let Some(owner) = self.pending.remove(key) else { return };
        subtract(&mut self.services, &key.service_key());
        subtract(&mut self.owners, &owner);
    }
}

fn subtract<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
