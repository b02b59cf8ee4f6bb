//! The aggregate controller: owns all registries, passes inputs to them, and merges their services.
//!
//! ```text
//! sources ─ SourceEvent ─▶ feeds ─ objects ─▶ registries for objects ─┐
//!                            │                 ▲                       ├─ RegistryState ─▶ merge ─ Update ─▶
//!                            │                 └── workloads of others ┤                    ▲
//! live sources ─ RegistryBatch ─────────────────▶ live registries ─────┘                    │
//!                            └──────────── configuration objects of the configuration feed ─┘
//! ```
//!
//! A state machine without IO and clocks. Inputs are recorded; [`AggregateController::settle`] lets the
//! registries compute and returns the differences. The result depends on the present objects and registries,
//! not on the order in which they arrived; a failing source or registry removes nothing.

mod clusterset;
mod emit;
mod entry;
mod feed;
mod merge;
mod mesh;
mod read;
mod what_if;

use crate::live::RegistryBatch;
use crate::registry::{Mesh, ObjectEvent, RefusedObject, Registry, WorkloadChange};
use clusterset::ClusterSet;
use entry::{EntryInput, Rank, RegistryEntry, Touched};
pub use feed::Applied;
use feed::Feed;
pub use merge::{Conflict, MergePolicy};
use pilotfish_config::SourceEvent;
use pilotfish_model::{ClusterId, Revision, ServiceKey, ShardKey, Update, WorkloadKey};
use pilotfish_runtime::{Failure, Health};
pub use read::ReadObject;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;
pub use what_if::WhatIf;

/// Settings that are fixed while the controller runs.
#[derive(Clone, Debug)]
pub struct AggregateSettings {
    /// The feed whose configuration objects, MeshConfig and MeshNetworks are in force.
    pub config_feed: Arc<str>,
    /// The cluster that takes precedence if several clusters have the same Service.
    pub primary: ClusterId,
    /// Policy for services of the same host from registries of several types.
    pub merge: MergePolicy,
    /// The revision whose objects are read, of every feed.
    pub revision: Revision,
}

impl Default for AggregateSettings {
    fn default() -> Self {
        Self {
            config_feed: "Kubernetes".into(),
            primary: "Kubernetes".into(),
            merge: MergePolicy::default(),
            revision: Revision::default(),
        }
    }
}

/// Status of a registry, for readiness and `/debug/registryz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryStatus {
    /// Key of the registry's shard.
    pub shard: ShardKey,
    /// Sync state, with the failure if there is one.
    pub sync: Health,
    /// The number of services (hosts by namespace).
    pub services: usize,
    /// The number of endpoints of all services.
    pub endpoints: usize,
    /// The number of workloads.
    pub workloads: usize,
    /// True if the registry still reads its first list, beside the older one that it will replace.
    pub replacing: bool,
    /// True if readiness no longer waits for its first list, which exceeded the timeout.
    pub given_up: bool,
}

/// Error: not everything is in sync yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not in sync yet: {}", missing.join(", "))]
pub struct NotSynced {
    /// The registries (and `configuration`) that are not in sync, each with the reason if it fails.
    pub missing: Vec<String>,
}

/// Error: no such feed or source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no source {source_name:?} of the feed {feed:?}; its message was left out")]
pub struct UnknownSource {
    /// Name of the feed.
    pub feed: String,
    /// Name of the source.
    pub source_name: String,
}

/// Error: no such live registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no live registry {0}; its message was left out")]
pub struct NoLiveRegistry(pub ShardKey);

/// See the module's description. A copy costs pointers; [`AggregateController::what_if`] consumes one.
#[derive(Clone)]
pub struct AggregateController {
    settings: AggregateSettings,
    feeds: BTreeMap<Arc<str>, Feed>,
    entries: BTreeMap<Rank, RegistryEntry>,
    /// Registries that replace the one of the same rank as soon as they are in sync.
    replacements: BTreeMap<Rank, RegistryEntry>,
    /// Feeds that are removed as soon as no registry reads them.
    leaving: BTreeSet<Arc<str>>,
    mesh: Mesh,
    clusterset: ClusterSet,
    conflicts: BTreeMap<ServiceKey, Vec<Conflict>>,
    /// Number that grows with each change of the conflicts.
    conflicts_revision: u64,
    touched: Touched,
    updates: Vec<Update>,
    /// True during a dry run, in which nothing is logged.
    trying: bool,
}

