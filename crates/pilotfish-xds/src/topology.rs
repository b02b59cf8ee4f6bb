//! The index from resource names to the groups that subscribe to them.

use crate::entries::NameSet;
use crate::group::{Group, GroupKey, SubscriptionKey};
use crate::limits::{Budget, LimitExceeded};
use crate::mark::Mark;
use crate::names::{Account, Part, name_bytes, subscription_bytes};
use crate::source::{Change, ChangeKind, ClientId, Resource, Snapshot, ViewId};
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
    Group { key: GroupKey, group: Arc<Group>, names: NameSet },
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
    names: HashMap<Arc<str>, Subscribed>,
}

/// A name that some stream subscribes to. There may be very many.
#[derive(Debug)]
struct Subscribed {
    groups: Groups,
    /// For whom the name counts.
    counted_for: Arc<Budget>,
}

/// Groups in the order of their ids. Most names are in one group; new groups have the highest ids and go to the end.
#[derive(Debug)]
enum Groups {
    One(Arc<Group>),
    #[allow(clippy::box_collection, reason = "what nearly all names do without must not make them larger")]
    Many(Box<Vec<Arc<Group>>>),
}

impl Groups {
    fn insert(&mut self, group: &Arc<Group>) {
        match self {
            Self::One(known) if known.id == group.id => {}
            Self::One(known) => {
                let mut both = vec![Arc::clone(known), Arc::clone(group)];
                both.sort_by_key(|group| group.id);
                *self = Self::Many(Box::new(both));
            }
            Self::Many(all) => {
                if let Err(place) = all.binary_search_by_key(&group.id, |group| group.id) {
                    all.insert(place, Arc::clone(group));
                }
            }
        }
    }

    /// Returns whether none is left: then the last one is still in it.
    fn remove(&mut self, group: &Group) -> bool {
        match self {
            Self::One(known) => known.id == group.id,
            Self::Many(all) => {
                if let Ok(place) = all.binary_search_by_key(&group.id, |group| group.id) {
                    all.remove(place);
                }
                if let [last] = &all[..] {
                    *self = Self::One(Arc::clone(last));
                }
                false
            }
        }
    }

    fn all(&self) -> &[Arc<Group>] {
        match self {
            Self::One(group) => std::slice::from_ref(group),
            Self::Many(all) => all,
        }
    }
}

impl Topic {
    /// Enters a group under these names. Those that are new count for `counted_for`.
    fn enter<'n>(
        &mut self,
        group: &Arc<Group>,
        names: impl IntoIterator<Item = &'n Arc<str>>,
        counted_for: &Arc<Budget>,
    ) {
        for name in names {
            match self.names.entry(Arc::clone(name)) {
                Entry::Occupied(mut known) => known.get_mut().groups.insert(group),
                Entry::Vacant(free) => {
                    let groups = Groups::One(Arc::clone(group));
                    free.insert(Subscribed { groups, counted_for: Arc::clone(counted_for) });
                }
            }
        }
    }

    fn enter_wildcard(&mut self, group: &Arc<Group>, wildcard: bool) {
        if wildcard {
            self.wildcard.insert(group.id, Arc::clone(group));
        } else {
            self.wildcard.remove(&group.id);
        }
    }

    /// What the names among these count as that nobody subscribes to yet.
    fn bytes_of_new<'n>(&self, ty: ResourceType, names: impl IntoIterator<Item = &'n Arc<str>>) -> usize {
        let new = names.into_iter().filter(|name| !self.names.contains_key(*name));
        new.map(|name| name_bytes(ty, name)).sum()
    }

    /// Returns the name when no group has it any more. It counts for nobody then.
    fn remove_name(&mut self, group: &Group, name: &str) -> Option<Arc<str>> {
        let is_free = self.names.get_mut(name)?.groups.remove(group);
        let (name, subscribed) = is_free.then(|| self.names.remove_entry(name)).flatten()?;
        subscribed.counted_for.give(name_bytes(group.ty, &name));
        Some(name)
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
    groups: HashMap<GroupKey, Made>,
    next_group: u64,
    topics: HashMap<(ResourceType, ViewId), Topic>,
    clients: HashMap<ClientId, Vec<Arc<Mark>>>,
}

