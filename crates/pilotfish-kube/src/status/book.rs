//! What is to be written, without IO: wanted statuses on one side, what the API server has on the other.
//!
//! A status is written when it says something else than what is stored, and only while the object that it was made from is the
//! object that is stored: then its generation is the one that was observed. Each write names the version that it stands on, so what
//! others write meanwhile is never lost. What was written comes back as an event that asks for nothing more.

use crate::watch::Stored;
use pilotfish_config::status::{Message, Status, merge_patch};
use pilotfish_model::{Object, ObjectKey, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The pause after the first failure, or the first time that somebody else undid a write. Doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The pause between two writes of one object: the status of a Gateway counts its routes, and routes come in crowds.
const REST: Duration = Duration::from_millis(100);

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) key: ObjectKey,
    /// The merge patch of the object.
    pub(super) patch: Value,
    /// The version that it stands on.
    over: String,
}

/// What came of a write.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is stored so.
    Written(Stored),
    /// The object is no longer of that version.
    Conflict,
    /// The API server did not do it, or nobody knows.
    Failed,
}

#[derive(Debug, Default)]
struct Entry {
    wanted: Option<Arc<Status>>,
    stored: Option<(Option<Object>, Stored)>,
    /// Whether the status is about nothing but the stored object itself, whatever the world has.
    of_itself: bool,
    /// Whether a write is under way.
    busy: bool,
    /// The version that is known to be out of date.
    outdated: Option<String>,
    /// What was written last, of which generation: to want it again means that somebody undid it.
    written: Option<(Arc<Status>, i64)>,
    /// What the API server made of a write that it took only in part, for definitions that lack a field: no use to say it again.
    curtailed: Option<(Arc<Status>, Value)>,
    /// Failures and undone writes in a row.
    troubles: u32,
    /// Nothing is written before then, because something went wrong.
    not_before: Option<Instant>,
    /// Nothing is written before then, because something just was.
    rests_until: Option<Instant>,
}

/// See the module's description.
#[derive(Default)]
pub(super) struct Book {
    world: Arc<World>,
    entries: BTreeMap<ObjectKey, Entry>,
    /// What must be looked at.
    open: BTreeSet<ObjectKey>,
    /// What waits for the world to have the object that is stored.
    behind: BTreeSet<ObjectKey>,
    /// What waits for its time.
    later: BTreeSet<(Instant, ObjectKey)>,
}

impl Book {
    /// The world has changed, and these statuses with it.
    pub(super) fn want(&mut self, world: Arc<World>, changes: Vec<(ObjectKey, Option<Arc<Status>>)>) {
        self.world = world;
        for (key, status) in changes {
            let entry = self.entries.entry(key.clone()).or_default();
            entry.wanted = status;
            entry.calm();
            self.open.insert(key);
        }
        self.open.append(&mut self.behind);
    }

    /// The API server has this object.
    pub(super) fn stored(&mut self, key: ObjectKey, object: Option<Object>, stored: Stored) {
        let entry = self.entries.entry(key.clone()).or_default();
        let known = entry.stored.as_ref().map(|(_, known)| known.version.as_str());
        if known.is_some_and(|known| is_older(&stored.version, known)) {
            // The echo of what we wrote before: its answer said more.
            return;
        }
        entry.stored = Some((object, stored));
        self.open.insert(key);
    }

    /// The API server has this object, and this is what is wrong with it by itself.
    pub(super) fn analysed(&mut self, key: ObjectKey, messages: Vec<Message>, stored: Stored) {
        let entry = self.entries.entry(key.clone()).or_default();
        let status = Status::Analysis(messages);
        if entry.wanted.as_deref() != Some(&status) {
            entry.wanted = Some(Arc::new(status));
            entry.of_itself = true;
            entry.calm();
        }
        self.stored(key, None, stored);
    }