impl AggregateController {
    /// A controller without registries; its configuration feed exists, without sources.
    #[must_use]
    pub fn new(settings: AggregateSettings) -> Self {
        let feed = Feed::new(settings.revision.clone());
        let feeds = BTreeMap::from([(settings.config_feed.clone(), feed)]);
        Self {
            settings,
            feeds,
            entries: BTreeMap::new(),
            replacements: BTreeMap::new(),
            leaving: BTreeSet::new(),
            mesh: Mesh::default(),
            clusterset: ClusterSet::default(),
            conflicts: BTreeMap::new(),
            conflicts_revision: 0,
            touched: Touched::default(),
            updates: Vec::new(),
            trying: false,
        }
    }

    /// Adds a source to a feed, which is created if it does not exist. If two sources of a feed have an
    /// object with the same key, that of the source added first is in force.
    pub fn add_source(&mut self, feed: &str, source: &str) {
        let new = || Feed::new(self.settings.revision.clone());
        self.feeds.entry(feed.into()).or_insert_with(new).add_source(source);
        self.select_namespaces();
    }

    /// Switches to the objects of another revision, or to other tags of the same one.
    pub fn set_revision(&mut self, revision: &Revision) {
        self.settings.revision = revision.clone();
        for feed in self.feeds.keys().cloned().collect::<Vec<_>>() {
            let mut events = Vec::new();
            if let Some(known) = self.feeds.get_mut(&feed) {
                known.set_revision(revision, &mut events);
            }
            self.route(&feed, &events);
        }
    }

    /// The revision whose objects are read.
    #[must_use]
    pub fn revision(&self) -> &Revision {
        &self.settings.revision
    }

    /// The number of objects that are left to other revisions.
    #[must_use]
    pub fn left_to_other_revisions(&self) -> usize {
        self.feeds.values().map(Feed::left_out).sum()
    }

    /// Sync state of a source of a feed. `None` if there is no such source.
    #[must_use]
    pub fn source_status(&self, feed: &str, source: &str) -> Option<&Health> {
        self.feeds.get(feed)?.source_status(source)
    }

    /// Removes a source, with the objects that only it had. Unlike a failure, this is a decision.
    pub fn remove_source(&mut self, feed: &str, source: &str) {
        let mut events = Vec::new();
        if let Some(known) = self.feeds.get_mut(feed) {
            known.remove_source(source, &mut events);
        }
        self.route(feed, &events);
    }

    /// Removes the feed of a registry that left or was replaced. A feed that a registry still reads is
    /// removed with the last of its registries.
    pub fn remove_feed(&mut self, feed: &str) {
        self.leaving.insert(feed.into());
        self.forget_feeds();
    }

    fn forget_feeds(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let read: BTreeSet<Arc<str>> = self.all_entries().filter_map(|entry| entry.feed().cloned()).collect();
        for feed in self.leaving.extract_if(.., |feed| !read.contains(feed)) {
            self.feeds.remove(&feed);
        }
    }

    /// Applies an event of a source of objects. Returns how many objects of its kind the source gained,
    /// changed and lost.
    ///
    /// # Errors
    /// If there is no such source.
    pub fn source_event(
        &mut self,
        feed: &str,
        source: &str,
        event: SourceEvent,
    ) -> Result<Applied, UnknownSource> {
        let mut events = Vec::new();
        let applied = self.feeds.get_mut(feed).and_then(|feed| feed.apply(source, event, &mut events));
        let Some(applied) = applied else {
            return Err(UnknownSource { feed: feed.to_owned(), source_name: source.to_owned() });
        };
        self.route(feed, &events);
        Ok(applied)
    }

    /// Adds a registry that reads the objects of a feed. An older one of the same shard is removed at once.
    pub fn add_registry(&mut self, registry: Box<dyn Registry>, feed: &str) {
        let entry = self.introduce(registry, feed);
        self.add(entry);
    }

    /// Adds a registry whose source sends batches for the shard. An older one of the same shard is removed at
    /// once.
    pub fn add_live(&mut self, shard: ShardKey) {
        self.add(RegistryEntry::new(shard, EntryInput::Live(Health::default())));
    }

    /// Adds a registry beside the one of the same shard, and replaces that one when it is in sync; until then
    /// the old one stays in force. Without an old one, this is [`AggregateController::add_registry`].
    pub fn replace_registry(&mut self, registry: Box<dyn Registry>, feed: &str) {
        let entry = self.introduce(registry, feed);
        let rank = self.rank(entry.shard());
        let place = if self.entries.contains_key(&rank) { &mut self.replacements } else { &mut self.entries };
        place.insert(rank, entry);
    }

    /// Removes a registry, with its services, endpoints and workloads.
    pub fn remove_registry(&mut self, shard: &ShardKey) {
        self.remove_at(&self.rank(shard));
    }

