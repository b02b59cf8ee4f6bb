//! Index from parts of views and resource names to the groups that subscribe to them.

use super::group::{Affected, Group, GroupKey, SubscriptionKey};
use super::names::{Account, Part, name_bytes, subscription_bytes};
use super::whole::{NewState, Whole, Wholes};
use crate::limits::{LimitExceeded, Quota, QuotaGuard};
use crate::mark::Mark;
use crate::resources::NameSet;
use crate::source::{Change, ChangeKind, ClientId, Publication, Resource, Snapshot, ViewId};
use pilotfish_proto::ResourceType;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of names that are added or removed while publications wait.
pub(crate) const NAMES_AT_A_TIME: usize = 4_096;

/// Membership of a stream in a group.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) group: Arc<Group>,
    pub(crate) key: GroupKey,
    /// Slot among the members of the group.
    slot: usize,
}

/// Resources that are released when a stream gives up a membership, or a part of it.
#[derive(Debug)]
pub(crate) enum Freed {
    /// Names without any subscriber.
    Names(Vec<Arc<str>>),
    /// A group without members. Its names still have to be removed from the index, a batch at a time.
    Group { key: GroupKey, group: Arc<Group>, names: NameSet },
}

impl Default for Freed {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

impl Membership {
    /// True if no other stream has the subscription.
    pub(crate) fn is_alone(&self) -> bool {
        self.group.member_count() < 2
    }

    /// Number of names to enter when the stream needs a group of its own: none if it is the only member.
    pub(crate) fn names_to_enter(&self) -> usize {
        if !self.is_alone() { self.key.subscription.count } else { 0 }
    }
}

/// Groups of one type and view that subscribe by name.
#[derive(Debug)]
struct Topic {
    /// Parts of the view.
    parts: Arc<[ViewId]>,
    names: HashMap<Arc<str>, Subscribed>,
}

/// A name with subscribers. There may be very many.
#[derive(Debug)]
struct Subscribed {
    groups: Groups,
    /// Quota that the name is charged to.
    counted_for: Arc<Quota>,
}

/// Groups in the order of their ids. Most names have one group; new groups have the highest ids and are
/// appended.
#[derive(Debug)]
pub(crate) enum Groups {
    One(Arc<Group>),
    #[allow(clippy::box_collection, reason = "what nearly all names do without must not make them larger")]
    Many(Box<Vec<Arc<Group>>>),
}

impl Groups {
    pub(crate) fn insert(&mut self, group: &Arc<Group>) {
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

    /// Removes a group. Returns true if it was the last one, which then stays in place.
    pub(crate) fn remove(&mut self, group: &Group) -> bool {
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

    pub(crate) fn all(&self) -> &[Arc<Group>] {
        match self {
            Self::One(group) => std::slice::from_ref(group),
            Self::Many(all) => all,
        }
    }
}

impl Topic {
    fn new(parts: &Arc<[ViewId]>) -> Self {
        Self { parts: Arc::clone(parts), names: HashMap::new() }
    }

    /// Adds a group to the index under these names. New names are charged to `counted_for`.
    fn enter<'n>(
        &mut self,
        group: &Arc<Group>,
        names: impl IntoIterator<Item = &'n Arc<str>>,
        counted_for: &Arc<Quota>,
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

    /// Removes a group from a name. Returns the name if it has no other group; its budget is then released.
    fn remove_name(&mut self, group: &Group, name: &str) -> Option<Arc<str>> {
        let is_free = self.names.get_mut(name)?.groups.remove(group);
        let (name, subscribed) = is_free.then(|| self.names.remove_entry(name)).flatten()?;
        subscribed.counted_for.give(name_bytes(group.ty, &name));
        Some(name)
    }

    fn intern(&self, name: &str) -> Arc<str> {
        self.names.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name))
    }

