//! The index from parts of views and resource names to the groups that subscribe to them.

use crate::entries::NameSet;
use crate::group::{Affected, Group, GroupKey, SubscriptionKey};
use crate::mark::Mark;
use crate::source::{Change, ChangeKind, ClientId, Publication, Resource, Snapshot, ViewId};
use crate::whole::{Following, Whole, Wholes};
use pilotfish_proto::ResourceType;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A stream's place in a group.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) group: Arc<Group>,
    pub(crate) key: GroupKey,
    /// Among the members of the group.
    slot: usize,
}

/// What becomes free when a stream gives up a place, or a part of it.
#[derive(Debug)]
pub(crate) enum Freed {
    /// Names that no stream subscribes to any more.
    Names(Vec<Arc<str>>),
    /// A group without members. Its names are still to be forgotten, a part at a time.
    Group { key: GroupKey, id: u64, names: NameSet },
}

impl Default for Freed {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

impl Membership {
    /// Whether no other stream has the subscription.
    pub(crate) fn is_alone(&self) -> bool {
        self.group.member_count() < 2
    }

    /// The names that are entered when the stream has a subscription of its own: none where it takes the group along.
    pub(crate) fn names_to_enter(&self) -> usize {
        if !self.is_alone() { self.key.subscription.count } else { 0 }
    }
}

/// The groups of one type and view that subscribe by name.
#[derive(Debug)]
struct Topic {
    /// What the view is made of.
    parts: Arc<[ViewId]>,
    names: HashMap<Arc<str>, Groups>,
}

/// Groups by id. Most names are in one or a few groups, for which a sorted list needs far less memory than a map; new groups
/// have the highest ids and go to its end.
#[derive(Debug, Default)]
pub(crate) struct Groups(Vec<(u64, Arc<Group>)>);

impl Groups {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, Arc<Group>)> {
        self.0.iter()
    }

    pub(crate) fn insert(&mut self, id: u64, group: &Arc<Group>) {
        if let Err(place) = self.0.binary_search_by_key(&id, |(id, _)| *id) {
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(place, (id, Arc::clone(group)));
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Ok(place) = self.0.binary_search_by_key(&id, |(id, _)| *id) {
            self.0.remove(place);
        }
    }
}

impl Topic {
    fn new(parts: &Arc<[ViewId]>) -> Self {
        Self { parts: Arc::clone(parts), names: HashMap::new() }
    }

    fn add(&mut self, id: u64, group: &Arc<Group>, names: impl Iterator<Item = Arc<str>>) {
        for name in names {
            self.names.entry(name).or_default().insert(id, group);
        }
    }

    /// Returns the name when no group has it any more.
    fn remove_name(&mut self, id: u64, name: &str) -> Option<Arc<str>> {
        let groups = self.names.get_mut(name)?;
        groups.remove(id);
        let is_free = groups.is_empty();
        is_free.then(|| self.names.remove_entry(name)).flatten().map(|(name, _)| name)
    }

    fn intern(&self, name: &str) -> Arc<str> {
        self.names.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name))
    }

    /// Gives back the room of names most of which are gone.
    fn fit(&mut self) {
        const SMALL: usize = 1024;
        if self.names.capacity() > SMALL.max(4 * self.names.len()) {
            self.names.shrink_to(2 * self.names.len());
        }
    }
}

/// All groups, the index to them, and the marks of each client's streams.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    groups: HashMap<GroupKey, (u64, Arc<Group>)>,
    next_group: u64,
    /// What is subscribed to as a whole.
    wholes: Wholes,
    /// What is subscribed to by name.
    topics: HashMap<(ResourceType, ViewId), Topic>,
    /// By part, the views of several parts that have a topic.
    views: HashMap<(ResourceType, ViewId), Vec<ViewId>>,
    clients: HashMap<ClientId, Vec<Arc<Mark>>>,
    /// The revision of the newest publication.
    published: u64,
}

/// A resource that is read for a publication: of a part for its wholes, or of a view for groups that subscribe to it by name.
type Wanted<'a> = (ResourceType, ViewId, &'a Arc<str>);
/// What was read: `None` does not exist.
pub(crate) type Fetched<'a> = HashMap<Wanted<'a>, Option<Arc<Resource>>>;

impl Topology {
    pub(crate) fn register(&mut self, client: ClientId, mark: &Arc<Mark>) {
        mark.belongs_to(client);
        self.clients.entry(client).or_default().push(Arc::clone(mark));
    }

