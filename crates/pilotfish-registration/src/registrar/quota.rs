//! Limits of instances, counted together with registrations that are under way.

use crate::directory::Directory;
use crate::{InstanceKey, Limits, ServiceKey};
use std::collections::HashMap;
use std::sync::Arc;

/// Registrations of new instances that are under way.
#[derive(Debug, Default)]
pub(super) struct Quota {
    all: usize,
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
    /// Counts one more, if there is room for it.
    pub(super) fn take(
        &mut self,
        limits: &Limits,
        directory: &Directory,
        key: &InstanceKey,
        owner: &Arc<str>,
    ) -> Result<(), Exceeded> {
        let service = key.service_key();
        let counts = directory.counts();
        let pending_service = self.services.get(&service).copied().unwrap_or_default();
        let in_service = directory.service_len(key) + pending_service;
        let of_owner = counts.of_owner(owner) + self.owners.get(owner).copied().unwrap_or_default();
        let check = |limit, has, most| if has < most { Ok(()) } else { Err(Exceeded { limit, most }) };
        check("instances", counts.instances() + self.all, limits.instances)?;
        check("service-instances", in_service, limits.service_instances)?;
        check("owner-instances", of_owner, limits.owner_instances)?;
        if in_service == 0 {
            check("services", counts.services + self.services.len(), limits.services)?;
        }
        self.all += 1;
        *self.services.entry(service).or_default() += 1;
        *self.owners.entry(Arc::clone(owner)).or_default() += 1;
        Ok(())
    }

    /// One of them has happened or failed.
    pub(super) fn give_back(&mut self, key: &InstanceKey, owner: &str) {
        self.all -= 1;
        let service = key.service_key();
        if let Some(count) = self.services.get_mut(&service) {
            *count -= 1;
            if *count == 0 {
                self.services.remove(&service);
            }
        }
        if let Some(count) = self.owners.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(owner);
            }
        }
    }
}