    /// Shrinks the index after most names were removed.
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
    groups: HashMap<GroupKey, Made>,
    next_group: u64,
    /// Collections of wildcard subscriptions, with the parts that they share.
    wholes: Wholes,
    /// Groups of each whole, by its id.
    followers: HashMap<u64, Groups>,
    /// Subscriptions by name, of each type and view.
    topics: HashMap<(ResourceType, ViewId), Topic>,
    /// Views of several parts with a topic, by part.
    views: HashMap<(ResourceType, ViewId), Vec<ViewId>>,
    clients: HashMap<ClientId, Vec<Arc<Mark>>>,
    /// Revision of the newest publication.
    published: u64,
    /// Maximum number of names that were entered at once.
    #[cfg(test)]
    pub(crate) most_entered: usize,
}

/// A group, and the memory charged for its subscription.
#[derive(Debug)]
struct Made {
    group: Arc<Group>,
    _charged: QuotaGuard,
}

/// A resource that is read for a publication: of a part for its wholes, or of a view for groups that
/// subscribe by name.
type Wanted<'a> = (ResourceType, ViewId, &'a Arc<str>);
/// Result of reading the wanted resources; `None` for one that does not exist.
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

    /// Marks of all streams of a client.
    pub(crate) fn marks_of(&self, client: ClientId) -> impl Iterator<Item = &Arc<Mark>> {
        self.clients.get(&client).into_iter().flatten()
    }

    pub(crate) fn is_subscribed(&self, view: ViewId, ty: ResourceType, name: &str) -> bool {
        self.topics.get(&(ty, view)).is_some_and(|topic| topic.names.contains_key(name))
    }

    /// True if a stream has that subscription.
    pub(crate) fn has_group(&self, key: &GroupKey) -> bool {
        self.groups.contains_key(key)
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Number of parts that are read, and of their compositions.
    pub(crate) fn whole_counts(&self) -> (usize, usize) {
        (self.wholes.part_count(), self.wholes.count())
    }

    /// Resources to read for a publication: only those that some group subscribes to.
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

    /// Views in which a changed resource is subscribed to by name, with the subscribing groups.
    fn naming<'a>(&'a self, change: &'a Change) -> impl Iterator<Item = (ViewId, &'a Groups)> {
        let Change { view, ty, name, .. } = change;
        let composed = self.views.get(&(*ty, *view)).into_iter().flatten();
        let views = [view].into_iter().chain(composed);
        views.filter_map(|view| Some((*view, &self.topics.get(&(*ty, *view))?.names.get(name)?.groups)))
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
                for group in groups.all() {
                    affected
                        .entry(group.id)
                        .or_insert((group, Affected::default()))
                        .1
                        .names
                        .push((name, now));
                }
            }
        }
        let revision = snapshot.revision();
        for NewState { whole, layer, differs } in self.wholes.publish(revision, &of_parts) {
            for group in self.followers.get(&whole).into_iter().flat_map(Groups::all) {
                let (_, affected) = affected.entry(group.id).or_insert((group, Affected::default()));
                affected.layer = Some((Arc::clone(&layer), differs));
            }
        }
        for (group, publication) in affected.values() {
            if group.publish(revision, publication) {
                group.each_member(|member| mark(member, group.ty));
            }
        }
    }

    /// Adds a stream to the group of a subscription. A new group, and new names, are charged to `account`.
    ///
    /// # Errors
    /// If the budget is exceeded; then nothing has changed.
    pub(crate) fn subscribe(
        &mut self,
        mark: &Arc<Mark>,
        key: GroupKey,
        parts: &Arc<[ViewId]>,
        names: impl Iterator<Item = impl AsRef<str>>,
        account: &Account,
    ) -> Result<Membership, LimitExceeded> {
        if !self.groups.contains_key(&key) {
            let names: NameSet = names.map(|name| self.intern(&key, name.as_ref())).collect();
            let counted = Self::count(account, self.bytes_of_new(&key, &names), &key)?;
            let whole = self.whole(&key, parts);
            let group = Group::new(self.next_group, &key, Arc::clone(parts), whole.clone(), names);
            self.insert(key, group, whole.as_ref(), (account, counted));
        }
        Ok(self.join(mark, key))
    }

    /// Estimated bytes of those names without a subscriber so far.
    fn bytes_of_new<'n>(&self, key: &GroupKey, names: impl IntoIterator<Item = &'n Arc<str>>) -> usize {
        let topic = self.topics.get(&(key.ty, key.view));
        let is_new = |name: &&Arc<str>| topic.is_none_or(|topic| !topic.names.contains_key(*name));
        names.into_iter().filter(is_new).map(|name| name_bytes(key.ty, name)).sum()
    }

    /// Charges new names and a subscription. Returns the guard of the subscription's part.
    fn count(account: &Account, new_names: usize, key: &GroupKey) -> Result<QuotaGuard, LimitExceeded> {
        let subscription = subscription_bytes(key.subscription.count);
        account.take(new_names.saturating_add(subscription))?;
        Ok(QuotaGuard::of_taken(&account.budget, subscription))
    }

    fn join(&self, mark: &Arc<Mark>, key: GroupKey) -> Membership {
        let group = Arc::clone(&self.groups.get(&key).expect("inserted just now or before").group);
        let slot = group.join(mark);
        Membership { group, key, slot }
    }

    /// Interns a name: returns the text of the existing subscription to it.
    fn intern(&self, key: &GroupKey, name: &str) -> Arc<str> {
        let topic = self.topics.get(&(key.ty, key.view));
        topic.map_or_else(|| Arc::from(name), |topic| topic.intern(name))
    }

    /// Shared wildcard state of a subscription. The caller calls [`Self::follow`] for its group.
    fn whole(&mut self, key: &GroupKey, parts: &[ViewId]) -> Option<Arc<Whole>> {
        let is_one = key.subscription.wildcard && key.view != ViewId::NONE;
        if is_one { self.wholes.of(key.ty, parts) } else { None }
    }

    /// Adds a group to those of a whole.
    fn follow(&mut self, whole: &Whole, group: &Arc<Group>) {
        match self.followers.entry(whole.id()) {
            Entry::Occupied(mut groups) => groups.get_mut().insert(group),
            Entry::Vacant(none) => {
                none.insert(Groups::One(Arc::clone(group)));
                self.wholes.follow(whole);
            }
        }
    }

    /// Removes a group from those of a whole, which goes with its last group.
    fn unfollow(&mut self, whole: &Arc<Whole>, group: &Group) {
        if let Entry::Occupied(mut groups) = self.followers.entry(whole.id())
            && groups.get_mut().remove(group)
        {
            groups.remove();
            self.wholes.unfollow(whole);
        }
    }

    fn insert(
        &mut self,
        key: GroupKey,
        group: Group,
        whole: Option<&Arc<Whole>>,
        (account, charged): (&Account, QuotaGuard),
    ) {
        let group = Arc::new(group);
        self.next_group += 1;
        let names = group.lock().names.clone();
        self.enter_names(&key, &group, &names, &account.budget);
        if let Some(whole) = whole {
            self.follow(whole, &group);
        }
        self.groups.insert(key, Made { group, _charged: charged });
    }

    fn enter_names<'n>(
        &mut self,
        key: &GroupKey,
        group: &Arc<Group>,
        names: impl IntoIterator<Item = &'n Arc<str>>,
        counted_for: &Arc<Quota>,
    ) {
        let mut names = names.into_iter().peekable();
        if names.peek().is_none() {
            return;
        }
        #[cfg(test)]
        let names = {
            let names: Vec<_> = names.collect();
            self.most_entered = self.most_entered.max(names.len());
            names
        };
        let views = &mut self.views;
        let topic = self.topics.entry((key.ty, key.view)).or_insert_with(|| {
            for part in group.parts.iter().filter(|part| **part != key.view) {
                views.entry((key.ty, *part)).or_default().push(key.view);
            }
            Topic::new(&group.parts)
        });
        topic.enter(group, names, counted_for);
    }

    /// Moves a stream to another subscription. Returns its new membership, and the released parts of the old
    /// one. `None` if the stream's group has other members, and more than [`NAMES_AT_A_TIME`] names would
    /// have to be entered or removed; then nothing has changed.
    ///
    /// # Errors
    /// If the budget of `account` is exceeded; then nothing has changed.
    pub(crate) fn resubscribe(
        &mut self,
        mark: &Arc<Mark>,
        old: &Membership,
        subscription: SubscriptionKey,
        (added, removed): (&[&str], &[&str]),
        account: &Account,
    ) -> Result<Option<(Membership, Freed)>, LimitExceeded> {
        let key = GroupKey { subscription, ..old.key };
        if !self.groups.contains_key(&key) {
            // The only member of a group changes it in place: the cost depends on the change and not on the
            // subscription.
            let is_alone = old.group.member_count() == 1;
            if !is_alone && subscription.count.max(removed.len()) > NAMES_AT_A_TIME {
                return Ok(None);
            }
            let added: Vec<Arc<str>> = added.iter().map(|name| self.intern(&key, name)).collect();
            let new = self.bytes_of_new(&key, &added);
            // Reducing a subscription is always allowed.
            let part = if is_alone && added.is_empty() { Part::Beyond } else { account.part };
            let counted = Self::count(&Account { part, ..account.clone() }, new, &key)?;
            if is_alone && let Some(made) = self.groups.remove(&old.key) {
                let free = self.amend(made, key, &added, removed, (account, counted));
                let membership = Membership { group: Arc::clone(&old.group), key, slot: old.slot };
                return Ok(Some((membership, Freed::Names(free))));
            }
            let whole = self.whole(&key, &old.group.parts);
            let names = (&added[..], removed);
            let group = old.group.derive(self.next_group, names, subscription.wildcard, whole.clone());
            self.insert(key, group, whole.as_ref(), (account, counted));
        }
        let joined = self.join(mark, key);
        Ok(Some((joined, self.leave(old))))
    }

    fn amend(
        &mut self,
        Made { group, .. }: Made,
        key: GroupKey,
        added: &[Arc<str>],
        removed: &[&str],
        (account, counted): (&Account, QuotaGuard),
    ) -> Vec<Arc<str>> {
        let was = group.lock().whole().cloned();
        let whole = self.whole(&key, &group.parts);
        if let Some(whole) = &whole {
            self.follow(whole, &group);
        } else if let Some(was) = &was {
            self.unfollow(was, &group);
        }
        self.enter_names(&key, &group, added, &account.budget);
        let free = match self.topics.get_mut(&(key.ty, key.view)) {
            Some(topic) => removed.iter().filter_map(|name| topic.remove_name(&group, name)).collect(),
            None => Vec::new(),
        };
        self.remove_if_empty(&key);
        group.amend(added, removed, key.subscription.wildcard, whole);
        self.groups.insert(key, Made { group, _charged: counted });
        free
    }

    pub(crate) fn leave(&mut self, membership: &Membership) -> Freed {
        if !membership.group.leave(membership.slot) {
            return Freed::default();
        }
        let Some(Made { group, .. }) = self.groups.remove(&membership.key) else {
            return Freed::default();
        };
        let (names, whole) = {
            let state = group.lock();
            (state.names.clone(), state.whole().cloned())
        };
        if let Some(whole) = whole {
            self.unfollow(&whole, &group);
        }
        Freed::Group { key: membership.key, group, names }
    }

    /// Removes names of a dissolved group from the index. Returns those without any subscriber.
    pub(crate) fn forget(&mut self, key: &GroupKey, group: &Group, names: &[&Arc<str>]) -> Vec<Arc<str>> {
        let Some(topic) = self.topics.get_mut(&(key.ty, key.view)) else { return Vec::new() };
        let free = names.iter().filter_map(|name| topic.remove_name(group, name)).collect();
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
