//! Plan of what to apply: a state machine without IO.

use crate::object::{ManagedKind, Manifest, ObjectId};
use crate::projection::project;
use crate::render::{GATEWAY_NAME, MANAGED};
use pilotfish_model::{Kind, ObjectKey};
use pilotfish_runtime::BackoffPolicy;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pauses between applications that fail, or that somebody else keeps undoing. Without jitter, because only
/// one replica applies.
const BACKOFF: BackoffPolicy =
    BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(300)).with_jitter(0.0);
/// Time without an application after which the next one is immediate again.
const CALM: Duration = Duration::from_secs(600);
/// Pause between two Gateways.
const BETWEEN: Duration = Duration::from_millis(20);
/// Time for which differences gather before they are corrected: watches are behind what was just written.
const GATHER: Duration = Duration::from_millis(500);

/// Objects of a Gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Desired {
    /// `metadata.uid` of the Gateway, which owns the objects.
    pub(crate) uid: Arc<str>,
    /// True if Pods that an istiod made get this template.
    pub(crate) replaces_proxy: bool,
    pub(crate) manifests: Vec<Manifest>,
}

/// Work on one Gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) key: ObjectKey,
    pub(crate) desired: Arc<Desired>,
    /// Stored objects that the Gateway is known to own: they need no check before they are changed.
    pub(crate) owned: BTreeMap<ObjectId, Value>,
    /// Optional objects that the Gateway has no parameters for any more.
    pub(crate) superfluous: Vec<ObjectId>,
}

/// State of a Gateway.
#[derive(Debug)]
struct Entry {
    desired: Arc<Desired>,
    applied: Option<Applied>,
    /// Applications without a calm period between them.
    attempts: u32,
    last: Option<Instant>,
    due: Option<Instant>,
}

/// Last successful application.
#[derive(Debug)]
struct Applied {
    desired: Arc<Desired>,
    /// The applied fields as the API server stores them.
    stored: BTreeMap<ObjectId, Value>,
}

/// Desired and stored objects, and the Gateways whose objects differ.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    entries: BTreeMap<ObjectKey, Entry>,
    /// Labelled objects, without status.
    stored: BTreeMap<ObjectId, Value>,
    /// Kinds whose first list is complete: before, nothing is known to be missing.
    listed: BTreeSet<ManagedKind>,
    agenda: BTreeSet<(Instant, ObjectKey)>,
    not_before: Option<Instant>,
}

impl Planner {
    /// Replaces the objects of all Gateways. Objects of deleted Gateways are left to the garbage collector.
    pub(crate) fn set_desired(&mut self, all: BTreeMap<ObjectKey, Arc<Desired>>, now: Instant) {
        let gone: Vec<_> = self.entries.keys().filter(|key| !all.contains_key(key)).cloned().collect();
        for key in gone {
            self.unschedule(&key);
            self.entries.remove(&key);
        }
        for (key, desired) in all {
            match self.entries.get_mut(&key) {
                Some(entry) if Arc::ptr_eq(&entry.desired, &desired) || entry.desired == desired => {}
                Some(entry) => {
                    entry.desired = desired;
                    entry.attempts = 0;
                    self.unschedule(&key);
                }
                None => {
                    let (applied, attempts, last, due) = Default::default();
                    let entry = Entry { desired, applied, attempts, last, due };
                    self.entries.insert(key.clone(), entry);
                }
            }
            self.check(&key, now, Duration::ZERO);
        }
    }

    /// Handles a complete list of a kind.
    pub(crate) fn listed(&mut self, kind: ManagedKind, objects: BTreeMap<ObjectId, Value>, now: Instant) {
        self.listed.insert(kind);
        self.stored.retain(|id, _| id.kind != kind);
        self.stored.extend(objects);
        let all: Vec<_> = self.entries.keys().cloned().collect();
        all.iter().for_each(|key| self.check(key, now, GATHER));
    }

    /// Handles a stored object, or its deletion.
    pub(crate) fn observed(&mut self, id: ObjectId, object: Option<Value>, now: Instant) {
        let before = match object {
            Some(object) => {
                let new = gateway_of(&id, &object);
                let before = self.stored.get(&id).and_then(|before| gateway_of(&id, before));
                self.stored.insert(id, object);
                new.or(before)
            }
            None => self.stored.remove(&id).and_then(|before| gateway_of(&id, &before)),
        };
        if let Some(key) = before {
            self.check(&key, now, GATHER);
        }
    }

    /// Time of the next application.
    pub(crate) fn next(&self) -> Option<Instant> {
        let (at, _) = self.agenda.first()?;
        Some(self.not_before.map_or(*at, |not_before| not_before.max(*at)))
    }

