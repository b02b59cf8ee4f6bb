//! The hub: owns all registries, brings them what they want to know, and merges what they say.
//!
//! ```text
//! sources ─ SourceEvent ─▶ feeds ─ objects ─▶ registries ─ their services, endpoints, workloads ─▶ merge ─ Update ─▶
//!                            │                 ▲       │                                            ▲
//!                            │                 └───────┘ workloads of other registries              │
//!                            └──────────── configuration objects of the configuration feed ─────────┘
//! ```
//!
//! A state machine without IO and clocks. Inputs are noted; [`Hub::settle`] lets the registries compute and returns what
//! differs. The result depends on the objects and registries that there are, not on the order in which they came; a
//! failing source or registry takes nothing away.

mod clusterset;
mod feed;
mod merge;
mod slot;

use crate::registry::{Mesh, ObjectEvent, Registry, SyncStatus, WorkloadChange};
use crate::source::SourceEvent;
use clusterset::ClusterSet;
use feed::Feed;
use pilotfish_config::mesh::{MeshConfig, MeshNetworks};
use pilotfish_model::{ClusterId, Kind, NetworkGateway, Object, ShardKey, Update, WorkloadKey};
use slot::{Rank, Slot, Touched};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What does not change while the hub runs.
#[derive(Clone, Debug)]
pub struct HubSettings {
    /// The feed whose configuration objects are in force, and whose MeshConfig and MeshNetworks count.
    pub config_feed: Arc<str>,
    /// The cluster whose Kubernetes Services are the base where several clusters have the same one.
    pub primary: ClusterId,
}

impl Default for HubSettings {
    fn default() -> Self {
        Self { config_feed: "Kubernetes".into(), primary: "Kubernetes".into() }
    }
}

/// How a registry is, for readiness and for `/debug/registryz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryStatus {
    /// Which registry.
    pub shard: ShardKey,
    /// Whether it is in sync, and what fails.
    pub sync: SyncStatus,
    /// The number of services (hosts by namespace).
    pub services: usize,
    /// The number of endpoints of all services.
    pub endpoints: usize,
    /// The number of workloads.
    pub workloads: usize,
    /// Whether it still takes in its first list beside the registry that it will replace.
    pub replacing: bool,
    /// Whether readiness goes on without its first list, which took too long.
    pub given_up: bool,
}

/// Not everything is in sync yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not in sync yet: {}", missing.join(", "))]
pub struct NotSynced {
    /// The registries (and `configuration`) that are missing, each with the reason if it fails.
    pub missing: Vec<String>,
}

/// No such feed or source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no source {source_name:?} of the feed {feed:?}; its message was left out")]
pub struct UnknownSource {
    /// The feed that was named.
    pub feed: String,
    /// The source that was named.
    pub source_name: String,
}

/// See the module's description.
pub struct Hub {
    settings: HubSettings,
    feeds: BTreeMap<Arc<str>, Feed>,
    slots: BTreeMap<Rank, Slot>,
    /// Registries that take the place of the one of their rank as soon as they are in sync.
    replacements: BTreeMap<Rank, Slot>,
    /// Feeds that go as soon as no registry reads them.
    leaving: BTreeSet<Arc<str>>,
    mesh: Mesh,
    clusterset: ClusterSet,
    touched: Touched,
    updates: Vec<Update>,
}

impl Hub {
    /// A hub without registries; its configuration feed exists, without sources.
    #[must_use]
    pub fn new(settings: HubSettings) -> Self {
        let feeds = BTreeMap::from([(settings.config_feed.clone(), Feed::default())]);
        Self {
            settings,
            feeds,
            slots: BTreeMap::new(),
            replacements: BTreeMap::new(),
            leaving: BTreeSet::new(),
            mesh: Mesh::default(),
            clusterset: ClusterSet::default(),
            touched: Touched::default(),
            updates: Vec::new(),
        }
    }

    /// Adds a source to a feed, which is made if it does not exist. Where two sources of a feed have an object of the
    /// same key, the one of the source added first counts.
    pub fn add_source(&mut self, feed: &str, source: &str) {
        self.feeds.entry(feed.into()).or_default().add_source(source);
        self.select_namespaces();
    }

    /// Takes a source away, with the objects that only it had. This is a decision, unlike a failure of the source.
    pub fn remove_source(&mut self, feed: &str, source: &str) {
        let mut events = Vec::new();
        if let Some(known) = self.feeds.get_mut(feed) {
            known.remove_source(source, &mut events);
        }
        self.route(feed, &events);
    }

    /// Takes a feed away: the one of a registry that left or was replaced. One that a registry still reads goes with the last of
    /// its registries.
    pub fn remove_feed(&mut self, feed: &str) {
        self.leaving.insert(feed.into());
        self.forget_feeds();
    }

