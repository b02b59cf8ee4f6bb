//! Queue of status writes, without IO: compares wanted statuses with those in the API server.
//!
//! A status is written if it differs from the stored one, and only while the object that it was made from is
//! the stored object: then `observedGeneration` is its generation. Each write names the version that it is
//! based on, so concurrent writes of others are never lost. A write comes back as a watch event that causes
//! no further write.

use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::status::{HostAddress, Message, Status, merge_patch};
use pilotfish_config::{MeshFile, takes_part};
use pilotfish_kube::watch::Stored;
use pilotfish_model::{Kind, Namespace, Object, ObjectKey, Revision, World};
use pilotfish_runtime::{BackoffPolicy, DeadlineQueue};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pauses after failures, and after another controller reverted a write.
const RETRY: BackoffPolicy =
    BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(300)).with_jitter(0.0);

/// Minimum interval between two writes of one object: the status of a Gateway counts its routes, which often
/// change together.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum wait for a newer version after a write failed with a conflict. Conflicts with another cause (such
/// as an admission webhook) never bring one.
const CONFLICT_WAIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) key: ObjectKey,
    /// Merge patch of the object.
    pub(super) patch: Value,
    /// Version that it is based on.
    over: String,
}

/// Outcome of a write.
#[derive(Debug)]
pub(super) enum Outcome {
    Written(Stored),
    /// The object has another version, or was deleted.
    Conflict,
    /// The API server refused it, or the outcome is unknown.
    Failed,
}

#[derive(Debug, Default)]
struct Entry {
    wanted: Option<Arc<Status>>,
    stored: Option<(Option<Object>, Stored)>,
    /// True if the status depends on the stored object only, not on the world.
    about_itself: bool,
    /// True if a write is in flight.
    busy: bool,
    /// Version that is known to be outdated, and the end of that assumption.
    outdated: Option<(String, Instant)>,
    /// Last written status and its generation: if it is wanted again, another controller has reverted it.
    written: Option<(Arc<Status>, i64)>,
    /// Result of a write that the API server stored in part, for definitions that lack a field: a second
    /// write would not help.
    partially_stored: Option<(Arc<Status>, Value)>,
    /// Consecutive failures and reverted writes.
    failures: u32,
    /// Earliest time of a write after a failure.
    not_before: Option<Instant>,
    /// Earliest time of a write after a successful one.
    rests_until: Option<Instant>,
}

/// Objects to check, the longest waiting first, so that each has its turn under the rate limit.
#[derive(Default)]
struct KeyQueue {
    order: VecDeque<ObjectKey>,
    members: BTreeSet<ObjectKey>,
}

impl KeyQueue {
    fn push(&mut self, key: ObjectKey) {
        if self.members.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<ObjectKey> {
        let key = self.order.pop_front()?;
        self.members.remove(&key);
        Some(key)
    }
}

/// State of all statuses, as described in the module.
#[derive(Default)]
pub(super) struct StatusQueue {
    world: Arc<World>,
    entries: BTreeMap<ObjectKey, Entry>,
    open: KeyQueue,
    /// Objects whose stored version is not yet in the world.
    behind: BTreeSet<ObjectKey>,
    /// Objects whose namespace is not part of the mesh, or that are of another revision.
    outside: BTreeSet<ObjectKey>,
    revision: Revision,
    /// Objects with a scheduled check.
    later: DeadlineQueue<ObjectKey>,
}

impl StatusQueue {
    /// Sets the statuses that changed with a new world. `namespaces` is true if other namespaces may now be
    /// part of the mesh.
    pub(super) fn set_desired(
        &mut self,
        world: Arc<World>,
        changes: Vec<(ObjectKey, Option<Arc<Status>>)>,
        namespaces: bool,
    ) {
        self.world = world;
        for (key, status) in changes {
            let entry = self.entries.entry(key.clone()).or_default();
            entry.wanted = status;
            entry.clear_failures();
            self.forget_if_idle(&key);
            self.open.push(key);
        }
        let waiting = if namespaces { std::mem::take(&mut self.outside) } else { BTreeSet::new() };
        std::mem::take(&mut self.behind).into_iter().chain(waiting).for_each(|key| self.open.push(key));
    }

