//! Limits of instances and their bytes, including registrations in progress.

use super::RegistrarError;
use crate::directory::{Directory, Owned};
use crate::{Instance, InstanceKey, Limits, Record, ServiceKey};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Registrations in progress, which are not in the directory yet.
#[derive(Debug, Default)]
pub(super) struct Quota {
    pending: HashMap<InstanceKey, Charge>,
    services: HashMap<ServiceKey, usize>,
    owners: HashMap<Arc<str>, Owned>,
    /// Instances and bytes of all registrations in progress.
    all: Owned,
}

/// Additional instances and bytes of one registration.
#[derive(Debug)]
struct Charge {
    owner: Arc<str>,
    /// 1 for a new instance.
    instances: usize,
    /// Bytes that its owner does not have yet.
    owner_bytes: usize,
    /// Bytes in addition to the record in the directory.
    bytes: usize,
}

impl Charge {
    fn new(instance: &Instance, owner: &Arc<str>, before: Option<&Record>) -> Self {
        let wanted = instance.weight();
        let bytes = wanted.saturating_sub(before.map_or(0, |record| record.instance.weight()));
        let is_own = before.is_none_or(|record| record.owner == *owner);
        let owner_bytes = if is_own { bytes } else { wanted };
        Self { owner: Arc::clone(owner), instances: usize::from(before.is_none()), owner_bytes, bytes }
    }
}

impl Quota {
    /// Charges a registration, if the limits allow it. Returns true if the caller must settle the charge:
    /// false if it adds nothing, or if another registration of the instance is charged at least as much.
    pub(super) fn take(
        &mut self,
        limits: &Limits,
        directory: &Directory,
        instance: &Instance,
        owner: &Arc<str>,
        before: Option<&Record>,
    ) -> Result<bool, RegistrarError> {
        let key = &instance.key;
        let charge = Charge::new(instance, owner, before);
        if charge.instances == 0 && charge.owner_bytes == 0 {
            return Ok(false);
        }
        let pending = self.pending.remove(key);
        if let Some(pending) = &pending {
            self.add(key, pending, false);
        }
        let checked = self.check(limits, directory, key, &charge);
        // A concurrent registration of the same instance keeps its charge.
        let (kept, is_new) = match (pending, &checked) {
            (Some(pending), Err(_)) => (Some(pending), false),
            (Some(pending), Ok(())) if pending.bytes >= charge.bytes => (Some(pending), false),
            (_, Ok(())) => (Some(charge), true),
            (None, Err(_)) => (None, false),
        };
        if let Some(kept) = kept {
            self.add(key, &kept, true);
            self.pending.insert(key.clone(), kept);
        }
        checked.map(|()| is_new)
    }

    fn check(
        &self,
        limits: &Limits,
        directory: &Directory,
        key: &InstanceKey,
        charge: &Charge,
    ) -> Result<(), RegistrarError> {
        let counts = directory.counts();
        let pending = self.owners.get(&charge.owner).copied().unwrap_or_default();
        let owned = directory.of_owner(&charge.owner);
        if charge.instances > 0 {
            let check = |limit, has, most| {
                if has < most { Ok(()) } else { Err(RegistrarError::Limit { limit, most }) }
            };
            let service = key.service_key();
            let in_service =
                directory.service_len(key) + self.services.get(&service).copied().unwrap_or_default();
            check("instances", counts.instances() + self.all.instances, limits.instances)?;
            check("service-instances", in_service, limits.service_instances)?;
            check("owner-instances", owned.instances + pending.instances, limits.owner_instances)?;
            if in_service == 0 {
                check("services", counts.services + self.services.len(), limits.services)?;
            }
        }
        let check = |limit, used: usize, wanted: usize, most| match wanted == 0 || used + wanted <= most {
            true => Ok(()),
            false => Err(RegistrarError::Bytes { limit, most, used, wanted }),
        };
        check("owner-bytes", owned.bytes + pending.bytes, charge.owner_bytes, limits.owner_bytes)?;
        check("instance-bytes", counts.bytes + self.all.bytes, charge.bytes, limits.instance_bytes)
    }

    /// Releases the charge after the registration is in the directory, or failed.
    pub(super) fn settle(&mut self, key: &InstanceKey) {
        if self.pending.is_empty() {
            return;
        }
        if let Some(charge) = self.pending.remove(key) {
            self.add(key, &charge, false);
        }
    }

