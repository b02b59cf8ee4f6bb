//! From a change to the streams that subscribed to it.

use crate::environment::{Clock, Environment};
use crate::group::{Group, GroupKey, NameHasher, SubscriptionKey};
use crate::limits::{LimitExceeded, StreamLimits};
use crate::mark::{Due, Mark, Set, Types};
use crate::names::{Account, ClientBudgets};
use crate::recorder::Recorder;
use crate::response::Nonces;
use crate::source::{Change, ClientId, PeerInfo, Publication, ResourceSource, Snapshot, ViewId};
use crate::status::{Concerned, ConnectionStatus, Progress, ReportStatus};
use crate::topology::{Fetched, Freed, Membership, NAMES_AT_A_TIME, Topology};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use pilotfish_identity::LogLimit;
use pilotfish_proto::ResourceType;
use slab::Slab;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Lines about clients that come and go, in ten seconds.
const LINES: u32 = 50;

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
    /// For whom names count.
    pub(crate) names: ClientBudgets,
    /// For whom nodes count.
    pub(crate) nodes: ClientBudgets,
    /// For debug pages and for whoever follows acknowledgements. A stream removes itself when it is dropped.
    streams: Mutex<Slab<Listed>>,
    next_connection: AtomicU64,
    /// For subscriptions of which a part is entered.
    next_entering: AtomicU64,
    /// Of clients that come and go, as often as they like.
    log: LogLimit,
    /// The marks of streams that have collections.
    collectors: Mutex<Vec<Weak<Mark>>>,
    /// The revision of the newest publication whose streams are all marked.
    revision: AtomicU64,
    /// Of all streams.
    due: Due,
}