    /// Applies a batch of a live source.
    ///
    /// # Errors
    /// If there is no live registry of the shard.
    pub fn registry_batch(&mut self, shard: &ShardKey, batch: RegistryBatch) -> Result<(), NoLiveRegistry> {
        let rank = self.rank(shard);
        match self.entries.get_mut(&rank) {
            Some(entry) if entry.feed().is_none() => {
                entry.apply_batch(batch, &mut self.touched);
                Ok(())
            }
            _ => Err(NoLiveRegistry(shard.clone())),
        }
    }

    /// Marks a live registry as in sync: its source has sent everything, or its failure is over. Returns the
    /// failure that ended.
    ///
    /// # Errors
    /// If there is no live registry of the shard.
    pub fn registry_synced(&mut self, shard: &ShardKey) -> Result<Option<Failure>, NoLiveRegistry> {
        let status = self.live_status(shard)?;
        status.synced();
        Ok(status.recovered())
    }

    /// Marks a live registry as failing. The state that it sent stays in force. Returns its sync state if the
    /// failure is new.
    ///
    /// # Errors
    /// If there is no live registry of the shard.
    pub fn registry_failed(
        &mut self,
        shard: &ShardKey,
        at: SystemTime,
        reason: Arc<str>,
    ) -> Result<Option<Health>, NoLiveRegistry> {
        let status = self.live_status(shard)?;
        Ok(status.failed(reason, at).then(|| status.clone()))
    }

    fn live_status(&mut self, shard: &ShardKey) -> Result<&mut Health, NoLiveRegistry> {
        let rank = self.rank(shard);
        match self.entries.get_mut(&rank).map(|entry| &mut entry.input) {
            Some(EntryInput::Live(status)) => Ok(status),
            _ => Err(NoLiveRegistry(shard.clone())),
        }
    }

    /// Stops waiting for the first list of a shard's registry. With a replacement, only that one is given up,
    /// and the old registry stays in force. Later batches are applied as usual. Returns true if readiness was
    /// waiting for it.
    pub fn give_up(&mut self, shard: &ShardKey) -> bool {
        let rank = self.rank(shard);
        let newest = if self.replacements.contains_key(&rank) { &self.replacements } else { &self.entries };
        let waits =
            newest.get(&rank).is_some_and(|entry| !self.sync_of(entry).is_synced() && !entry.given_up);
        if let Some(entry) = self.replacements.get_mut(&rank).or_else(|| self.entries.get_mut(&rank)) {
            entry.given_up = true;
        }
        waits
    }

    /// Status of each registry, in the order of precedence.
    #[must_use]
    pub fn status(&self) -> Vec<RegistryStatus> {
        let entries = self.entries.values().map(|entry| (entry, false));
        let replacements = self.replacements.values().map(|entry| (entry, true));
        entries
            .chain(replacements)
            .map(|(entry, replacing)| RegistryStatus {
                shard: entry.shard().clone(),
                sync: self.sync_of(entry),
                services: entry.state.services.len(),
                endpoints: entry.state.endpoint_count,
                workloads: entry.state.workloads.len(),
                replacing,
                given_up: self.is_given_up(entry),
            })
            .collect()
    }

    /// Services that are refused because registries of several types have them.
    pub fn refused(&self) -> impl Iterator<Item = &Conflict> {
        self.conflicts().filter(|_| self.settings.merge == MergePolicy::Refuse)
    }

    /// Objects that registries do not put in force because of their combination with others.
    #[must_use]
    pub fn refused_objects(&self) -> Vec<Arc<[RefusedObject]>> {
        let all = self.entries.values().map(RegistryEntry::refused);
        all.filter(|refused| !refused.is_empty()).collect()
    }

