//! From a change to the streams that subscribed to it.

use crate::entries::NameSet;
use crate::environment::{Clock, Environment};
use crate::group::{Group, GroupKey, NameHasher, SubscriptionKey};
use crate::mark::Mark;
use crate::protocol::StreamLimits;
use crate::recorder::Recorder;
use crate::response::Nonces;
use crate::source::{Change, ChangeKind, ClientId, Publication, Resource, ResourceSource, Snapshot, ViewId};
use crate::status::{ConnectionStatus, ReportStatus};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use pilotfish_proto::ResourceType;
use slab::Slab;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A stream's place in a group.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) group: Arc<Group>,
    pub(crate) key: GroupKey,
    slot: usize,
}

/// The groups of one type and view, by what they subscribe to.
#[derive(Debug, Default)]
struct Topic {
    wildcard: BTreeMap<u64, Arc<Group>>,
    names: HashMap<Arc<str>, Groups>,
}

/// Groups by id. Most names are in one or a few groups, for which a sorted list needs far less memory than a map; new groups
/// have the highest ids and go to its end.
#[derive(Debug, Default)]
struct Groups(Vec<(u64, Arc<Group>)>);

impl Groups {
    fn insert(&mut self, id: u64, group: &Arc<Group>) {
        if let Err(place) = self.0.binary_search_by_key(&id, |(id, _)| *id) {
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(place, (id, Arc::clone(group)));
        }
    }

    fn remove(&mut self, id: u64) {
        if let Ok(place) = self.0.binary_search_by_key(&id, |(id, _)| *id) {
            self.0.remove(place);
        }
    }
}

impl Topic {
    fn add(&mut self, id: u64, group: &Arc<Group>, wildcard: bool, names: &NameSet) {
        if wildcard {
            self.wildcard.insert(id, Arc::clone(group));
        }
        for name in names {
            self.names.entry(Arc::clone(name)).or_default().insert(id, group);
        }
    }

    fn remove_name(&mut self, id: u64, name: &str) {
        if let Some(groups) = self.names.get_mut(name) {
            groups.remove(id);
            if groups.0.is_empty() {
                self.names.remove(name);
            }
        }
    }