    fn forget_feeds(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let read: BTreeSet<Arc<str>> = self
            .slots
            .values()
            .chain(self.replacements.values())
            .filter_map(|slot| slot.feed.clone())
            .collect();
        for feed in self.leaving.extract_if(.., |feed| !read.contains(feed)) {
            self.feeds.remove(&feed);
        }
    }

    /// Nobody shall wait for the first list of a feed any longer: [`Hub::synced`] goes on without it. What it says later
    /// counts all the same.
    pub fn give_up(&mut self, feed: &str) {
        if let Some(feed) = self.feeds.get_mut(feed) {
            feed.given_up = true;
        }
    }

    /// Takes in what a source says.
    ///
    /// # Errors
    /// When there is no such source.
    pub fn source_event(
        &mut self,
        feed: &str,
        source: &str,
        event: SourceEvent,
    ) -> Result<(), UnknownSource> {
        let mut events = Vec::new();
        let known = self.feeds.get_mut(feed).is_some_and(|feed| feed.take(source, event, &mut events));
        if !known {
            return Err(UnknownSource { feed: feed.to_owned(), source_name: source.to_owned() });
        }
        self.route(feed, &events);
        Ok(())
    }

    /// Adds a registry that reads the objects of a feed, or of none. Returns the registry of the same shard that was
    /// there before, if any: it leaves at once.
    pub fn add_registry(
        &mut self,
        registry: Box<dyn Registry>,
        feed: Option<&str>,
    ) -> Option<Box<dyn Registry>> {
        let rank = Rank::of(registry.shard(), &self.settings.primary);
        let before = self.remove_at(&rank);
        let slot = self.introduce(registry, feed);
        self.slots.insert(rank, slot);
        before
    }

    /// Adds a registry beside the one of the same shard. It takes that one's place when it is in sync; until then the old
    /// one serves on. Without an old one this is [`Hub::add_registry`].
    pub fn replace_registry(&mut self, registry: Box<dyn Registry>, feed: Option<&str>) {
        let rank = Rank::of(registry.shard(), &self.settings.primary);
        let slot = self.introduce(registry, feed);
        let place = if self.slots.contains_key(&rank) { &mut self.replacements } else { &mut self.slots };
        place.insert(rank, slot);
    }

    /// Takes a registry away, with its services, endpoints and workloads.
    pub fn remove_registry(&mut self, shard: &ShardKey) -> Option<Box<dyn Registry>> {
        self.remove_at(&Rank::of(shard, &self.settings.primary))
    }

    /// A registry by its shard and type, to give it inputs of its own.
    pub fn registry_mut<R: Registry>(&mut self, shard: &ShardKey) -> Option<&mut R> {
        let slot = self.slots.get_mut(&Rank::of(shard, &self.settings.primary))?;
        slot.dirty = true;
        let registry: &mut dyn Any = &mut *slot.registry;
        registry.downcast_mut()
    }

    /// How each registry is, in the order of their ranks.
    #[must_use]
    pub fn status(&self) -> Vec<RegistryStatus> {
        let slots = self.slots.values().map(|slot| (slot, false));
        let replacements = self.replacements.values().map(|slot| (slot, true));
        slots
            .chain(replacements)
            .map(|(slot, replacing)| RegistryStatus {
                shard: slot.shard().clone(),
                sync: self.sync_of(slot),
                services: slot.offer.services.len(),
                endpoints: slot.offer.endpoint_count,
                workloads: slot.offer.workloads.len(),
                replacing,
                given_up: self.is_given_up(slot),
            })
            .collect()
    }

    /// Whether every registry and the configuration took in their first complete list, and all of it was settled.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn synced(&self) -> Result<(), NotSynced> {
        let name = |name: String, sync: &SyncStatus| match &sync.failure {
            Some(failure) => format!("{name} ({})", failure.reason),
            None => name,
        };
        let mut missing = Vec::new();
        let config = self.feeds.get(&self.settings.config_feed).map(Feed::status).unwrap_or_default();
        if !config.synced {
            missing.push(name("configuration".to_owned(), &config));
        }
        for slot in self.slots.values() {
            let sync = self.sync_of(slot);
            if (!sync.synced && !self.is_given_up(slot)) || slot.dirty {
                missing.push(name(slot.shard().to_string(), &sync));
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(NotSynced { missing }) }
    }