    /// Services that registries of several types have, each with the registry that takes precedence.
    pub fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.conflicts.values().flatten()
    }

    /// Number that grows when conflicts change, to detect changes without comparing them.
    #[must_use]
    pub const fn conflicts_revision(&self) -> u64 {
        self.conflicts_revision
    }

    /// Succeeds once every registry and the configuration have applied their first complete list, and all of
    /// it is settled.
    ///
    /// # Errors
    /// Names the registries and sources that are missing.
    pub fn synced(&self) -> Result<(), NotSynced> {
        let name = |name: String, sync: &Health| match sync.failure() {
            Some(failure) => format!("{name} ({})", failure.reason),
            None => name,
        };
        let mut missing = Vec::new();
        let config = self.feeds.get(&self.settings.config_feed).map(Feed::status).unwrap_or_default();
        if !config.is_synced() {
            missing.push(name("configuration".to_owned(), &config));
        }
        for entry in self.entries.values() {
            let sync = self.sync_of(entry);
            if (!sync.is_synced() && !self.is_given_up(entry)) || entry.is_dirty() {
                missing.push(name(entry.shard().to_string(), &sync));
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(NotSynced { missing }) }
    }

    /// Lets every registry with new inputs compute, and returns the differences, ready for the writer of the
    /// world.
    pub fn settle(&mut self) -> Vec<Update> {
        let mut crossing = BTreeSet::new();
        loop {
            for entry in self.entries.values_mut().filter(|entry| entry.is_dirty()) {
                entry.settle(&mut self.touched);
            }
            // A replacement is not in force: its changes are applied when it takes over.
            for entry in self.replacements.values_mut().filter(|entry| entry.is_dirty()) {
                entry.settle(&mut Touched::default());
            }
            self.promote();
            let workloads = std::mem::take(&mut self.touched.workloads);
            for (key, shard) in &workloads {
                self.cross(key, shard);
            }
            crossing.extend(workloads);
            if !self.all_entries().any(RegistryEntry::is_dirty) {
                break;
            }
        }
        self.touched.workloads = crossing;
        self.emit();
        self.forget_feeds();
        std::mem::take(&mut self.updates)
    }

    fn rank(&self, shard: &ShardKey) -> Rank {
        Rank::of(shard, &self.settings.primary)
    }

    fn all_entries(&self) -> impl Iterator<Item = &RegistryEntry> {
        self.entries.values().chain(self.replacements.values())
    }

    fn all_entries_mut(&mut self) -> impl Iterator<Item = &mut RegistryEntry> {
        self.entries.values_mut().chain(self.replacements.values_mut())
    }

    fn is_given_up(&self, entry: &RegistryEntry) -> bool {
        entry.given_up && !self.sync_of(entry).is_synced()
    }

    fn sync_of(&self, entry: &RegistryEntry) -> Health {
        match &entry.input {
            EntryInput::Live(status) => status.clone(),
            EntryInput::Objects { feed, .. } => self.feeds.get(feed).map(Feed::status).unwrap_or_default(),
        }
    }

    /// Returns an entry for a new registry, after giving it all inputs that it would have received since the
    /// start.
    fn introduce(&self, mut registry: Box<dyn Registry>, feed: &str) -> RegistryEntry {
        registry.mesh(&self.mesh_of(feed));
        if let Some(feed) = self.feeds.get(feed) {
            for object in feed.visible(registry.kinds()) {
                registry.apply(&ObjectEvent::Applied(object.clone()));
            }
        }
        let own = registry.shard().clone();
        for entry in self.entries.values().filter(|entry| *entry.shard() != own) {
            for (key, workload) in &entry.state.workloads {
                registry.workload(&WorkloadChange {
                    key: key.clone(),
                    workload: Some(workload.clone()),
                    from: entry.shard().clone(),
                });
            }
        }
        RegistryEntry::new(own, EntryInput::Objects { registry, feed: feed.into(), dirty: true })
    }

    fn add(&mut self, entry: RegistryEntry) {
        let rank = self.rank(entry.shard());
        self.remove_at(&rank);
        self.entries.insert(rank, entry);
    }

    fn remove_at(&mut self, rank: &Rank) {
        self.replacements.remove(rank);
        if let Some(entry) = self.entries.remove(rank) {
            self.touched.all_of(entry.shard(), &entry.state);
        }
    }

    /// Puts the replacements that are in sync in force.
    fn promote(&mut self) {
        let ready: Vec<Rank> = self
            .replacements
            .iter()
            .filter(|(_, entry)| self.sync_of(entry).is_synced())
            .map(|(rank, _)| rank.clone())
            .collect();
        for rank in ready {
            let Some(new) = self.replacements.remove(&rank) else { continue };
            self.touched.all_of(new.shard(), &new.state);
            if let Some(old) = self.entries.insert(rank, new) {
                self.touched.all_of(old.shard(), &old.state);
            }
        }
    }

    /// Passes a workload to all other registries.
    fn cross(&mut self, key: &WorkloadKey, from: &ShardKey) {
        let workload =
            self.entries.get(&self.rank(from)).and_then(|entry| entry.state.workloads.get(key)).cloned();
        let change = WorkloadChange { key: key.clone(), workload, from: from.clone() };
        for entry in self.all_entries_mut().filter(|entry| *entry.shard() != change.from) {
            entry.input(|registry| registry.workload(&change));
        }
    }
}
