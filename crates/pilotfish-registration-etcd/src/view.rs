//! What is known of etcd's keys: a state machine without IO. Changes of a watch in, events of the store out.

use crate::keys::{Keys, Name};
use crate::plan::Belief;
use crate::value::decode;
use pilotfish_etcd_client::proto::{Event, EventType, KeyValue};
use pilotfish_registration::{InstanceKey, Record, StoreEvent};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How many broken records are told by name.
const TOLD: usize = 10;

/// What is known.
#[derive(Debug)]
pub(crate) struct View {
    keys: Keys,
    entries: HashMap<InstanceKey, Entry>,
    /// The revision of the last change that is in it.
    revision: u64,
    /// Instances whose lapse is not told, because their leases are begun anew.
    grace: HashSet<InstanceKey>,
    /// Instances whose leases changed while lapses are not told, because changes are missing still.
    held: Option<BTreeSet<InstanceKey>>,
    /// Names of open stores.
    stores: BTreeSet<String>,
    /// Records that cannot be read.
    broken: BTreeSet<InstanceKey>,
}

#[derive(Debug, Default)]
struct Entry {
    record: Option<Arc<Record>>,
    /// The revision of the record's key, also where its value cannot be read.
    revision: u64,
    lease: Option<Lease>,
    /// Whether it was told that the lease has lapsed.
    told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    id: i64,
    /// When this store last began it anew.
    extended: Option<Instant>,
}

/// What renewing an instance takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Nothing: it was done a moment ago.
    Done,
    /// Keeping this lease alive.
    Extend(i64),
    /// A look at what is there.
    Look,
}

impl View {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            keys,
            entries: HashMap::new(),
            revision: 0,
            grace: HashSet::new(),
            held: None,
            stores: BTreeSet::new(),
            broken: BTreeSet::new(),
        }
    }

    /// The revision of the last change that is in it.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Records that cannot be read, and whose last good versions are used, if there are any.
    pub(crate) const fn broken(&self) -> &BTreeSet<InstanceKey> {
        &self.broken
    }

    /// What is believed to be there.
    pub(crate) fn belief(&self, key: &InstanceKey) -> Belief {
        self.entries.get(key).map(Entry::belief).unwrap_or_default()
    }

    /// Whether there is such a record.
    pub(crate) fn has(&self, key: &InstanceKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.record.is_some())
    }

    /// Whether an open store of that name is there.
    pub(crate) fn has_store(&self, name: &str) -> bool {
        self.stores.contains(name)
    }

    /// Whether no store is open but the one of that name.
    pub(crate) fn is_alone(&self, name: &str) -> bool {
        self.stores.iter().all(|other| other == name)
    }

    /// What renewing an instance takes. Within a third of its TTL after the last time, nothing: leases are that much longer.
    pub(crate) fn renewal(&self, key: &InstanceKey, now: Instant) -> Renewal {
        let Some(entry) = self.entries.get(key) else { return Renewal::Look };
        let (Some(record), Some(lease)) = (&entry.record, entry.lease) else { return Renewal::Look };
        let Some(ttl) = record.lease() else { return Renewal::Look };
        match lease.extended {
            Some(at) if now < at + ttl / 3 => Renewal::Done,
            _ => Renewal::Extend(lease.id),
        }
    }

    /// The lease was begun anew at that time.
    pub(crate) fn extended(&mut self, key: &InstanceKey, id: i64, at: Instant) {
        if let Some(lease) = self.entries.get_mut(key).and_then(|entry| entry.lease.as_mut())
            && lease.id == id
        {
            lease.extended = lease.extended.max(Some(at));
        }
    }

    /// From now on lapses are not told, until [`Self::release`].
    pub(crate) fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Lapses are told again, but not those of these instances, until [`Self::end_grace`].
    pub(crate) fn release(&mut self, grace: HashSet<InstanceKey>) -> Vec<StoreEvent> {
        self.grace = grace;
        let held = self.held.take().unwrap_or_default();
        let mut events = Vec::new();
        held.into_iter().for_each(|key| self.tell(key, &mut events));
        events
    }

    /// The leases of these were begun anew, or were not. Returns what is to be told of them.
    pub(crate) fn end_grace(&mut self, keys: Vec<InstanceKey>) -> Vec<StoreEvent> {
        let mut events = Vec::new();
        for key in keys {
            self.grace.remove(&key);
            self.tell(key, &mut events);
        }
        events
    }

    /// Instances whose lapse was not told.
    pub(crate) fn untold(&self) -> impl Iterator<Item = &InstanceKey> {
        self.entries.iter().filter(|(_, entry)| entry.is_lapsed() && !entry.told).map(|(key, _)| key)
    }

    /// Everything as it is, for [`StoreEvent::Reset`], which tells the lapses of all but those in grace.
    pub(crate) fn reset(&mut self, grace: HashSet<InstanceKey>) -> StoreEvent {
        self.held = None;
        let (mut records, mut lapsed) = (Vec::with_capacity(self.entries.len()), Vec::new());
        for (key, entry) in &mut self.entries {
            records.extend(entry.record.clone());
            entry.told = entry.is_lapsed() && !grace.contains(key);
            if entry.told {
                lapsed.push(key.clone());
            }
        }
        self.grace = grace;
        StoreEvent::Reset { revision: self.revision, records, lapsed }
    }

    /// Begins anew with what a full read gives. What is known of lapses and of leases that were begun anew stays.
    pub(crate) fn replace(&mut self, read: Snapshot, revision: u64) {
        let mut entries = read.entries;
        for (key, entry) in &mut entries {
            let Some(known) = self.entries.get(key) else { continue };
            entry.told = known.told && entry.is_lapsed();
            if let (Some(lease), Some(before)) = (&mut entry.lease, known.lease)
                && lease.id == before.id
            {
                lease.extended = before.extended;
            }
        }
        self.entries = entries;
        self.stores = read.stores;
        self.broken = read.broken;
        self.revision = revision;
    }

    /// Takes changes of a watch, in their order. Returns what is to be told.
    pub(crate) fn apply(&mut self, changes: &[Event]) -> Vec<StoreEvent> {
        let (mut events, mut touched) = (Vec::new(), BTreeSet::new());
        for change in changes {
            let Some(pair) = &change.kv else { continue };
            let is_put = change.r#type == EventType::Put as i32;
            self.revision = self.revision.max(unsigned(pair.mod_revision));
            match self.keys.name(&pair.key) {
                Some(Name::Record(key)) => {
                    self.apply_record(key.clone(), is_put.then_some(pair), pair, &mut events);
                    touched.insert(key);
                }
                Some(Name::Lease(key)) => {
                    let entry = self.entries.entry(key.clone()).or_default();
                    entry.lease = is_put.then(|| Lease::of(pair, entry.lease));
                    touched.insert(key);
                }
                Some(Name::Store(name)) => {
                    if is_put {
                        self.stores.insert(name)
                    } else {
                        self.stores.remove(&name)
                    };
                }
                None => {}
            }
        }
        match &mut self.held {
            Some(held) => held.extend(touched),
            None => touched.into_iter().for_each(|key| self.tell(key, &mut events)),
        }
        events
    }

    fn apply_record(
        &mut self,
        key: InstanceKey,
        put: Option<&KeyValue>,
        pair: &KeyValue,
        events: &mut Vec<StoreEvent>,
    ) {
        let revision = unsigned(pair.mod_revision);
        let entry = self.entries.entry(key.clone()).or_default();
        match put.map(|pair| read(&key, pair)) {
            Some(Ok(record)) => {
                entry.record = Some(record);
                entry.revision = revision;
                self.broken.remove(&key);
            }
            // The last good one stays in force.
            Some(Err(error)) => {
                entry.revision = revision;
                if self.broken.insert(key.clone()) && self.broken.len() <= TOLD {
                    tracing::warn!(instance = %key, %error, "a record in etcd cannot be read; its last good version stays");
                }
                return;
            }
            None => {
                entry.record = None;
                entry.revision = 0;
                self.broken.remove(&key);
            }
        }
        // A record that is told has a lease that has not lapsed, where nothing else is told after it.
        entry.told = false;
        events.push(StoreEvent::Changed { revision, key, record: entry.record.clone() });
    }

    /// Tells whether the lease of an instance has lapsed, where that differs from what was told.
    fn tell(&mut self, key: InstanceKey, events: &mut Vec<StoreEvent>) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if entry.record.is_none() && entry.lease.is_none() && entry.revision == 0 {
            self.entries.remove(&key);
            return;
        }
        let is_lapsed = entry.is_lapsed() && !self.grace.contains(&key);
        if is_lapsed != entry.told {
            entry.told = is_lapsed;
            events.push(if is_lapsed { StoreEvent::Lapsed(key) } else { StoreEvent::Renewed(key) });
        }
    }
}