    /// Takes the next Gateway, if it is due. The caller must report the result with [`Planner::ended`].
    pub(crate) fn take(&mut self, now: Instant) -> Option<Job> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.agenda.first()?.clone();
        self.unschedule(&key);
        self.not_before = Some(now + BETWEEN);
        let desired = self.entries.get(&key)?.desired.clone();
        let ids = desired.manifests.iter().map(|manifest| &manifest.id);
        let stored = ids.filter_map(|id| self.stored.get_key_value(id));
        let owned = stored.filter(|(_, object)| is_owner(&desired.uid, object));
        let owned = owned.map(|(id, object)| (id.clone(), object.clone())).collect();
        let superfluous = self.superfluous(&key, &desired);
        Some(Job { key, desired, owned, superfluous })
    }

    /// Handles the result for a Gateway: the objects as the API server stored them, or `None` for a failure.
    pub(crate) fn ended(&mut self, job: &Job, stored: Option<BTreeMap<ObjectId, Value>>, now: Instant) {
        let Some(entry) = self.entries.get_mut(&job.key) else { return };
        let is_calm = entry.last.is_none_or(|last| now.duration_since(last) >= CALM);
        entry.attempts = if is_calm { 1 } else { entry.attempts + 1 };
        entry.last = Some(now);
        if let Some(stored) = stored {
            let bodies = job.desired.manifests.iter().filter_map(|manifest| {
                Some((manifest.id.clone(), project(&manifest.body, stored.get(&manifest.id)?)))
            });
            entry.applied = Some(Applied { desired: job.desired.clone(), stored: bodies.collect() });
            job.superfluous.iter().for_each(|id| drop(self.stored.remove(id)));
            self.stored.extend(stored);
        }
        self.check(&job.key, now, GATHER);
    }

    /// Postpones everything, for an API server that does not answer.
    pub(crate) fn pause(&mut self, until: Instant) {
        self.not_before = self.not_before.max(Some(until));
    }

    /// Number of Gateways whose objects are as desired.
    pub(crate) fn settled(&self) -> usize {
        self.entries.values().filter(|entry| entry.due.is_none()).count()
    }

    /// True if the objects of a Gateway are as they were applied last, and nothing else is asked for.
    pub(crate) fn is_settled(&self, key: &ObjectKey) -> bool {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.due.is_none()) else { return false };
        entry.applied.as_ref().is_some_and(|applied| applied.desired == entry.desired)
    }

    /// Schedules a Gateway whose objects differ.
    fn check(&mut self, key: &ObjectKey, now: Instant, gather: Duration) {
        let Some(entry) = self.entries.get(key) else { return };
        let differs = self.listed.len() == ManagedKind::ALL.len() && self.differs(key, entry);
        let is_new = entry.applied.as_ref().is_none_or(|applied| applied.desired != entry.desired);
        let first = if is_new { now } else { now + gather };
        let at = match entry.last {
            Some(last) if entry.attempts > 0 => first.max(last + BACKOFF.wait(entry.attempts, 1.0)),
            _ => first,
        };
        if !differs {
            self.unschedule(key);
        } else if entry.due.is_none() {
            self.agenda.insert((at, key.clone()));
            if let Some(entry) = self.entries.get_mut(key) {
                entry.due = Some(at);
            }
        }
    }

    fn differs(&self, key: &ObjectKey, entry: &Entry) -> bool {
        let Some(applied) = entry.applied.as_ref().filter(|it| it.desired == entry.desired) else {
            return true;
        };
        let is_same = |manifest: &Manifest| {
            let stored = self.stored.get(&manifest.id).map(|stored| project(&manifest.body, stored));
            stored.as_ref() == applied.stored.get(&manifest.id)
        };
        !entry.desired.manifests.iter().all(is_same) || !self.superfluous(key, &entry.desired).is_empty()
    }

    /// Returns the optional objects that the Gateway owns and does not need.
    fn superfluous(&self, key: &ObjectKey, desired: &Desired) -> Vec<ObjectId> {
        let is_needed = |id: &ObjectId| desired.manifests.iter().any(|manifest| manifest.id == *id);
        let namespace = key.namespace.as_str();
        let of_namespace = |kind: ManagedKind| {
            let first = ObjectId { kind, namespace: namespace.into(), name: "".into() };
            let objects = self.stored.range(first..);
            objects.take_while(move |(id, _)| id.kind == kind && *id.namespace == *namespace)
        };
        let kinds = ManagedKind::ALL.into_iter().filter(|kind| kind.is_optional());
        let candidates = kinds
            .flat_map(of_namespace)
            .filter(|(_, object)| is_owner(&desired.uid, object) && label(object, MANAGED).is_some());
        candidates.map(|(id, _)| id).filter(|id| !is_needed(id)).cloned().collect()
    }

    fn unschedule(&mut self, key: &ObjectKey) {
        let due = self.entries.get_mut(key).and_then(|entry| entry.due.take());
        if let Some(at) = due {
            self.agenda.remove(&(at, key.clone()));
        }
    }
}

/// True if one of the owners of an object has that uid.
pub(crate) fn is_owner(uid: &str, object: &Value) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner.get("uid").and_then(Value::as_str) == Some(uid))
}

/// Returns the Gateway that an object is labelled with.
fn gateway_of(id: &ObjectId, object: &Value) -> Option<ObjectKey> {
    let name = label(object, GATEWAY_NAME)?;
    Some(ObjectKey::new(Kind::KubernetesGateway, &*id.namespace, name))
}

fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(name)?.as_str()
}

#[cfg(test)]
mod tests;