    /// The API server no longer has this object.
    pub(super) fn gone(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.stored = None;
            entry.written = None;
            entry.rests_until = None;
            entry.calm();
        }
        let is_needed = |entry: &Entry| entry.busy || (entry.wanted.is_some() && !entry.of_itself);
        if self.entries.get(key).is_some_and(|entry| !is_needed(entry)) {
            self.entries.remove(key);
        }
    }

    /// The next write that is due. `clock` is the time as RFC 3339.
    pub(super) fn next(&mut self, now: Instant, clock: &str) -> Option<Write> {
        while let Some((at, key)) = self.later.first().cloned().filter(|(at, _)| *at <= now) {
            self.later.remove(&(at, key.clone()));
            self.open.insert(key);
        }
        while let Some(key) = self.open.pop_first() {
            if let Some(write) = self.look(key, now, clock) {
                return Some(write);
            }
        }
        None
    }

    /// When something is due that is not due now.
    pub(super) fn due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// A write came to an end.
    pub(super) fn ended(&mut self, write: &Write, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(&write.key) else { return };
        entry.busy = false;
        match outcome {
            Outcome::Written(stored) => {
                let wanted = entry.wanted.clone();
                let lacks =
                    |wanted: &Arc<Status>| wanted.merged(&stored.status, stored.generation, "").is_some();
                let written = entry.written.as_ref().map(|(written, _)| written);
                let same = wanted.filter(|wanted| Some(wanted) == written);
                entry.curtailed = same.filter(lacks).map(|wanted| (wanted, stored.status.clone()));
                let object = entry.stored.take().and_then(|(object, _)| object);
                entry.stored = Some((object, stored));
                entry.rests_until = Some(now + REST);
            }
            Outcome::Conflict => {
                entry.written = None;
                entry.outdated = Some(write.over.clone());
            }
            Outcome::Failed => {
                entry.written = None;
                entry.trouble(now);
            }
        }
        self.open.insert(write.key.clone());
    }

    fn look(&mut self, key: ObjectKey, now: Instant, clock: &str) -> Option<Write> {
        let entry = self.entries.get_mut(&key)?;
        let (Some(wanted), Some((object, stored))) = (&entry.wanted, &entry.stored) else { return None };
        if entry.busy || entry.outdated.as_ref() == Some(&stored.version) {
            return None;
        }
        if !entry.of_itself && (object.is_none() || self.world.object(&key) != object.as_ref()) {
            self.behind.insert(key);
            return None;
        }
        let status = wanted.merged(&stored.status, stored.generation, clock)?;
        if entry.curtailed.as_ref().is_some_and(|(what, left)| what == wanted && *left == stored.status) {
            return None;
        }
        if let Some(at) = entry.not_before.max(entry.rests_until).filter(|at| *at > now) {
            self.later.insert((at, key));
            return None;
        }
        let same = (wanted.clone(), stored.generation);
        let (over, patch) = (stored.version.clone(), merge_patch(&stored.status, &status));
        if entry.written.as_ref() == Some(&same) {
            // We said so already and somebody says otherwise. That must not become a race.
            entry.written = None;
            entry.trouble(now);
            let at = entry.not_before?;
            tracing::debug!(object = %key, troubles = entry.troubles, "another controller writes this status too");
            self.later.insert((at, key));
            return None;
        }
        entry.written = Some(same);
        entry.busy = true;
        let patch = json!({"metadata": {"resourceVersion": over}, "status": patch});
        Some(Write { key, patch, over })
    }
}

impl Entry {
    /// Something new is to be said: what went wrong before counts no more.
    fn calm(&mut self) {
        self.troubles = 0;
        self.not_before = None;
    }

    fn trouble(&mut self, now: Instant) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.troubles.min(16)).min(LONGEST_PAUSE);
        self.troubles = self.troubles.saturating_add(1);
        self.not_before = Some(now + pause);
    }
}

/// Whether a version is older than another. Versions that are no numbers are never known to be.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u128>(), than.parse::<u128>()), (Ok(version), Ok(than)) if version < than)
}
