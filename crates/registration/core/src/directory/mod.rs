//! Registered instances in memory, updated by store events, liveness and check results.

mod counts;
mod list;

use counts::Counters;
pub use counts::Counts;
pub(crate) use counts::Owned;
pub use list::{Filter, Listing};

use crate::health::{InstanceView, Signs};
use crate::{InstanceKey, Record, ServiceKey};
use std::collections::BTreeMap;
use std::sync::Arc;

type Instances = BTreeMap<Arc<str>, Entry>;

/// All instances, by namespace, service and id.
#[derive(Debug, Default)]
pub struct Directory {
    revision: u64,
    namespaces: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Instances>>,
    counters: Counters,
}

#[derive(Debug)]
struct Entry {
    record: Arc<Record>,
    signs: Signs,
}

impl Entry {
    fn view(&self) -> InstanceView {
        InstanceView { record: Arc::clone(&self.record), health: self.signs.health(&self.record) }
    }
}

/// A visible change of an instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// Revision of the store at the change.
    pub(crate) revision: u64,
    pub(crate) key: InstanceKey,
    /// State before the change; `None` for a new instance.
    pub(crate) before: Option<InstanceView>,
    /// State after the change; `None` for a removed instance.
    pub(crate) after: Option<InstanceView>,
}

impl Directory {
    /// Revision up to which store events were applied.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    #[must_use]
    pub fn get(&self, key: &InstanceKey) -> Option<InstanceView> {
        self.entry(key).map(Entry::view)
    }

    /// Returns the record of an instance.
    #[must_use]
    pub fn record(&self, key: &InstanceKey) -> Option<&Arc<Record>> {
        self.entry(key).map(|entry| &entry.record)
    }

    /// Returns all instances of a service, sorted by id.
    pub fn service(&self, key: &ServiceKey) -> impl Iterator<Item = InstanceView> {
        self.instances(&key.namespace, &key.service).into_iter().flat_map(|all| all.values().map(Entry::view))
    }

    /// Returns all services with an instance, sorted.
    pub fn services(&self) -> impl Iterator<Item = ServiceKey> {
        self.namespaces.iter().flat_map(|(namespace, services)| {
            services
                .keys()
                .map(|service| ServiceKey { namespace: Arc::clone(namespace), service: Arc::clone(service) })
        })
    }

    /// Returns the numbers of instances, services and owners.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.counts
    }

    /// Returns the number and bytes of an identity's instances.
    pub(crate) fn of_owner(&self, owner: &str) -> Owned {
        self.counters.of_owner(owner)
    }

    /// Number of instances of a service.
    #[must_use]
    pub fn service_len(&self, key: &InstanceKey) -> usize {
        self.instances(&key.namespace, &key.service).map_or(0, BTreeMap::len)
    }

    /// Replaces the content by that of a store. Returns the changes in the order of revisions, removals last.
    pub(crate) fn reset(&mut self, revision: u64, records: Vec<Arc<Record>>) -> Vec<Change> {
        let mut before = std::mem::take(self);
        self.revision = revision;
        let mut changes = Vec::new();
        for record in records {
            let key = record.instance.key.clone();
            let known = before.take(&key);
            // Lapses follow as separate events; check results of an unchanged record are kept.
            let signs = match &known {
                Some(known) if known.record == record => {
                    Signs { check_failed: known.signs.check_failed, ..Signs::default() }
                }
                _ => Signs::default(),
            };
            let entry = Entry { record, signs };
            let (before, after) = (known.map(|entry| entry.view()), entry.view());
            self.put(entry);
            if before.as_ref() != Some(&after) {
                changes.push(Change { revision: after.record.revision, key, before, after: Some(after) });
            }
        }
        changes.sort_by_key(|change| change.revision);
        let gone = before.namespaces.into_values().flat_map(BTreeMap::into_values);
        changes.extend(gone.flat_map(BTreeMap::into_values).map(|entry| Change {
            revision,
            key: entry.record.instance.key.clone(),
            before: Some(entry.view()),
            after: None,
        }));
        changes
    }

    /// Applies the creation, change or removal of a record.
    pub(crate) fn set(
        &mut self,
        revision: u64,
        key: InstanceKey,
        record: Option<Arc<Record>>,
    ) -> Option<Change> {
        self.revision = self.revision.max(revision);
        let known = self.take(&key);
        let before = known.as_ref().map(Entry::view);
        let after = record.map(|record| {
            // Check results are kept if the checks are unchanged; a write renews the lease.
            let same = known.as_ref().filter(|known| known.record.instance.checks == record.instance.checks);
            let check_failed = same.is_some_and(|known| known.signs.check_failed);
            let entry = Entry { record, signs: Signs { check_failed, ..Signs::default() } };
            let view = entry.view();
            self.put(entry);
            view
        });
        (before != after).then_some(Change { revision, key, before, after })
    }

    /// Sets or clears the lapse of an instance's lease; `preserved` lapses are ignored.
    pub(crate) fn set_lapsed(&mut self, key: &InstanceKey, lapsed: bool, preserved: bool) -> Option<Change> {
        self.mark(key, |signs| {
            signs.lapsed = lapsed;
            signs.preserved = preserved;
        })
    }

    /// Sets the result of active checks.
    pub(crate) fn set_check_failed(&mut self, key: &InstanceKey, failed: bool) -> Option<Change> {
        self.mark(key, |signs| signs.check_failed = failed)
    }

    /// Marks an instance whose removal the store cannot record yet.
    pub(crate) fn set_withdrawn(&mut self, key: &InstanceKey) -> Option<Change> {
        self.mark(key, |signs| signs.withdrawn = true)
    }

    fn mark(&mut self, key: &InstanceKey, change: impl FnOnce(&mut Signs)) -> Option<Change> {
        let revision = self.revision;
        let services = self.namespaces.get_mut(&key.namespace)?;
        let entry = services.get_mut(&key.service)?.get_mut(&key.id)?;
        let before = entry.view();
        change(&mut entry.signs);
        let after = entry.view();
        self.counters.moved(before.health, after.health);
        let differs = before.health != after.health;
        differs.then(|| Change { revision, key: key.clone(), before: Some(before), after: Some(after) })
    }

    fn instances(&self, namespace: &str, service: &str) -> Option<&Instances> {
        self.namespaces.get(namespace)?.get(service)
    }

    fn entry(&self, key: &InstanceKey) -> Option<&Entry> {
        self.instances(&key.namespace, &key.service)?.get(&key.id)
    }

    fn take(&mut self, key: &InstanceKey) -> Option<Entry> {
        let services = self.namespaces.get_mut(&key.namespace)?;
        let instances = services.get_mut(&key.service)?;
        let entry = instances.remove(&key.id)?;
        if instances.is_empty() {
            services.remove(&key.service);
            self.counters.counts.services -= 1;
            if services.is_empty() {
                self.namespaces.remove(&key.namespace);
            }
        }
        self.counters.removed(&entry.record, entry.signs.health(&entry.record));
        Some(entry)
    }

    /// Adds an instance. Names of namespaces and services are shared.
    fn put(&mut self, entry: Entry) {
        let key = &entry.record.instance.key;
        self.counters.added(&entry.record, entry.signs.health(&entry.record));
        let services = self.namespaces.entry(Arc::clone(&key.namespace)).or_default();
        let instances = services.entry(Arc::clone(&key.service)).or_insert_with(|| {
            self.counters.counts.services += 1;
            Instances::new()
        });
        instances.insert(Arc::clone(&key.id), entry);
    }
}