    pub(crate) fn unregister(&mut self, client: ClientId, mark: &Arc<Mark>) {
        if let Some(marks) = self.clients.get_mut(&client) {
            marks.retain(|other| !Arc::ptr_eq(other, mark));
            if marks.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// The marks of all streams of a client.
    pub(crate) fn marks_of(&self, client: ClientId) -> impl Iterator<Item = &Arc<Mark>> {
        self.clients.get(&client).into_iter().flatten()
    }

    pub(crate) fn is_subscribed(&self, view: ViewId, ty: ResourceType, name: &str) -> bool {
        self.topics.get(&(ty, view)).is_some_and(|topic| topic.names.contains_key(name))
    }

    /// Whether some streams have that subscription.
    pub(crate) fn has_group(&self, key: &GroupKey) -> bool {
        self.groups.contains_key(key)
    }

    /// The different names that are subscribed to, by type and view.
    pub(crate) fn name_count(&self) -> usize {
        self.topics.values().map(|topic| topic.names.len()).sum()
    }

    /// How many of these names nobody subscribes to yet.
    pub(crate) fn count_new(&self, ty: ResourceType, view: ViewId, names: &[&str]) -> usize {
        let topic = self.topics.get(&(ty, view));
        topic.map_or(names.len(), |topic| {
            names.iter().filter(|name| !topic.names.contains_key(**name)).count()
        })
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// How many parts of views are read, and what these come to.
    pub(crate) fn whole_counts(&self) -> (usize, usize) {
        (self.wholes.part_count(), self.wholes.count())
    }

    /// What has to be read for a publication: nothing that no group subscribes to.
    pub(crate) fn wanted<'a>(&self, changes: &'a [Change]) -> Vec<Wanted<'a>> {
        let mut wanted = Vec::new();
        for change in changes {
            let Change { view, ty, name, kind } = change;
            let listed = *kind == ChangeKind::Upsert && self.wholes.has_part(*ty, *view);
            let named = self.naming(change).map(|(view, _)| view);
            wanted.extend(listed.then_some(*view).into_iter().chain(named).map(|view| (*ty, view, name)));
        }
        wanted
    }

    /// The views in which a changed resource is subscribed to by name, and the groups that do.
    fn naming<'a>(&'a self, change: &'a Change) -> impl Iterator<Item = (ViewId, &'a Groups)> {
        let Change { view, ty, name, .. } = change;
        let composed = self.views.get(&(*ty, *view)).into_iter().flatten();
        let views = [view].into_iter().chain(composed);
        views.filter_map(|view| Some((*view, self.topics.get(&(*ty, *view))?.names.get(name)?)))
    }

    pub(crate) fn published(&self) -> u64 {
        self.published
    }