    /// Sets the revision whose objects are written.
    pub(super) fn set_revision(&mut self, revision: Revision) {
        if self.revision != revision {
            self.revision = revision;
            std::mem::take(&mut self.outside).into_iter().for_each(|key| self.open.push(key));
        }
    }

    /// Handles an object of the API server.
    pub(super) fn stored(&mut self, key: ObjectKey, object: Option<Object>, stored: Stored) {
        let entry = self.entries.entry(key.clone()).or_default();
        let known = entry.stored.as_ref().map(|(_, known)| known.version.as_str());
        if known.is_some_and(|known| is_older(&stored.version, known)) {
            // Event of our own write, whose response was more recent.
            return;
        }
        entry.stored = Some((object, stored));
        self.open.push(key);
    }

    /// Sets an object's own problems.
    pub(super) fn analysed(&mut self, key: &ObjectKey, messages: Vec<Message>) {
        self.update_about_itself(key, |wanted, _| *wanted = Some(messages));
    }

    /// Sets the addresses of a ServiceEntry's hosts.
    pub(super) fn allocated(&mut self, key: &ObjectKey, addresses: Vec<HostAddress>) {
        self.update_about_itself(key, |_, wanted| *wanted = Some(addresses));
    }

    fn update_about_itself(
        &mut self,
        key: &ObjectKey,
        change: impl FnOnce(&mut Option<Vec<Message>>, &mut Option<Vec<HostAddress>>),
    ) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.about_itself = true;
        let (mut messages, mut addresses) = match entry.wanted.as_deref() {
            Some(Status::Istio { messages, addresses }) => (messages.clone(), addresses.clone()),
            _ => (None, None),
        };
        change(&mut messages, &mut addresses);
        let status = Status::Istio { messages, addresses };
        if entry.wanted.as_deref() != Some(&status) {
            entry.wanted = Some(Arc::new(status));
            entry.clear_failures();
            self.open.push(key.clone());
        }
    }