    fn intern(&self, name: &str) -> Arc<str> {
        self.names.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name))
    }

    fn is_empty(&self) -> bool {
        self.wildcard.is_empty() && self.names.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Topology {
    groups: HashMap<GroupKey, (u64, Arc<Group>)>,
    next_group: u64,
    topics: HashMap<(ResourceType, ViewId), Topic>,
    clients: HashMap<ClientId, Vec<Arc<Mark>>>,
}

/// Everything that streams share: groups, the index from resource names to them, and the list of connections.
pub struct Fanout<S: ResourceSource> {
    pub(crate) source: Arc<S>,
    pub(crate) recorder: Arc<dyn Recorder>,
    pub(crate) limits: StreamLimits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Instant,
    pub(crate) hasher: NameHasher,
    pub(crate) nonces: Nonces,
    topology: RwLock<Topology>,
    /// For debug pages only. A stream removes itself when it is dropped.
    streams: Mutex<Slab<Weak<dyn ReportStatus>>>,
    next_connection: AtomicU64,
}

impl<S: ResourceSource> Fanout<S> {
    /// A fan-out of that source's resources, without streams.
    pub fn new(source: Arc<S>, recorder: Arc<dyn Recorder>, limits: StreamLimits) -> Arc<Self> {
        Self::with_environment(source, recorder, limits, Environment::default())
    }

    /// A fan-out that takes time and chance from that environment.
    pub fn with_environment(
        source: Arc<S>,
        recorder: Arc<dyn Recorder>,
        limits: StreamLimits,
        environment: Environment,
    ) -> Arc<Self> {
        let Environment { clock, hash_seed, first_nonce } = environment;
        Arc::new(Self {
            source,
            recorder,
            limits,
            started: clock.now(),
            clock,
            hasher: NameHasher::new(hash_seed),
            nonces: Nonces::new(first_nonce),
            topology: RwLock::default(),
            streams: Mutex::default(),
            next_connection: AtomicU64::new(1),
        })
    }

    /// The source of the resources.
    pub fn source(&self) -> &Arc<S> {
        &self.source
    }

    /// Applies a new state of the source to the groups that it changes and wakes their streams. To be called after each new state,
    /// by one caller.
    pub fn publish(&self, publication: &Publication) {
        let since = self.clock.now().saturating_duration_since(self.started);
        let marks = {
            let snapshot = self.source.snapshot();
            let fetched = self.prefetch(&publication.changes, &snapshot);
            let mut topology = self.topology.write();
            let mut marks = Vec::new();
            topology.apply(&publication.changes, &snapshot, &fetched, &mut |mark, ty| {
                if mark.set_changed(ty, since) {
                    marks.push(Arc::clone(mark));
                }
            });
            for client in &publication.moved {
                for mark in topology.clients.get(client).into_iter().flatten() {
                    if mark.set_moved(since) {
                        marks.push(Arc::clone(mark));
                    }
                }
            }
            marks
        };
        for mark in marks {
            mark.wake();
        }
    }

    /// Reads what changed before anything is locked: reading may compute.
    fn prefetch<C>(&self, changes: &[Change], snapshot: &impl Snapshot<C>) -> Fetched {
        let wanted: Vec<bool> = {
            let topology = self.topology.read();
            changes.iter().map(|change| topology.wants(change)).collect()
        };
        let read = |change: &Change| snapshot.get(change.view, &change.name).map(Arc::new);
        changes.iter().zip(wanted).map(|(change, wanted)| wanted.then(|| read(change))).collect()
    }

    /// While the guard lives, no group changes: what a stream sends next is chosen from one published state.
    pub(crate) fn published(&self) -> RwLockReadGuard<'_, Topology> {
        self.topology.read()
    }

    pub(crate) fn register(&self, client: ClientId, mark: &Arc<Mark>) {
        self.topology.write().clients.entry(client).or_default().push(Arc::clone(mark));
    }

    pub(crate) fn unregister(&self, client: ClientId, mark: &Arc<Mark>) {
        let mut topology = self.topology.write();
        if let Some(marks) = topology.clients.get_mut(&client) {
            marks.retain(|other| !Arc::ptr_eq(other, mark));
            if marks.is_empty() {
                topology.clients.remove(&client);
            }
        }
    }

    /// Enters a stream into the list of connections; `make` is given its slot there.
    pub(crate) fn enter<T: ReportStatus + 'static>(&self, make: impl FnOnce(usize) -> Arc<T>) -> Arc<T> {
        let mut streams = self.streams.lock();
        let entry = streams.vacant_entry();
        let stream = make(entry.key());
        let weak: Weak<T> = Arc::downgrade(&stream);
        entry.insert(weak);
        stream
    }

    pub(crate) fn closed(&self, slot: usize) {
        self.streams.lock().try_remove(slot);
    }

    pub(crate) fn connection_number(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a stream into the group of that subscription and reads the group's resources if it is a new one.
    pub(crate) fn subscribe(
        &self,
        mark: &Arc<Mark>,
        key: GroupKey,
        names: impl Iterator<Item = impl AsRef<str>>,
    ) -> Membership {
        let membership = self.topology.write().subscribe(mark, key, names);
        self.fill(&membership);
        membership
    }

    /// Changes a stream's subscription. The stream's old place is given up.
    pub(crate) fn resubscribe(
        &self,
        mark: &Arc<Mark>,
        old: &Membership,
        subscription: SubscriptionKey,
        added: &[&str],
        removed: &[&str],
    ) -> Membership {
        let membership = self.topology.write().resubscribe(mark, old, subscription, added, removed);
        self.fill(&membership);
        membership
    }

    pub(crate) fn leave(&self, membership: &Membership) {
        self.topology.write().leave(membership);
    }

    fn fill(&self, membership: &Membership) {
        membership.group.fill(
            membership.key.view,
            || self.source.snapshot(),
            |install| {
                let _published = self.topology.read();
                install();
            },
        );
    }

    /// Whether some stream subscribes to a resource of a view by its name.
    pub fn is_subscribed(&self, view: ViewId, ty: ResourceType, name: &str) -> bool {
        self.topology.read().topics.get(&(ty, view)).is_some_and(|topic| topic.names.contains_key(name))
    }

    /// How many streams are open.
    pub fn stream_count(&self) -> usize {
        self.streams.lock().len()
    }

    /// How many different subscriptions exist.
    pub fn group_count(&self) -> usize {
        self.topology.read().groups.len()
    }

    /// All connected clients, by connection id. For debug pages: locks every stream in turn.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let streams: Vec<_> = self.streams.lock().iter().filter_map(|(_, stream)| stream.upgrade()).collect();
        let mut all: Vec<_> = streams.iter().filter_map(|stream| stream.report()).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }
}

/// By the index of the change: the result of `get`; `None` where no stream had subscribed.
type Fetched = Vec<Option<Option<Arc<Resource>>>>;
/// A group and the changes that concern it.
type Affected<'a> = BTreeMap<u64, (&'a Arc<Group>, Vec<(&'a Arc<str>, Option<&'a Arc<Resource>>)>)>;

impl Topology {
    /// Whether some group subscribes to the changed resource, so that it has to be read.
    fn wants(&self, change: &Change) -> bool {
        self.topics.get(&(change.ty, change.view)).is_some_and(|topic| {
            let listed = change.kind == ChangeKind::Upsert && !topic.wildcard.is_empty();
            listed || topic.names.contains_key(&change.name)
        })
    }