    /// Adds a charge to the totals, or subtracts it.
    fn add(&mut self, key: &InstanceKey, charge: &Charge, is_added: bool) {
        let change = |count: &mut usize, by: usize| match is_added {
            true => *count += by,
            false => *count -= by,
        };
        change(&mut self.all.instances, charge.instances);
        change(&mut self.all.bytes, charge.bytes);
        let owned = self.owners.entry(Arc::clone(&charge.owner)).or_default();
        change(&mut owned.instances, charge.instances);
        change(&mut owned.bytes, charge.owner_bytes);
        if charge.instances > 0 {
            change(self.services.entry(key.service_key()).or_default(), charge.instances);
        }
        forget_empty(&mut self.owners, &charge.owner);
        forget_empty(&mut self.services, &key.service_key());
    }
}

fn forget_empty<K: Hash + Eq, V: Default + PartialEq>(counts: &mut HashMap<K, V>, key: &K) {
    if counts.get(key).is_some_and(|count| *count == V::default()) {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::instance;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn sized(id: &str, bytes: usize) -> Instance {
        Instance { metadata: [("k".into(), "x".repeat(bytes).into())].into(), ..instance(id) }
    }

    fn record(instance: &Instance, owner: &Arc<str>, revision: u64) -> Arc<Record> {
        let (instance, owner) = (Arc::new(instance.clone()), Arc::clone(owner));
        Arc::new(Record { instance, owner, revision, created: revision, state: Default::default() })
    }

    proptest! {
        /// Registrations of three owners, of which some succeed, fail, grow, shrink, change hands or are
        /// removed: bytes in the directory never exceed a limit, and nothing stays charged.
        #[test]
        fn bytes_of_instances_stay_within_limits(
            steps in proptest::collection::vec((0..3usize, 0..6usize, 0..4_000usize, 0..4u8), 1..80),
        ) {
            let base = instance("0").weight();
            let limits = Limits { owner_bytes: 3 * base + 6_000, instance_bytes: 5 * base + 9_000, ..Limits::default() };
            let owners: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
            let (mut quota, mut directory) = (Quota::default(), Directory::default());
            for (revision, (owner, id, bytes, outcome)) in (1..).zip(steps) {
                let wanted = sized(&id.to_string(), bytes);
                let before = directory.record(&wanted.key).cloned();
                if outcome == 3 {
                    directory.set(revision, wanted.key.clone(), None);
                    continue;
                }
                let taken = quota.take(&limits, &directory, &wanted, &owners[owner], before.as_deref());
                match taken {
                    Ok(_) if outcome > 0 => {
                        let record = record(&wanted, &owners[owner], revision);
                        quota.settle(&wanted.key);
                        directory.set(revision, wanted.key.clone(), Some(record));
                    }
                    Ok(_) => quota.settle(&wanted.key),
                    Err(RegistrarError::Bytes { used, wanted, most, .. }) => prop_assert!(used + wanted > most),
                    Err(error) => prop_assert!(false, "{}", error),
                }
                let mut model: BTreeMap<&str, usize> = BTreeMap::new();
                for view in directory.list(&Default::default(), None, 100).instances {
                    let owner = owners.iter().find(|owner| **owner == view.record.owner).expect("one of three");
                    *model.entry(owner).or_default() += view.record.instance.weight();
                }
                prop_assert_eq!(directory.counts().bytes, model.values().sum::<usize>());
                prop_assert!(directory.counts().bytes <= limits.instance_bytes);
                for owner in &owners {
                    let owned = model.get(&**owner).copied().unwrap_or_default();
                    prop_assert_eq!(directory.of_owner(owner).bytes, owned);
                    prop_assert!(owned <= limits.owner_bytes);
                }
                prop_assert!(quota.pending.is_empty() && quota.owners.is_empty() && quota.services.is_empty());
                prop_assert_eq!(quota.all, Owned::default());
            }
        }
    }

    #[test]
    fn registrations_under_way_count_together() {
        let owner: Arc<str> = "a".into();
        let each = sized("0", 1_000).weight();
        let limits = Limits { owner_bytes: 2 * each, ..Limits::default() };
        let (mut quota, directory) = (Quota::default(), Directory::default());
        let mut take = |id: &str, bytes| quota.take(&limits, &directory, &sized(id, bytes), &owner, None);
        assert_eq!(take("0", 1_000), Ok(true));
        assert_eq!(take("0", 1_000), Ok(false), "the same instance again");
        assert_eq!(take("1", 1_000), Ok(true));
        let error = take("2", 0).expect_err("nothing is left");
        let text = error.to_string();
        assert!(text.contains("limit owner-bytes") && text.contains(&(2 * each).to_string()), "{text}");
        assert!(take("1", 1_001).is_err(), "it would grow");
        quota.settle(&sized("0", 0).key);
        quota.settle(&sized("1", 0).key);
        assert_eq!((quota.all, quota.owners.len()), (Owned::default(), 0));
    }
}
