//! View of etcd's keys: a state machine without IO. Watch events in, store events out.

use crate::keys::{Keys, Name};
use crate::plan::Belief;
use crate::value::decode;
use pilotfish_etcd_client::proto::{Event, EventType, KeyValue};
use pilotfish_registration::{InstanceKey, Record, StoreEvent};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of unreadable records that are logged by name.
const TOLD: usize = 10;

/// State of etcd's keys.
#[derive(Debug)]
pub(crate) struct View {
    keys: Keys,
    entries: HashMap<InstanceKey, Entry>,
    /// Revision of the last applied change.
    revision: u64,
    /// Instances whose lapse is not published, because their leases are being renewed.
    grace: HashSet<InstanceKey>,
    /// Instances with lease changes while lapses are held back, because changes are still missing.
    held: Option<BTreeSet<InstanceKey>>,
    /// Names of open stores.
    stores: BTreeSet<String>,
    /// Keys whose records cannot be decoded.
    broken: BTreeSet<InstanceKey>,
}

#[derive(Debug, Default)]
struct Entry {
    record: Option<Arc<Record>>,
    /// Revision of the record's key, also if its value is unreadable.
    revision: u64,
    lease: Option<Lease>,
    /// True if the lapse of the lease was published.
    told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    id: i64,
    /// Time of this store's last renewal.
    extended: Option<Instant>,
}

/// Step needed to renew an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// None: it was renewed recently.
    Done,
    /// Keep this lease alive.
    Extend(i64),
    /// Read the actual state first.
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

    /// Revision of the last applied change.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Unreadable records; their last good versions are used, if there are any.
    pub(crate) const fn broken(&self) -> &BTreeSet<InstanceKey> {
        &self.broken
    }

    /// Returns the believed state of an instance.
    pub(crate) fn belief(&self, key: &InstanceKey) -> Belief {
        self.entries.get(key).map(Entry::belief).unwrap_or_default()
    }

    /// True if the record exists and is readable.
    pub(crate) fn has(&self, key: &InstanceKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.record.is_some())
    }

    /// True if the key of this open store exists.
    pub(crate) fn has_store(&self, name: &str) -> bool {
        self.stores.contains(name)
    }

    /// True if no other store is open.
    pub(crate) fn is_alone(&self, name: &str) -> bool {
        self.stores.iter().all(|other| other == name)
    }

    /// Returns the step to renew an instance. Within a third of its TTL after the last renewal it needs none:
    /// leases in etcd are that much longer.
    pub(crate) fn renewal(&self, key: &InstanceKey, now: Instant) -> Renewal {
        let Some(entry) = self.entries.get(key) else { return Renewal::Look };
        let (Some(record), Some(lease)) = (&entry.record, entry.lease) else { return Renewal::Look };
        let Some(ttl) = record.lease() else { return Renewal::Look };
        match lease.extended {
            Some(at) if now < at + ttl / 3 => Renewal::Done,
            _ => Renewal::Extend(lease.id),
        }
    }

    /// Records the renewal of a lease.
    pub(crate) fn extended(&mut self, key: &InstanceKey, id: i64, at: Instant) {
        if let Some(lease) = self.entries.get_mut(key).and_then(|entry| entry.lease.as_mut())
            && lease.id == id
        {
            lease.extended = lease.extended.max(Some(at));
        }
    }

    /// Holds back lapses until [`Self::release`].
    pub(crate) fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Publishes lapses again, except those of the instances in `grace`, until [`Self::end_grace`].
    pub(crate) fn release(&mut self, grace: HashSet<InstanceKey>) -> Vec<StoreEvent> {
        self.grace = grace;
        let held = self.held.take().unwrap_or_default();
        let mut events = Vec::new();
        held.into_iter().for_each(|key| self.tell(key, &mut events));
        events
    }

    /// Ends the grace of instances whose leases were renewed or could not be. Returns the events to publish.
    pub(crate) fn end_grace(&mut self, keys: Vec<InstanceKey>) -> Vec<StoreEvent> {
        let mut events = Vec::new();
        for key in keys {
            self.grace.remove(&key);
            self.tell(key, &mut events);
        }
        events
    }

    /// Instances whose lapse was not published.
    pub(crate) fn untold(&self) -> impl Iterator<Item = &InstanceKey> {
        self.entries.iter().filter(|(_, entry)| entry.is_lapsed() && !entry.told).map(|(key, _)| key)
    }

    /// Returns the complete state as a [`StoreEvent::Reset`], with the lapses of all instances but those in
    /// grace.
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

    /// Replaces the state by a full read. Published lapses and times of renewals are kept.
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

    /// Applies watch events in order. Returns the events to publish.
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
            // The last good version stays in force.
            Some(Err(error)) => {
                entry.revision = revision;
                if self.broken.insert(key.clone()) && self.broken.len() <= TOLD {
                    tracing::warn!(
                        instance = %key,
                        %error,
                        "cannot decode a record in etcd; its last good version stays in use"
                    );
                }
                return;
            }
            None => {
                entry.record = None;
                entry.revision = 0;
                self.broken.remove(&key);
            }
        }
        // A published record counts as not lapsed, unless a lapse event follows it.
        entry.told = false;
        events.push(StoreEvent::Changed { revision, key, record: entry.record.clone() });
    }

    /// Publishes a lapse or its end, if it differs from the last published state.
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

/// Result of a full read.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    entries: HashMap<InstanceKey, Entry>,
    stores: BTreeSet<String>,
    broken: BTreeSet<InstanceKey>,
    bytes: usize,
}

impl Snapshot {
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
                            tracing::warn!(
                                instance = %key,
                                %error,
                                "cannot decode a record in etcd; ignoring it"
                            );
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

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of bytes read.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Decodes the record of a key's value.
pub(crate) fn read(key: &InstanceKey, pair: &KeyValue) -> Result<Arc<Record>, String> {
    decode(key.clone(), &pair.value, unsigned(pair.mod_revision), unsigned(pair.create_revision))
        .map(Arc::new)
}

/// Converts a revision, which is never negative in etcd.
pub(crate) fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// Returns the TTL of a lease in etcd, in whole seconds: a third longer than the registered TTL, because
/// renewals are forwarded with at most this delay.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    let longer = ttl + ttl / 3;
    let whole = longer.as_secs() + u64::from(longer.subsec_nanos() > 0);
    i64::try_from(whole.max(1)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