    fn apply<C>(
        &mut self,
        changes: &[Change],
        snapshot: &impl Snapshot<C>,
        fetched: &Fetched,
        mark: &mut dyn FnMut(&Arc<Mark>, ResourceType),
    ) {
        // Streams may have subscribed since the prefetch: read the few that are missing.
        let mut late: HashMap<usize, Option<Arc<Resource>>> = HashMap::new();
        for (i, change) in changes.iter().enumerate() {
            if fetched.get(i).is_none_or(Option::is_none) && self.wants(change) {
                late.insert(i, snapshot.get(change.view, &change.name).map(Arc::new));
            }
        }
        let mut affected: Affected<'_> = BTreeMap::new();
        for (i, change) in changes.iter().enumerate() {
            let Some(topic) = self.topics.get(&(change.ty, change.view)) else { continue };
            let now = fetched.get(i).and_then(Option::as_ref).or_else(|| late.get(&i));
            let now = now.and_then(Option::as_ref);
            let listed = if change.kind == ChangeKind::Remove { None } else { now };
            for (id, group) in &topic.wildcard {
                affected.entry(*id).or_insert((group, Vec::new())).1.push((&change.name, listed));
            }
            for (id, group) in topic.names.get(&change.name).into_iter().flat_map(|groups| &groups.0) {
                affected.entry(*id).or_insert((group, Vec::new())).1.push((&change.name, now));
            }
        }
        for (group, changes) in affected.values() {
            if group.publish(snapshot.revision(), changes) {
                group.each_member(|member| mark(member, group.ty));
            }
        }
    }

    fn subscribe(
        &mut self,
        mark: &Arc<Mark>,
        key: GroupKey,
        names: impl Iterator<Item = impl AsRef<str>>,
    ) -> Membership {
        let group = match self.groups.get(&key) {
            Some((_, group)) => Arc::clone(group),
            None => {
                let topic = self.topics.entry((key.ty, key.view)).or_default();
                let names: NameSet = names.map(|name| topic.intern(name.as_ref())).collect();
                self.insert(key, Group::new(key.ty, key.subscription.wildcard, names))
            }
        };
        let slot = group.join(mark);
        Membership { group, key, slot }
    }

    fn insert(&mut self, key: GroupKey, group: Group) -> Arc<Group> {
        let group = Arc::new(group);
        let id = self.next_group;
        self.next_group += 1;
        let names = group.lock().names.clone();
        let topic = self.topics.entry((key.ty, key.view)).or_default();
        topic.add(id, &group, key.subscription.wildcard, &names);
        self.groups.insert(key, (id, Arc::clone(&group)));
        group
    }

    fn resubscribe(
        &mut self,
        mark: &Arc<Mark>,
        old: &Membership,
        subscription: SubscriptionKey,
        added: &[&str],
        removed: &[&str],
    ) -> Membership {
        let key = GroupKey { subscription, ..old.key };
        if !self.groups.contains_key(&key) {
            let topic = self.topics.entry((key.ty, key.view)).or_default();
            let added: Vec<Arc<str>> = added.iter().map(|name| topic.intern(name)).collect();
            // Alone in its group, a stream takes the group along: the cost follows the change and not the subscription.
            if old.group.member_count() == 1 && self.amend(old, key, &added, removed) {
                return Membership { group: Arc::clone(&old.group), key, slot: old.slot };
            }
            let group = old.group.derive(&added, removed, subscription.wildcard);
            self.insert(key, group);
        }
        let joined = self.subscribe(mark, key, std::iter::empty::<&str>());
        self.leave(old);
        joined
    }

    fn amend(&mut self, old: &Membership, key: GroupKey, added: &[Arc<str>], removed: &[&str]) -> bool {
        let Some((id, group)) = self.groups.remove(&old.key) else { return false };
        let topic = self.topics.entry((key.ty, key.view)).or_default();
        for name in removed {
            topic.remove_name(id, name);
        }
        for name in added {
            topic.names.entry(Arc::clone(name)).or_default().insert(id, &group);
        }
        if key.subscription.wildcard {
            topic.wildcard.insert(id, Arc::clone(&group));
        } else {
            topic.wildcard.remove(&id);
        }
        group.amend(added, removed, key.subscription.wildcard);
        self.groups.insert(key, (id, group));
        true
    }

    fn leave(&mut self, membership: &Membership) {
        if !membership.group.leave(membership.slot) {
            return;
        }
        let Some((id, group)) = self.groups.remove(&membership.key) else { return };
        let at = (membership.key.ty, membership.key.view);
        if let Some(topic) = self.topics.get_mut(&at) {
            topic.wildcard.remove(&id);
            let names = group.lock().names.clone();
            for name in &names {
                topic.remove_name(id, name);
            }
            if topic.is_empty() {
                self.topics.remove(&at);
            }
        }
    }
}