    /// Lets every registry with new inputs compute, and returns what differs, ready for the writer of the world.
    pub fn settle(&mut self) -> Vec<Update> {
        let mut crossing = BTreeSet::new();
        loop {
            for slot in self.slots.values_mut().filter(|slot| slot.dirty) {
                slot.settle(&mut self.touched);
            }
            // A replacement is not in force: what it changes is told when it takes its place.
            for slot in self.replacements.values_mut().filter(|slot| slot.dirty) {
                slot.settle(&mut Touched::default());
            }
            self.promote();
            let workloads = std::mem::take(&mut self.touched.workloads);
            for (key, shard) in &workloads {
                self.cross(key, shard);
            }
            crossing.extend(workloads);
            if !self.slots.values().chain(self.replacements.values()).any(|slot| slot.dirty) {
                break;
            }
        }
        self.touched.workloads = crossing;
        self.emit();
        self.forget_feeds();
        std::mem::take(&mut self.updates)
    }

    /// Whether nobody waits for the first list of a registry any longer.
    fn is_given_up(&self, slot: &Slot) -> bool {
        let feed = slot.feed.as_ref().and_then(|feed| self.feeds.get(feed));
        feed.is_some_and(|feed| feed.given_up && !feed.status().synced)
    }

    fn sync_of(&self, slot: &Slot) -> SyncStatus {
        let own = slot.registry.status();
        match &slot.feed {
            Some(feed) => self.feeds.get(feed).map(Feed::status).unwrap_or_default().and(own),
            None => own,
        }
    }

    /// Tells a new registry everything that it would know if it had been there from the start.
    fn introduce(&self, mut registry: Box<dyn Registry>, feed: Option<&str>) -> Slot {
        registry.mesh(&self.mesh_of(feed));
        if let Some(feed) = feed.and_then(|feed| self.feeds.get(feed)) {
            for object in feed.visible(registry.kinds()) {
                registry.apply(&ObjectEvent::Applied(object.clone()));
            }
        }
        let own = registry.shard().clone();
        for slot in self.slots.values().filter(|slot| *slot.shard() != own) {
            for (key, workload) in &slot.offer.workloads {
                registry.workload(&WorkloadChange {
                    key: key.clone(),
                    workload: Some(workload.clone()),
                    from: slot.shard().clone(),
                });
            }
        }
        Slot::new(registry, feed.map(Arc::from))
    }

    fn remove_at(&mut self, rank: &Rank) -> Option<Box<dyn Registry>> {
        self.replacements.remove(rank);
        let slot = self.slots.remove(rank)?;
        self.touched.all_of(slot.registry.shard(), &slot.offer);
        Some(slot.registry)
    }

    /// Puts the replacements that are in sync into their places.
    fn promote(&mut self) {
        let ready: Vec<Rank> = self
            .replacements
            .iter()
            .filter(|(_, slot)| self.sync_of(slot).synced)
            .map(|(rank, _)| rank.clone())
            .collect();
        for rank in ready {
            let Some(new) = self.replacements.remove(&rank) else { continue };
            self.touched.all_of(new.registry.shard(), &new.offer);
            if let Some(old) = self.slots.insert(rank, new) {
                self.touched.all_of(old.registry.shard(), &old.offer);
            }
        }
    }

    /// Tells all other registries of a workload.
    fn cross(&mut self, key: &WorkloadKey, from: &ShardKey) {
        let rank = Rank::of(from, &self.settings.primary);
        let workload = self.slots.get(&rank).and_then(|slot| slot.offer.workloads.get(key)).cloned();
        let change = WorkloadChange { key: key.clone(), workload, from: from.clone() };
        for slot in self.slots.values_mut().chain(self.replacements.values_mut()) {
            if slot.shard() != from {
                slot.registry.workload(&change);
                slot.dirty = true;
            }
        }
    }

    fn route(&mut self, feed: &str, events: &[ObjectEvent]) {
        for event in events {
            let kind = event.key().kind;
            for slot in self.slots.values_mut().chain(self.replacements.values_mut()) {
                if slot.feed.as_deref() == Some(feed) && slot.registry.kinds().contains(&kind) {
                    slot.registry.apply(event);
                    slot.dirty = true;
                }
            }
            if *feed == *self.settings.config_feed {
                self.configure(event);
            } else if kind == Kind::MeshConfig {
                self.tell_mesh(|slot| slot.feed.as_deref() == Some(feed));
            }
        }
    }

    /// Passes an object of the configuration feed on to the world, and mesh-wide settings to the registries.
    fn configure(&mut self, event: &ObjectEvent) {
        let kind = event.key().kind;
        if is_for_registries(kind) {
            return;
        }
        self.updates.push(match event {
            ObjectEvent::Applied(object) => Update::Object(object.clone()),
            ObjectEvent::Deleted(key) => Update::RemoveObject(key.clone()),
        });
        let object = match event {
            ObjectEvent::Applied(object) => Some(object),
            ObjectEvent::Deleted(_) => None,
        };
        let mesh = match kind {
            Kind::MeshConfig => {
                Mesh { config: object.and_then(Object::typed::<MeshConfig>), ..self.mesh.clone() }
            }
            Kind::MeshNetworks => {
                Mesh { networks: object.and_then(Object::typed::<MeshNetworks>), ..self.mesh.clone() }
            }
            _ => return,
        };
        if mesh == self.mesh {
            return;
        }
        self.mesh = mesh;
        self.touched.gateways = true;
        self.tell_mesh(|_| true);
        self.select_namespaces();
    }