/// A stream in the list of connections.
struct Listed {
    stream: Weak<dyn ReportStatus>,
    /// Once it is known.
    client: Option<ClientId>,
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
            names: ClientBudgets::of_names(&limits),
            nodes: ClientBudgets::of_nodes(&limits),
            streams: Mutex::default(),
            next_connection: AtomicU64::new(1),
            next_entering: AtomicU64::new(1),
            log: LogLimit::of(LINES),
            collectors: Mutex::default(),
            revision: AtomicU64::new(0),
            due: Due::default(),
        })
    }

    /// How many lines about clients were left out, if one may be written now.
    pub(crate) fn may_log(&self) -> Option<u64> {
        self.log.allow(self.clock.now())
    }

    /// Whether streams have yet to handle a publication that could do so at once.
    pub(crate) fn due(&self) -> &Due {
        &self.due
    }

    /// The source of the resources.
    pub fn source(&self) -> &Arc<S> {
        &self.source
    }

    /// Applies a new state of the source to the groups that it changes and wakes their streams. To be called after each new state,
    /// by one caller. Returns the clients that it concerns, and by which types.
    pub fn publish(&self, publication: &Publication) -> Vec<Concerned> {
        let since = self.clock.now().saturating_duration_since(self.started);
        let mut concerned: Vec<Concerned> = Vec::new();
        let marks = {
            let snapshot = self.source.snapshot();
            let fetched = self.prefetch(&publication.changes, &snapshot);
            // Nobody reads a group while some have this publication and others have not.
            let mut topology = self.topology.write();
            let mut marks = Vec::new();
            let mut note = |mark: &Arc<Mark>, set: Set, types: Types| {
                if set.wakes {
                    marks.push(Arc::clone(mark));
                }
                if set.is_first {
                    mark.set_place(concerned.len());
                    concerned.push(Concerned { client: mark.client(), types });
                } else if let Some(known) = concerned.get_mut(mark.place()) {
                    known.types.extend(types);
                }
            };
            topology.apply(publication, &snapshot, fetched, &mut |mark, ty| {
                note(mark, mark.set_changed(ty, publication.revision, since), ty.into());
            });
            for client in &publication.view_changed {
                for mark in topology.marks_of(*client) {
                    // Which of its views are others now, the stream finds out.
                    note(mark, mark.set_moved(publication.revision, since), Types::ALL);
                }
            }
            marks
        };
        self.revision.store(publication.revision, Ordering::Release);
        for mark in marks {
            mark.wake();
        }
        concerned
    }

    /// The revision in force: that of the newest publication. Every stream that it concerns knows of it.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Wakes the streams that have collections: the source has another state of some.
    pub fn publish_collections(&self) {
        let since = self.clock.now().saturating_duration_since(self.started);
        let mut marks: Vec<Arc<Mark>> = Vec::new();
        self.collectors.lock().retain(|mark| match mark.upgrade() {
            Some(mark) => {
                marks.push(mark);
                true
            }
            None => false,
        });
        for mark in marks {
            if mark.set_collections(since) {
                mark.wake();
            }
        }
    }

    /// A stream has collections from now on.
    pub(crate) fn collect(&self, mark: &Arc<Mark>) {
        let mut collectors = self.collectors.lock();
        collectors.retain(|mark| mark.strong_count() > 0);
        collectors.push(Arc::downgrade(mark));
    }

    /// Reads what changed before anything is locked: reading may compute.
    fn prefetch<'a, C>(&self, changes: &'a [Change], snapshot: &impl Snapshot<C>) -> Fetched<'a> {
        let wanted = self.topology.read().wanted(changes);
        let mut fetched = Fetched::with_capacity(wanted.len());
        for wanted in wanted {
            let (_, view, name) = wanted;
            fetched.entry(wanted).or_insert_with(|| snapshot.get(view, name).map(Arc::new));
        }
        fetched
    }

    /// While the guard lives, no group changes: what a stream sends next is chosen from one published state.
    pub(crate) fn published(&self) -> RwLockReadGuard<'_, Topology> {
        self.topology.read()
    }

    pub(crate) fn register(&self, slot: usize, client: ClientId, mark: &Arc<Mark>) {
        if let Some(listed) = self.streams.lock().get_mut(slot) {
            listed.client = Some(client);
        }
        self.topology.write().register(client, mark);
    }

    pub(crate) fn unregister(&self, client: ClientId, mark: &Arc<Mark>) {
        self.topology.write().unregister(client, mark);
    }

    /// Enters a stream into the list of connections; `make` is given its slot there.
    pub(crate) fn enter<T: ReportStatus + 'static>(&self, make: impl FnOnce(usize) -> Arc<T>) -> Arc<T> {
        let mut streams = self.streams.lock();
        let entry = streams.vacant_entry();
        let stream = make(entry.key());
        let weak: Weak<T> = Arc::downgrade(&stream);
        entry.insert(Listed { stream: weak, client: None });
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
        parts: &Arc<[ViewId]>,
        names: impl Iterator<Item = impl AsRef<str>>,
        account: &Account,
    ) -> Result<Membership, LimitExceeded> {
        let membership = self.topology.write().subscribe(mark, key, parts, names, account)?;
        self.fill(&membership);
        Ok(membership)
    }

    /// Puts a stream that has no place yet into the group of a subscription by these names, some of them at a time: publications wait for
    /// the names of a piece and not for those of all.
    ///
    /// # Errors
    /// When the names are too many for `account`. Then the stream has no place.
    pub(crate) fn subscribe_to(
        &self,
        mark: &Arc<Mark>,
        key: GroupKey,
        parts: &Arc<[ViewId]>,
        names: &[&str],
        account: &Account,
    ) -> Result<Membership, LimitExceeded> {
        if names.len() <= NAMES_AT_A_TIME || self.topology.read().has_group(&key) {
            return self.subscribe(mark, key, parts, names.iter(), account);
        }
        self.enter_in_pieces(mark, key, parts, names, (account, None))
    }

    /// Makes a new group of many names. What another group has of them is taken over.
    fn enter_in_pieces(
        &self,
        mark: &Arc<Mark>,
        key: GroupKey,
        parts: &Arc<[ViewId]>,
        names: &[&str],
        (account, other): (&Account, Option<&Group>),
    ) -> Result<Membership, LimitExceeded> {
        let (first, others) = names.split_at(names.len().min(NAMES_AT_A_TIME));
        let mut next = key.subscription;
        if !others.is_empty() {
            next = self.part_of(SubscriptionKey::new(key.subscription.wildcard));
            first.iter().for_each(|name| next.add(self.hasher, name));
        }
        let first_key = GroupKey { subscription: next, ..key };
        let mut place = {
            let mut topology = self.topology.write();
            let place = topology.subscribe(mark, first_key, parts, first.iter(), account)?;
            take_over(&place, other);
            place
        };
        self.fill(&place);
        let mut left = names.len() - first.len();
        for piece in others.chunks(NAMES_AT_A_TIME) {
            piece.iter().for_each(|name| next.add(self.hasher, name));
            left -= piece.len();
            let subscription = if left == 0 { key.subscription } else { next };
            let done = self.resubscribe(mark, &mut place, subscription, (piece, &[]), (account, other));
            match done {
                Ok(done) => debug_assert!(done, "no other stream has a part of it"),
                Err(error) => {
                    self.leave(&place);
                    return Err(error);
                }
            }
        }
        Ok(place)
    }

    /// A subscription of which a part is entered, that is no other stream's.
    fn part_of(&self, subscription: SubscriptionKey) -> SubscriptionKey {
        subscription.entering(self.next_entering.fetch_add(1, Ordering::Relaxed))
    }

    /// Changes a stream's subscription, and gives its old place up. Returns whether that was done: `false` where it would take too long, as
    /// [`Topology::resubscribe`] tells.
    fn resubscribe(
        &self,
        mark: &Arc<Mark>,
        place: &mut Membership,
        subscription: SubscriptionKey,
        names: (&[&str], &[&str]),
        (account, other): (&Account, Option<&Group>),
    ) -> Result<bool, LimitExceeded> {
        let (membership, freed) = {
            let mut topology = self.topology.write();
            let done = topology.resubscribe(mark, place, subscription, names, account)?;
            let Some((membership, freed)) = done else { return Ok(false) };
            take_over(&membership, other);
            (membership, freed)
        };
        self.free(&membership.key, freed);
        self.fill(&membership);
        *place = membership;
        Ok(true)
    }

    /// The same with names to add and to remove, some of them at a time.
    ///
    /// # Errors
    /// When the names are too many for `account`. Then the place is that of a part of them, and still to be given up.
    pub(crate) fn resubscribe_to(
        &self,
        mark: &Arc<Mark>,
        place: &mut Membership,
        subscription: SubscriptionKey,
        (added, removed): (&[&str], &[&str]),
        account: &Account,
    ) -> Result<(), LimitExceeded> {
        let key = GroupKey { subscription, ..place.key };
        let is_small = added.len().max(removed.len()) <= NAMES_AT_A_TIME;
        if is_small || self.topology.read().has_group(&key) {
            let change = (added, removed);
            if self.resubscribe(mark, place, subscription, change, (account, None))? {
                return Ok(());
            }
            return self.move_away(mark, place, subscription, change, account);
        }
        let mut next = self.part_of(place.key.subscription);
        next.wildcard = subscription.wildcard;
        let pieces = added.chunks(NAMES_AT_A_TIME).map(|piece| (piece, &[][..]));
        let pieces = pieces.chain(removed.chunks(NAMES_AT_A_TIME).map(|piece| (&[][..], piece)));
        let mut left = added.len() + removed.len();
        for (more, fewer) in pieces {
            more.iter().for_each(|name| next.add(self.hasher, name));
            fewer.iter().for_each(|name| next.remove(self.hasher, name));
            left -= more.len() + fewer.len();
            let next = if left == 0 { subscription } else { next };
            if !self.resubscribe(mark, place, next, (more, fewer), (account, None))? {
                return self.move_away(mark, place, subscription, (added, removed), account);
            }
        }
        Ok(())
    }

    /// Gives a stream whose group others keep a group of its own, and then its old place up.
    fn move_away(
        &self,
        mark: &Arc<Mark>,
        place: &mut Membership,
        subscription: SubscriptionKey,
        (added, removed): (&[&str], &[&str]),
        account: &Account,
    ) -> Result<(), LimitExceeded> {
        let old = place.group.lock().names.clone();
        let removed: HashSet<&str> = removed.iter().copied().collect();
        let kept = old.iter().map(|name| &**name).filter(|name| !removed.contains(name));
        let added = added.iter().copied().filter(|name| !old.contains(*name));
        let names: Vec<&str> = kept.chain(added).collect();
        let (key, group) = (GroupKey { subscription, ..place.key }, Arc::clone(&place.group));
        let parts = Arc::clone(&group.parts);
        let moved = self.enter_in_pieces(mark, key, &parts, &names, (account, Some(&group)))?;
        self.leave(&std::mem::replace(place, moved));
        Ok(())
    }

    /// Gives a stream's place up, and the names that nobody else subscribes to, some of them at a time.
    pub(crate) fn leave(&self, membership: &Membership) {
        let freed = self.topology.write().leave(membership);
        self.free(&membership.key, freed);
    }

    fn free(&self, key: &GroupKey, freed: Freed) {
        match freed {
            Freed::Names(names) => self.let_go(key, &names),
            Freed::Group { key, group, names } => {
                let names: Vec<&Arc<str>> = names.iter().collect();
                for piece in names.chunks(NAMES_AT_A_TIME) {
                    let free = self.topology.write().forget(&key, &group, piece);
                    self.let_go(&key, &free);
                }
            }
        }
    }

    /// Tells the source that nobody subscribes to these names any more.
    fn let_go(&self, GroupKey { ty, view, .. }: &GroupKey, names: &[Arc<str>]) {
        if !names.is_empty() && *view != ViewId::NONE {
            self.source.unsubscribed(*view, names, &|name| self.is_subscribed(*view, *ty, name));
        }
    }

    fn fill(&self, membership: &Membership) {
        membership.group.fill(
            membership.key.view,
            || self.source.snapshot(),
            |install| {
                let topology = self.topology.read();
                install(topology.published());
            },
        );
    }

    /// Whether some stream subscribes to a resource of a view by its name.
    pub fn is_subscribed(&self, view: ViewId, ty: ResourceType, name: &str) -> bool {
        self.topology.read().is_subscribed(view, ty, name)
    }

    /// How many streams are open.
    pub fn stream_count(&self) -> usize {
        self.streams.lock().len()
    }

    /// How many different subscriptions exist.
    pub fn group_count(&self) -> usize {
        self.topology.read().group_count()
    }

    /// How many parts of views are kept for wildcard subscriptions.
    pub fn part_count(&self) -> usize {
        self.topology.read().whole_counts().0
    }

    /// How many compositions of parts are kept: those of each view, and what several of them end with.
    pub fn whole_count(&self) -> usize {
        self.topology.read().whole_counts().1
    }

    /// What all names that streams subscribe to count as, in bytes.
    pub fn subscription_bytes(&self) -> usize {
        self.names.used()
    }

    /// What the nodes of all streams count as, in bytes.
    pub fn node_bytes(&self) -> usize {
        self.nodes.used()
    }

    /// All connected clients, by connection id. For debug pages: locks every stream in turn, for as long as it takes to look at some
    /// numbers. What a client costs here does not grow with its subscriptions.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let mut all: Vec<_> = self.listed(|_| true).iter().filter_map(|stream| stream.report()).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// How far all connected clients are. Locks every stream in turn, for as long as it takes to look at some numbers.
    pub fn progress(&self) -> Vec<Progress> {
        self.listed(|_| true).iter().filter_map(|stream| stream.progress()).collect()
    }

    /// How far these clients are, as far as they are connected. To be given in order. The others' streams are not touched.
    pub fn progress_of(&self, clients: &[ClientId]) -> Vec<Progress> {
        let is_one = |client: ClientId| clients.binary_search(&client).is_ok();
        let streams = self.listed(|listed| listed.client.is_some_and(is_one));
        streams.iter().filter_map(|stream| stream.progress()).collect()
    }

    fn listed(&self, is_wanted: impl Fn(&Listed) -> bool) -> Vec<Arc<dyn ReportStatus>> {
        let streams = self.streams.lock();
        let wanted = streams.iter().filter(|(_, listed)| is_wanted(listed));
        wanted.filter_map(|(_, listed)| listed.stream.upgrade()).collect()
    }

    /// Ends the streams of peers whose proof counts no longer: they have to prove again who they are. Returns how many.
    pub fn revoke(&self, is_meant: impl Fn(&PeerInfo) -> bool) -> usize {
        self.listed(|_| true).iter().filter(|stream| stream.revoke(&is_meant)).count()
    }

    /// All connected clients, and the revision in force of which their states tell at the latest.
    pub fn acknowledgements(&self) -> (u64, Vec<ConnectionStatus>) {
        // Before the streams: a publication that comes in between has marked those that it concerns.
        let revision = self.revision();
        (revision, self.connections())
    }
}

/// A new group takes over what another one has. To be called while the topology is locked for writing.
fn take_over(place: &Membership, other: Option<&Group>) {
    if let Some(other) = other.filter(|_| place.is_alone()) {
        place.group.take_over(other);
    }
}

#[cfg(test)]
mod tests;
