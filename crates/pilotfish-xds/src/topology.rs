//! The index from resource names to the groups that subscribe to them.

use crate::entries::NameSet;
use crate::group::{Group, GroupKey, SubscriptionKey};
use crate::mark::Mark;
use crate::source::{Change, ChangeKind, ClientId, Resource, Snapshot, ViewId};
use pilotfish_proto::ResourceType;
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
    /// The names that are entered when the stream has a subscription of its own: none where it takes the group along.
    pub(crate) fn names_to_enter(&self) -> usize {
        if self.group.member_count() > 1 { self.key.subscription.count } else { 0 }
    }
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

    /// Returns the name when no group has it any more.
    fn remove_name(&mut self, id: u64, name: &str) -> Option<Arc<str>> {
        let groups = self.names.get_mut(name)?;
        groups.remove(id);
        let is_free = groups.0.is_empty();
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

    fn is_empty(&self) -> bool {
        self.wildcard.is_empty() && self.names.is_empty()
    }
}

/// All groups, the index to them, and the marks of each client's streams.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    groups: HashMap<GroupKey, (u64, Arc<Group>)>,
    next_group: u64,
    topics: HashMap<(ResourceType, ViewId), Topic>,
    clients: HashMap<ClientId, Vec<Arc<Mark>>>,
}

/// By the index of the change: the result of `get`; `None` where no stream had subscribed.
pub(crate) type Fetched = Vec<Option<Option<Arc<Resource>>>>;
/// A group and the changes that concern it.
type Affected<'a> = BTreeMap<u64, (&'a Arc<Group>, Vec<(&'a Arc<str>, Option<&'a Arc<Resource>>)>)>;

impl Topology {
    pub(crate) fn register(&mut self, client: ClientId, mark: &Arc<Mark>) {
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

    /// Whether some group subscribes to the changed resource, so that it has to be read.
    pub(crate) fn wants(&self, change: &Change) -> bool {
        self.topics.get(&(change.ty, change.view)).is_some_and(|topic| {
            let listed = change.kind == ChangeKind::Upsert && !topic.wildcard.is_empty();
            listed || topic.names.contains_key(&change.name)
        })
    }

    pub(crate) fn apply<C>(
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

    pub(crate) fn subscribe(
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
        if !self.groups.contains_key(&key) {
            let topic = self.topics.entry((key.ty, key.view)).or_default();
            let added: Vec<Arc<str>> = added.iter().map(|name| topic.intern(name)).collect();
            // Alone in its group, a stream takes the group along: the cost follows the change and not the subscription.
            if old.group.member_count() == 1
                && let Some(free) = self.amend(old, key, &added, removed)
            {
                return (
                    Membership { group: Arc::clone(&old.group), key, slot: old.slot },
                    Freed::Names(free),
                );
            }
            let group = old.group.derive(&added, removed, subscription.wildcard);
            self.insert(key, group);
        }
        let joined = self.subscribe(mark, key, std::iter::empty::<&str>());
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
        let topic = self.topics.entry((key.ty, key.view)).or_default();
        let free = removed.iter().filter_map(|name| topic.remove_name(id, name)).collect();
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
        Some(free)
    }

    /// Gives a place up.
    pub(crate) fn leave(&mut self, membership: &Membership) -> Freed {
        if !membership.group.leave(membership.slot) {
            return Freed::default();
        }
        let Some((id, group)) = self.groups.remove(&membership.key) else { return Freed::default() };
        if let Some(topic) = self.topics.get_mut(&(membership.key.ty, membership.key.view)) {
            topic.wildcard.remove(&id);
        }
        let names = group.lock().names.clone();
        if names.is_empty() {
            self.remove_if_empty(&membership.key);
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
        let at = (key.ty, key.view);
        if self.topics.get(&at).is_some_and(Topic::is_empty) {
            self.topics.remove(&at);
        }
    }
}
