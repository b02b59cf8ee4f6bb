//! Services found in etcd's keys: a state machine without IO. Full reads and events in, changed services out.

use crate::schema::{HostTemplate, Meaning, Place, Schema};
use pilotfish_registry::{CatalogInstance, CatalogService};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key as text: keys that are not UTF-8 cannot match a pattern.
type Key = Arc<str>;

/// All keys that match the schema, and the services of their instances.
#[derive(Debug)]
pub(crate) struct Keyspace {
    schema: Schema,
    entries: BTreeMap<Key, Entry>,
    /// The keys of the instances of each service.
    services: BTreeMap<Arc<Place>, BTreeSet<Key>>,
}

/// The instance or problem of a key.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// Instance of the last valid value.
    instance: Option<(Arc<Place>, CatalogInstance)>,
    /// Reason that the newest value is invalid.
    problem: Option<Arc<str>>,
}

/// Changes caused by events.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Difference {
    /// Services with all of their instances.
    pub(crate) set: Vec<CatalogService>,
    /// Ids of services without instances.
    pub(crate) removed: Vec<Arc<str>>,
    /// Keys whose problem was added, changed or removed.
    pub(crate) problems: Vec<(Key, Option<Arc<str>>)>,
}

/// A full read in progress, page by page. The previous state stays in force until it is complete.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    entries: BTreeMap<Key, Entry>,
}

impl Snapshot {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Keyspace {
    pub(crate) fn new(schema: Schema) -> Self {
        Self { schema, entries: BTreeMap::new(), services: BTreeMap::new() }
    }

    /// Common prefix of all keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.schema.prefix
    }

    /// Adds a key to a snapshot.
    pub(crate) fn read(&self, snapshot: &mut Snapshot, key: &[u8], value: &[u8]) {
        if let Some((key, entry)) = self.entry(key, value) {
            snapshot.entries.insert(key, entry);
        }
    }

    /// Replaces all keys by a complete snapshot, and returns the changes.
    pub(crate) fn replace(&mut self, snapshot: Snapshot) -> Difference {
        let before = std::mem::replace(&mut self.entries, snapshot.entries);
        self.services.clear();
        for (key, entry) in &self.entries {
            if let Some((place, _)) = &entry.instance {
                self.services.entry(place.clone()).or_default().insert(key.clone());
            }
        }
        let keys = before.keys().chain(self.entries.keys()).cloned().collect::<BTreeSet<_>>();
        Difference {
            set: self.services.keys().filter_map(|place| self.service(place)).collect(),
            removed: Vec::new(),
            problems: self.problems_that_differ(&keys, &before),
        }
    }

    /// Applies events in order: a key with its value, or without one if it was deleted.
    pub(crate) fn apply<'a>(
        &mut self,
        events: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Difference {
        let mut before: BTreeMap<Key, Option<Entry>> = BTreeMap::new();
        for (key, value) in events {
            let new = value.and_then(|value| self.entry(key, value));
            let key = match &new {
                Some((key, _)) => key.clone(),
                None => match std::str::from_utf8(key) {
                    Ok(key) => Key::from(key),
                    Err(_) => continue,
                },
            };
            let old = self.set(&key, new.map(|(_, entry)| entry));
            before.entry(key).or_insert(old);
        }
        before.retain(|key, old| old.as_ref() != self.entries.get(key));
        self.difference(&before)
    }

    /// Returns the entry of a key and its value; `None` if the schema does not match.
    fn entry(&self, key: &[u8], value: &[u8]) -> Option<(Key, Entry)> {
        let text = std::str::from_utf8(key).ok()?;
        let known = self.entries.get_key_value(text);
        let key = known.map_or_else(|| Key::from(text), |(key, _)| key.clone());
        let known = known.and_then(|(_, entry)| entry.instance.clone());
        match self.schema.read(key.as_bytes(), value) {
            Meaning::Nothing => None,
            Meaning::Bad(reason) => Some((key, Entry { instance: known, problem: Some(reason.into()) })),
            Meaning::Instance(place, instance) => {
                let place = match known {
                    Some((known, _)) if *known == place => known,
                    _ => self
                        .services
                        .get_key_value(&place)
                        .map_or_else(|| Arc::new(place), |(known, _)| known.clone()),
                };
                Some((key, Entry { instance: Some((place, *instance)), problem: None }))
            }
        }
    }

    /// Replaces the entry of a key, and returns the previous one.
    fn set(&mut self, key: &Key, entry: Option<Entry>) -> Option<Entry> {
        if let Some((place, _)) = entry.as_ref().and_then(|entry| entry.instance.as_ref()) {
            self.services.entry(place.clone()).or_default().insert(key.clone());
        }
        let place = entry.as_ref().and_then(|entry| entry.instance.as_ref()).map(|(place, _)| place.clone());
        let old = match entry {
            Some(entry) => self.entries.insert(key.clone(), entry),
            None => self.entries.remove(key),
        };
        let left = old.as_ref().and_then(|old| old.instance.as_ref()).map(|(place, _)| place);
        if let Some(left) = left.filter(|left| Some(*left) != place.as_ref())
            && let Some(keys) = self.services.get_mut(left)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.services.remove(left);
            }
        }
        old
    }

    fn difference(&self, before: &BTreeMap<Key, Option<Entry>>) -> Difference {
        let place_of = |entry: Option<&Entry>| {
            entry.and_then(|entry| entry.instance.as_ref()).map(|(place, _)| place.clone())
        };
        let mut places = BTreeSet::new();
        for (key, old) in before {
            let (old, new) = (old.as_ref(), self.entries.get(key));
            if old.map(|old| &old.instance) != new.map(|new| &new.instance) {
                places.extend(place_of(old).into_iter().chain(place_of(new)));
            }
        }
        let mut difference = Difference::default();
        for place in places {
            match self.service(&place) {
                Some(service) => difference.set.push(service),
                None => difference.removed.push(place.to_string().into()),
            }
        }
        let keys = before.keys().cloned().collect();
        let old = before.iter().filter_map(|(key, old)| Some((key.clone(), old.clone()?))).collect();
        difference.problems = self.problems_that_differ(&keys, &old);
        difference
    }

    fn problems_that_differ(
        &self,
        keys: &BTreeSet<Key>,
        before: &BTreeMap<Key, Entry>,
    ) -> Vec<(Key, Option<Arc<str>>)> {
        let problem = |entry: Option<&Entry>| entry.and_then(|entry| entry.problem.clone());
        let differing =
            keys.iter().map(|key| (key, problem(before.get(key)), problem(self.entries.get(key))));
        differing.filter(|(_, old, new)| old != new).map(|(key, _, new)| (key.clone(), new)).collect()
    }

    /// Returns a service with its instances; `None` if it has none.
    fn service(&self, place: &Arc<Place>) -> Option<CatalogService> {
        let keys = self.services.get(place)?;
        let host: &HostTemplate = &self.schema.host;
        let namespace = place.namespace.as_deref().unwrap_or(self.schema.defaults.namespace.as_str());
        let mut service = CatalogService::new(place.to_string(), host.host(place), namespace);
        let instance = |key: &Key| Some(self.entries.get(key)?.instance.as_ref()?.1.clone());
        service.instances = keys.iter().filter_map(instance).collect();
        Some(service)
    }
}

#[cfg(test)]
mod tests;