    /// The mesh-wide settings for registries that read a feed. Other clusters may have a trust domain of their own; nothing else
    /// of their settings counts.
    fn mesh_of(&self, feed: Option<&str>) -> Mesh {
        let other = feed.filter(|feed| **feed != *self.settings.config_feed);
        let own = other.and_then(|feed| self.feeds.get(feed)).and_then(|feed| {
            let config = feed.visible(&[Kind::MeshConfig]).next()?.typed::<MeshConfig>()?;
            Some(config.trust_domain.as_str().into())
        });
        Mesh { own_trust_domain: own, ..self.mesh.clone() }
    }

    /// Tells registries of the mesh-wide settings as they are now.
    fn tell_mesh(&mut self, to: impl Fn(&Slot) -> bool) {
        let feeds: BTreeSet<Option<Arc<str>>> =
            self.slots.values().chain(self.replacements.values()).map(|slot| slot.feed.clone()).collect();
        let meshes: BTreeMap<Option<Arc<str>>, Mesh> =
            feeds.into_iter().map(|feed| (feed.clone(), self.mesh_of(feed.as_deref()))).collect();
        for slot in self.slots.values_mut().chain(self.replacements.values_mut()).filter(|slot| to(slot)) {
            if let Some(mesh) = meshes.get(&slot.feed) {
                slot.registry.mesh(mesh);
                slot.dirty = true;
            }
        }
    }

    /// Brings the discovery selectors of the mesh into force.
    fn select_namespaces(&mut self) {
        let selectors = self.mesh.config.as_ref().map(|config| config.discovery_selectors.clone());
        let selectors = selectors.unwrap_or_default();
        let names: Vec<Arc<str>> = self.feeds.keys().cloned().collect();
        for name in names {
            let mut events = Vec::new();
            if let Some(feed) = self.feeds.get_mut(&name) {
                feed.select(&selectors, &mut events);
            }
            self.route(&name, &events);
        }
    }

    /// Notes what follows for imported hosts: whatever touches a Service touches the host that stands for it, or stood for it.
    fn touch_imported(&mut self, touched: &mut Touched) {
        self.clusterset.touch(touched);
        for host in std::mem::take(&mut touched.imports) {
            let Some(service) = self.clusterset.update(&host, self.slots.values()) else { continue };
            let holders = self.slots.values().filter(|slot| slot.offer.endpoints.contains_key(&service));
            touched.endpoints.extend(holders.map(|slot| (host.clone(), slot.shard().clone())));
            touched.services.insert(host);
        }
        self.clusterset.touch(touched);
    }

    /// Writes down the updates for everything that was touched.
    fn emit(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        self.touch_imported(&mut touched);
        for key in touched.services {
            let imported = self.clusterset.service(&key, self.slots.values()).map(|only| Arc::from([only]));
            let lists = self.slots.values().filter_map(|slot| slot.offer.services.get(&key));
            let merged = merge::services(imported.iter().chain(lists));
            self.updates.push(Update::Services(key, merged));
        }
        for (key, shard) in touched.endpoints {
            let slot = self.slots.get(&Rank::of(&shard, &self.settings.primary));
            let owner = self.clusterset.owner(&key, &shard);
            let endpoints = slot.and_then(|slot| slot.offer.endpoints.get(owner)).cloned();
            self.updates.push(match endpoints {
                Some(endpoints) => Update::Endpoints(key, shard, endpoints),
                None => Update::RemoveShard(key, shard),
            });
        }
        for (key, _) in touched.workloads {
            let workload = self.slots.values().find_map(|slot| slot.offer.workloads.get(&key));
            self.updates.push(match workload {
                Some(workload) => Update::Workload(workload.clone()),
                None => Update::RemoveWorkload(key),
            });
        }
        if touched.gateways {
            let gateways: BTreeSet<NetworkGateway> = self
                .slots
                .values()
                .flat_map(|slot| slot.offer.gateways.iter().cloned())
                .chain(crate::networks::static_gateways(self.mesh.networks.as_deref()))
                .collect();
            self.updates.push(Update::NetworkGateways(gateways.into_iter().collect()));
        }
    }
}

/// The kinds whose content reaches the world as services, endpoints and workloads only.
fn is_for_registries(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Service
            | Kind::EndpointSlice
            | Kind::Pod
            | Kind::Node
            | Kind::ServiceExport
            | Kind::ServiceImport
    )
}