    pub(crate) fn apply<'a, C>(
        &mut self,
        Publication { revision, changes, .. }: &'a Publication,
        snapshot: &impl Snapshot<C>,
        mut fetched: Fetched<'a>,
        mark: &mut dyn FnMut(&Arc<Mark>, ResourceType),
    ) {
        self.published = self.published.max(*revision);
        // Streams may have subscribed since the prefetch: read the few that are missing.
        for wanted in self.wanted(changes) {
            let (_, view, name) = wanted;
            fetched.entry(wanted).or_insert_with(|| snapshot.get(view, name).map(Arc::new));
        }
        let find = |ty, view, name| fetched.get(&(ty, view, name)).and_then(Option::as_ref);
        let mut of_parts: HashMap<_, Vec<_>> = HashMap::new();
        let mut affected: BTreeMap<u64, (&Arc<Group>, Affected<'_>)> = BTreeMap::new();
        for change in changes {
            let Change { view, ty, name, kind } = change;
            if self.wholes.has_part(*ty, *view) {
                let listed = if *kind == ChangeKind::Remove { None } else { find(*ty, *view, name) };
                of_parts.entry((*ty, *view)).or_default().push((name, listed));
            }
            for (view, groups) in self.naming(change) {
                let now = find(*ty, view, name);
                for (id, group) in groups.iter() {
                    affected.entry(*id).or_insert((group, Affected::default())).1.names.push((name, now));
                }
            }
        }
        let revision = snapshot.revision();
        for Following { id, group, layer, differs } in self.wholes.publish(revision, &of_parts) {
            affected.entry(id).or_insert((group, Affected::default())).1.layer = Some((layer, differs));
        }
        for (group, publication) in affected.values() {
            if group.publish(revision, publication) {
                group.each_member(|member| mark(member, group.ty));
            }
        }
    }

    pub(crate) fn subscribe(
        &mut self,
        mark: &Arc<Mark>,
        key: GroupKey,
        parts: &Arc<[ViewId]>,
        names: impl Iterator<Item = impl AsRef<str>>,
    ) -> Membership {
        let group = match self.groups.get(&key) {
            Some((_, group)) => Arc::clone(group),
            None => {
                let names: NameSet = names.map(|name| self.intern(&key, name.as_ref())).collect();
                let whole = self.whole(&key, parts);
                let wildcard = key.subscription.wildcard;
                let group = Group::new(key.ty, Arc::clone(parts), wildcard, whole.clone(), names);
                self.insert(key, group, whole.as_ref())
            }
        };
        let slot = group.join(mark);
        Membership { group, key, slot }
    }

    /// The name as it is subscribed to already.
    fn intern(&self, key: &GroupKey, name: &str) -> Arc<str> {
        let topic = self.topics.get(&(key.ty, key.view));
        topic.map_or_else(|| Arc::from(name), |topic| topic.intern(name))
    }

    /// What a subscription's wildcard subscribes to.
    fn whole(&mut self, key: &GroupKey, parts: &[ViewId]) -> Option<Arc<Whole>> {
        let is_one = key.subscription.wildcard && key.view != ViewId::NONE;
        if is_one { self.wholes.of(key.ty, parts) } else { None }
    }

    fn insert(&mut self, key: GroupKey, group: Group, whole: Option<&Arc<Whole>>) -> Arc<Group> {
        let group = Arc::new(group);
        let id = self.next_group;
        self.next_group += 1;
        let names = group.lock().names.clone();
        self.enter_names(&key, id, &group, names.into_iter());
        if let Some(whole) = whole {
            self.wholes.join(whole, id, &group);
        }
        self.groups.insert(key, (id, Arc::clone(&group)));
        group
    }

    fn enter_names(
        &mut self,
        key: &GroupKey,
        id: u64,
        group: &Arc<Group>,
        names: impl Iterator<Item = Arc<str>>,
    ) {
        let mut names = names.peekable();
        if names.peek().is_none() {
            return;
        }
        let views = &mut self.views;
        let topic = self.topics.entry((key.ty, key.view)).or_insert_with(|| {
            for part in group.parts.iter().filter(|part| **part != key.view) {
                views.entry((key.ty, *part)).or_default().push(key.view);
            }
            Topic::new(&group.parts)
        });
        topic.add(id, group, names);
    }

    /// Returns the stream's new place, and what becomes free of the old one.
    pub(crate) fn resubscribe(
        &mut self,
        mark: &Arc<Mark>,
        old: &Membership,
        subscription: SubscriptionKey,
        added: &[&str],
        removed: &[&str],
    ) -> (Membership, Freed) {
        let key = GroupKey { subscription, ..old.key };
        let parts = Arc::clone(&old.group.parts);
        if !self.groups.contains_key(&key) {
            let added: Vec<Arc<str>> = added.iter().map(|name| self.intern(&key, name)).collect();
            // Alone in its group, a stream takes the group along: the cost follows the change and not the subscription.
            if old.group.member_count() == 1
                && let Some(free) = self.amend(old, key, &added, removed)
            {
                return (
                    Membership { group: Arc::clone(&old.group), key, slot: old.slot },
                    Freed::Names(free),
                );
            }
            let whole = self.whole(&key, &parts);
            let group = old.group.derive(&added, removed, subscription.wildcard, whole.clone());
            self.insert(key, group, whole.as_ref());
        }
        let joined = self.subscribe(mark, key, &parts, std::iter::empty::<&str>());
        (joined, self.leave(old))
    }

    fn amend(
        &mut self,
        old: &Membership,
        key: GroupKey,
        added: &[Arc<str>],
        removed: &[&str],
    ) -> Option<Vec<Arc<str>>> {
        let (id, group) = self.groups.remove(&old.key)?;
        let was = group.lock().whole().cloned();
        let whole = self.whole(&key, &group.parts);
        if let Some(whole) = &whole {
            self.wholes.join(whole, id, &group);
        } else if let Some(was) = &was {
            self.wholes.leave(was, id);
        }
        self.enter_names(&key, id, &group, added.iter().cloned());
        let free = match self.topics.get_mut(&(key.ty, key.view)) {
            Some(topic) => removed.iter().filter_map(|name| topic.remove_name(id, name)).collect(),
            None => Vec::new(),
        };
        self.remove_if_empty(&key);
        group.amend(added, removed, key.subscription.wildcard, whole);
        self.groups.insert(key, (id, group));
        Some(free)
    }

    /// Gives a place up.
    pub(crate) fn leave(&mut self, membership: &Membership) -> Freed {
        if !membership.group.leave(membership.slot) {
            return Freed::default();
        }
        let Some((id, group)) = self.groups.remove(&membership.key) else { return Freed::default() };
        let (names, whole) = {
            let state = group.lock();
            (state.names.clone(), state.whole().cloned())
        };
        if let Some(whole) = whole {
            self.wholes.leave(&whole, id);
        }
        Freed::Group { key: membership.key, id, names }
    }

    /// Takes names of a group that is gone out of the index. Returns those that no stream subscribes to any more.
    pub(crate) fn forget(&mut self, key: &GroupKey, id: u64, names: &[&Arc<str>]) -> Vec<Arc<str>> {
        let Some(topic) = self.topics.get_mut(&(key.ty, key.view)) else { return Vec::new() };
        let free = names.iter().filter_map(|name| topic.remove_name(id, name)).collect();
        topic.fit();
        self.remove_if_empty(key);
        free
    }

    fn remove_if_empty(&mut self, key: &GroupKey) {
        let Entry::Occupied(topic) = self.topics.entry((key.ty, key.view)) else { return };
        if !topic.get().names.is_empty() {
            return;
        }
        for part in topic.remove().parts.iter().filter(|part| **part != key.view) {
            let Entry::Occupied(mut views) = self.views.entry((key.ty, *part)) else { continue };
            views.get_mut().retain(|view| *view != key.view);
            if views.get().is_empty() {
                views.remove();
            }
        }
    }
}