/// A group, and for whom its subscription counts.
#[derive(Debug)]
struct Made {
    group: Arc<Group>,
    counted_for: Arc<Budget>,
    bytes: usize,
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
            for group in topic.names.get(&change.name).into_iter().flat_map(|name| name.groups.all()) {
                affected.entry(group.id).or_insert((group, Vec::new())).1.push((&change.name, now));
            }
        }
        for (group, changes) in affected.values() {
            if group.publish(snapshot.revision(), changes) {
                group.each_member(|member| mark(member, group.ty));
            }
        }
    }

    /// Puts a stream into the group of a subscription. A new group, and names that nobody has yet, count for `account`.
    ///
    /// # Errors
    /// When that is too much: then nothing has changed.
    pub(crate) fn subscribe(
        &mut self,
        mark: &Arc<Mark>,
        key: GroupKey,
        names: impl Iterator<Item = impl AsRef<str>>,
        account: &Account,
    ) -> Result<Membership, LimitExceeded> {
        if !self.groups.contains_key(&key) {
            let topic = self.topics.entry((key.ty, key.view)).or_default();
            let names: NameSet = names.map(|name| topic.intern(name.as_ref())).collect();
            let new = topic.bytes_of_new(key.ty, &names);
            let id = self.next_group;
            let made = Self::count(account, new, &key)
                .map(|counted| self.insert(key, Group::new(id, &key, names), account, counted));
            if made.is_err() {
                self.remove_if_empty(&key);
            }
            made?;
        }
        Ok(self.join(mark, key))
    }

    /// Counts new names and a subscription. Returns what the subscription counts as.
    fn count(account: &Account, new_names: usize, key: &GroupKey) -> Result<usize, LimitExceeded> {
        let subscription = subscription_bytes(key.subscription.count);
        account.take(new_names.saturating_add(subscription))?;
        Ok(subscription)
    }

    fn join(&self, mark: &Arc<Mark>, key: GroupKey) -> Membership {
        let group = Arc::clone(&self.groups.get(&key).expect("inserted just now or before").group);
        let slot = group.join(mark);
        Membership { group, key, slot }
    }

    fn insert(&mut self, key: GroupKey, group: Group, account: &Account, bytes: usize) {
        let group = Arc::new(group);
        self.next_group += 1;
        let names = group.lock().names.clone();
        let topic = self.topics.entry((key.ty, key.view)).or_default();
        topic.enter_wildcard(&group, key.subscription.wildcard);
        topic.enter(&group, &names, &account.budget);
        self.groups.insert(key, Made { group, counted_for: Arc::clone(&account.budget), bytes });
    }

    /// Returns the stream's new place, and what becomes free of the old one.
    ///
    /// # Errors
    /// When what is new of it is too much for `account`: then nothing has changed.
    pub(crate) fn resubscribe(
        &mut self,
        mark: &Arc<Mark>,
        old: &Membership,
        subscription: SubscriptionKey,
        (added, removed): (&[&str], &[&str]),
        account: &Account,
    ) -> Result<(Membership, Freed), LimitExceeded> {
        let key = GroupKey { subscription, ..old.key };
        if !self.groups.contains_key(&key) {
            let topic = self.topics.entry((key.ty, key.view)).or_default();
            let added: Vec<Arc<str>> = added.iter().map(|name| topic.intern(name)).collect();
            let new = topic.bytes_of_new(key.ty, &added);
            // Alone in its group, a stream takes the group along: the cost follows the change and not the subscription.
            let is_alone = old.group.member_count() == 1;
            // Then less of a subscription is never too much.
            let part = if is_alone && added.is_empty() { Part::Beyond } else { account.part };
            let counted = Self::count(&Account { part, ..account.clone() }, new, &key)?;
            if is_alone && let Some(made) = self.groups.remove(&old.key) {
                let free = self.amend(made, key, &added, removed, (account, counted));
                let membership = Membership { group: Arc::clone(&old.group), key, slot: old.slot };
                return Ok((membership, Freed::Names(free)));
            }
            let group = old.group.derive(self.next_group, &added, removed, subscription.wildcard);
            self.insert(key, group, account, counted);
        }
        let joined = self.join(mark, key);
        Ok((joined, self.leave(old)))
    }

    fn amend(
        &mut self,
        Made { group, counted_for, bytes }: Made,
        key: GroupKey,
        added: &[Arc<str>],
        removed: &[&str],
        (account, counted): (&Account, usize),
    ) -> Vec<Arc<str>> {
        counted_for.give(bytes);
        let topic = self.topics.entry((key.ty, key.view)).or_default();
        let free = removed.iter().filter_map(|name| topic.remove_name(&group, name)).collect();
        topic.enter(&group, added, &account.budget);
        topic.enter_wildcard(&group, key.subscription.wildcard);
        group.amend(added, removed, key.subscription.wildcard);
        self.groups.insert(key, Made { group, counted_for: Arc::clone(&account.budget), bytes: counted });
        free
    }

    /// Gives a place up.
    pub(crate) fn leave(&mut self, membership: &Membership) -> Freed {
        if !membership.group.leave(membership.slot) {
            return Freed::default();
        }
        let Some(Made { group, counted_for, bytes }) = self.groups.remove(&membership.key) else {
            return Freed::default();
        };
        counted_for.give(bytes);
        if let Some(topic) = self.topics.get_mut(&(membership.key.ty, membership.key.view)) {
            topic.wildcard.remove(&group.id);
        }
        let names = group.lock().names.clone();
        if names.is_empty() {
            self.remove_if_empty(&membership.key);
        }
        Freed::Group { key: membership.key, group, names }
    }

    /// Takes names of a group that is gone out of the index. Returns those that no stream subscribes to any more.
    pub(crate) fn forget(&mut self, key: &GroupKey, group: &Group, names: &[&Arc<str>]) -> Vec<Arc<str>> {
        let Some(topic) = self.topics.get_mut(&(key.ty, key.view)) else { return Vec::new() };
        let free = names.iter().filter_map(|name| topic.remove_name(group, name)).collect();
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