impl Entry {
    fn belief(&self) -> Belief {
        Belief {
            record: self.record.clone(),
            revision: self.revision,
            lease: self.lease.map(|lease| lease.id),
        }
    }

    fn is_lapsed(&self) -> bool {
        self.lease.is_none() && self.record.as_ref().is_some_and(|record| record.lease().is_some())
    }
}

impl Lease {
    fn of(pair: &KeyValue, before: Option<Self>) -> Self {
        let extended = before.filter(|before| before.id == pair.lease).and_then(|before| before.extended);
        Self { id: pair.lease, extended }
    }
}

/// What a full read gives.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    entries: HashMap<InstanceKey, Entry>,
    stores: BTreeSet<String>,
    broken: BTreeSet<InstanceKey>,
    bytes: usize,
}

impl Snapshot {
    /// Takes a key.
    pub(crate) fn take(&mut self, keys: &Keys, pair: &KeyValue) {
        self.bytes += pair.key.len() + pair.value.len();
        match keys.name(&pair.key) {
            Some(Name::Record(key)) => {
                let entry = self.entries.entry(key.clone()).or_default();
                entry.revision = unsigned(pair.mod_revision);
                match read(&key, pair) {
                    Ok(record) => entry.record = Some(record),
                    Err(error) => {
                        self.broken.insert(key.clone());
                        if self.broken.len() <= TOLD {
                            tracing::warn!(instance = %key, %error, "a record in etcd cannot be read; it is left out");
                        }
                    }
                }
            }
            Some(Name::Lease(key)) => {
                self.entries.entry(key).or_default().lease = Some(Lease::of(pair, None));
            }
            Some(Name::Store(name)) => {
                self.stores.insert(name);
            }
            None => {}
        }
    }

    /// How many instances it has.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many bytes were read.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The record of a key's value.
pub(crate) fn read(key: &InstanceKey, pair: &KeyValue) -> Result<Arc<Record>, String> {
    decode(key.clone(), &pair.value, unsigned(pair.mod_revision), unsigned(pair.create_revision))
        .map(Arc::new)
}

/// etcd's revisions are never negative.
pub(crate) fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// How long a lease in etcd is: a third longer than the TTL, because renewals are passed on that much later at most; whole seconds.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    let longer = ttl + ttl / 3;
    let whole = longer.as_secs() + u64::from(longer.subsec_nanos() > 0);
    i64::try_from(whole.max(1)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