    /// Handles the removal of an object.
    pub(super) fn gone(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.stored = None;
            entry.written = None;
            entry.rests_until = None;
            entry.clear_failures();
            if entry.about_itself {
                entry.wanted = None;
            }
        }
        self.outside.remove(key);
        self.forget_if_idle(key);
    }

    /// Drops an object that is not stored and has no wanted status, which bounds memory over months.
    fn forget_if_idle(&mut self, key: &ObjectKey) {
        let is_idle = |entry: &Entry| !entry.busy && entry.stored.is_none() && entry.wanted.is_none();
        if self.entries.get(key).is_some_and(is_idle) {
            self.entries.remove(key);
        }
    }

    /// The next write that is due. `clock` is the time as RFC 3339.
    pub(super) fn next(&mut self, now: Instant, clock: &str) -> Option<Write> {
        while let Some(key) = self.later.pop_due(now) {
            self.open.push(key);
        }
        while let Some(key) = self.open.pop() {
            if let Some(write) = self.consider(key, now, clock) {
                return Some(write);
            }
        }
        None
    }

    /// Time of the next scheduled check.
    pub(super) fn due(&self) -> Option<Instant> {
        self.later.next()
    }

    /// Handles the end of a write.
    pub(super) fn ended(&mut self, write: &Write, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(&write.key) else { return };
        entry.busy = false;
        match outcome {
            Outcome::Written(stored) => entry.was_written(stored, now),
            Outcome::Conflict => {
                entry.written = None;
                entry.outdated = Some((write.over.clone(), now + CONFLICT_WAIT));
            }
            Outcome::Failed => {
                entry.written = None;
                entry.failed(now);
            }
        }
        self.forget_if_idle(&write.key);
        self.open.push(write.key.clone());
    }

    /// Number of known objects, for tests of memory bounds.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if a namespace is part of the mesh: not before the world is known, and not if
    /// `discoverySelectors` exclude it.
    fn takes_part(&self, namespace: &Namespace) -> bool {
        let world = &self.world;
        if world.revision() == 0 {
            return false;
        }
        let mesh = world.object(&MeshFile::Config.key()).and_then(Object::typed::<MeshConfig>);
        let Some(mesh) = mesh.filter(|mesh| !mesh.discovery_selectors.is_empty()) else { return true };
        let object = world.object(&ObjectKey::new(Kind::Namespace, "", namespace.as_str()));
        let labels = object.map(|object| &*object.meta.labels);
        takes_part(&mesh.discovery_selectors, namespace.as_str(), labels)
    }

    /// True if this revision writes the status of a stored object.
    fn is_ours(&self, key: &ObjectKey, stored: &Stored) -> bool {
        let own = stored.revision.as_deref();
        let namespace = match key.namespace.as_str() {
            "" => None,
            _ if own.is_some() || self.revision.name().is_none() => None,
            // Its label is not known yet.
            _ if self.world.revision() == 0 => return false,
            name => self.world.object(&ObjectKey::new(Kind::Namespace, "", name)),
        };
        self.revision.writes_status(own, namespace.and_then(|object| object.meta.revision()))
    }

    /// True if an object is not written because it, or its namespace, belongs to another control plane.
    fn is_outside(&self, key: &ObjectKey) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        let is_ours = entry.stored.as_ref().is_none_or(|(_, stored)| self.is_ours(key, stored));
        !is_ours || (entry.about_itself && !self.takes_part(&key.namespace))
    }

    fn consider(&mut self, key: ObjectKey, now: Instant, clock: &str) -> Option<Write> {
        if self.is_outside(&key) {
            self.outside.insert(key);
            return None;
        }
        let entry = self.entries.get_mut(&key)?;
        let (Some(wanted), Some((object, stored))) = (&entry.wanted, &entry.stored) else { return None };
        if entry.busy {
            return None;
        }
        if !entry.about_itself && (object.is_none() || self.world.object(&key) != object.as_ref()) {
            self.behind.insert(key);
            return None;
        }
        let status = wanted.merged(&stored.status, stored.generation, clock)?;
        if entry
            .partially_stored
            .as_ref()
            .is_some_and(|(what, left)| what == wanted && *left == stored.status)
        {
            return None;
        }
        let patience = entry.outdated.as_ref().filter(|(version, _)| *version == stored.version);
        let patience = patience.map(|(_, until)| *until);
        if let Some(at) = entry.not_before.max(entry.rests_until).max(patience).filter(|at| *at > now) {
            self.later.set(key, at);
            return None;
        }
        let same = (wanted.clone(), stored.generation);
        let (over, patch) = (stored.version.clone(), merge_patch(&stored.status, &status));
        if entry.written.as_ref() == Some(&same) {
            // Another controller has overwritten this write. Pausing avoids a race between the two.
            entry.written = None;
            entry.failed(now);
            let at = entry.not_before?;
            tracing::debug!(
                object = %key,
                failures = entry.failures,
                "another controller writes this status too"
            );
            self.later.set(key, at);
            return None;
        }
        entry.written = Some(same);
        entry.busy = true;
        let patch = json!({"metadata": {"resourceVersion": over}, "status": patch});
        Some(Write { key, patch, over })
    }
}

impl Entry {
    /// Handles the response of a successful write, with the resulting object.
    fn was_written(&mut self, stored: Stored, now: Instant) {
        self.rests_until = Some(now + MIN_INTERVAL);
        // If the object is gone, or a later event arrived first, the response is outdated.
        let Some((_, known)) = &mut self.stored else { return };
        if is_older(&stored.version, &known.version) {
            return;
        }
        let lacks = |wanted: &Arc<Status>| wanted.merged(&stored.status, stored.generation, "").is_some();
        let written = self.written.as_ref().map(|(written, _)| written);
        let same = self.wanted.clone().filter(|wanted| Some(wanted) == written);
        self.partially_stored = same.filter(lacks).map(|wanted| (wanted, stored.status.clone()));
        *known = stored;
    }

    /// Resets the failures when another status is to be written.
    fn clear_failures(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + RETRY.wait(self.failures, 1.0));
    }
}

/// True if a version is older than another. Versions that are not numbers are never known to be.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u128>(), than.parse::<u128>()), (Ok(version), Ok(than)) if version < than)
}
