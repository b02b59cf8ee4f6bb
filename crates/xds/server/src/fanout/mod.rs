//! Fan-out: delivers a change to the streams that subscribe to it.

pub(crate) mod group;
pub(crate) mod names;
pub(crate) mod topology;
mod whole;

use self::group::{Group, GroupKey, NameHasher, SubscriptionKey};
use self::names::{Account, ClientQuotas};
use self::topology::{Fetched, Freed, Membership, NAMES_AT_A_TIME, Topology};
use crate::environment::{Clock, Environment};
use crate::limits::{LimitExceeded, StreamLimits};
use crate::mark::{Due, Mark, Set, Types};
use crate::recorder::Recorder;
use crate::resources::Nonces;
use crate::source::{Change, ClientId, PeerInfo, Publication, ResourceSource, Snapshot, ViewId};
use crate::status::{Concerned, ConnectionStatus, Progress, ReportStatus};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use pilotfish_admission::LogLimit;
use pilotfish_proto::ResourceType;
use slab::Slab;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Maximum number of connect and disconnect log lines in ten seconds.
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
    pub(crate) names: ClientQuotas,
    pub(crate) nodes: ClientQuotas,
    /// Streams for debug pages and for the tracking of acknowledgements. A stream removes itself when it is
    /// dropped.
    streams: Mutex<Slab<Listed>>,
    next_connection: AtomicU64,
    /// Number of the next incomplete subscription.
    next_entering: AtomicU64,
    /// Rate limit for the log lines of connects and disconnects.
    log: LogLimit,
    /// The marks of streams that have collections.
    collectors: Mutex<Vec<Weak<Mark>>>,
    /// The revision of the newest publication whose streams are all marked.
    revision: AtomicU64,
    /// Number of prompt streams with a pending publication.
    due: Due,
}

/// A stream in the list of connections.
struct Listed {
    stream: Weak<dyn ReportStatus>,
    /// `None` until the first request.
    client: Option<ClientId>,
}

impl<S: ResourceSource> Fanout<S> {
    pub fn new(source: Arc<S>, recorder: Arc<dyn Recorder>, limits: StreamLimits) -> Arc<Self> {
        Self::with_environment(source, recorder, limits, Environment::default())
    }

    /// Creates a fan-out with the given clock and random seeds.
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
            names: ClientQuotas::of_names(&limits),
            nodes: ClientQuotas::of_nodes(&limits),
            streams: Mutex::default(),
            next_connection: AtomicU64::new(1),
            next_entering: AtomicU64::new(1),
            log: LogLimit::of(LINES),
            collectors: Mutex::default(),
            revision: AtomicU64::new(0),
            due: Due::default(),
        })
    }

    /// Permission to log a connect or disconnect now, with the number of lines suppressed before it.
    pub(crate) fn may_log(&self) -> Option<u64> {
        self.log.allow(self.clock.now())
    }

    /// Number of prompt streams with a pending publication.
    pub(crate) fn due(&self) -> &Due {
        &self.due
    }

    pub fn source(&self) -> &Arc<S> {
        &self.source
    }

    /// Applies a new state of the source to the groups that it changes and wakes their streams. Has to be
    /// called after each new state, by a single caller. Returns the concerned clients and types.
    pub fn publish(&self, publication: &Publication) -> Vec<Concerned> {
        let since = self.clock.now().saturating_duration_since(self.started);
        let mut concerned: Vec<Concerned> = Vec::new();
        let marks = {
            let snapshot = self.source.snapshot();
            let fetched = self.prefetch(&publication.changes, &snapshot);
            // No stream may read a group while only some of the groups have this publication.
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
                    // The stream itself compares which of its views changed.
                    note(mark, mark.set_moved(publication.revision, since), Types::ALL);
                }
            }
            // Before a stream may send it: who sees an acknowledgement must not see an older revision here.
            self.revision.store(publication.revision, Ordering::Release);
            marks
        };
        for mark in marks {
            mark.wake();
        }
        concerned
    }

    /// Revision of the newest publication that has marked all of its streams.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Wakes the streams with collections, after a change in the source.
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

    /// Adds a stream to those with collections.
    pub(crate) fn collect(&self, mark: &Arc<Mark>) {
        let mut collectors = self.collectors.lock();
        collectors.retain(|mark| mark.strong_count() > 0);
        collectors.push(Arc::downgrade(mark));
    }

    /// Reads the changed resources before taking a lock, since reading may compute.
    fn prefetch<'a, C>(&self, changes: &'a [Change], snapshot: &impl Snapshot<C>) -> Fetched<'a> {
        let wanted = self.topology.read().wanted(changes);
        let mut fetched = Fetched::with_capacity(wanted.len());
        for wanted in wanted {
            let (_, view, name) = wanted;
            fetched.entry(wanted).or_insert_with(|| snapshot.get(view, name).map(Arc::new));
        }
        fetched
    }

    /// Blocks publications while the guard lives, so that a stream's next responses come from one published
    /// state.
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

    /// Adds a stream to the list of connections; `make` receives its slot.
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

    /// Adds a stream to the group of a subscription and reads the resources of a new group.
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

    /// Adds a stream to the group of a subscription with these names, a batch at a time: publications wait
    /// for a batch and not for all names.
    ///
    /// # Errors
    /// If `account` cannot pay for the names. Then the stream has no membership.
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

    /// Creates a group with many names, a batch at a time, copying resources that `other` already has.
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

    /// Key of an incomplete subscription that no other stream can join.
    fn part_of(&self, subscription: SubscriptionKey) -> SubscriptionKey {
        subscription.entering(self.next_entering.fetch_add(1, Ordering::Relaxed))
    }

    /// Moves a stream to another subscription and releases its old membership. Returns `false` without a
    /// change if that would hold the topology's lock for too long (see [`Topology::resubscribe`]).
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

    /// Moves a stream to another subscription as [`Self::resubscribe`] does, with large lists of names in
    /// batches.
    ///
    /// # Errors
    /// If `account` cannot pay for the names. Then `place` is the membership of a partial subscription, which
    /// the caller still has to release.
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

    /// Gives a stream, whose group has other members, a group of its own, and then releases its old
    /// membership.
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

    /// Releases a stream's membership and the names without other subscribers, a batch at a time.
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

    /// Notifies the source of names without any remaining subscriber.
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

    /// True if some stream subscribes to this resource of the view by name.
    pub fn is_subscribed(&self, view: ViewId, ty: ResourceType, name: &str) -> bool {
        self.topology.read().is_subscribed(view, ty, name)
    }

    /// Number of open streams.
    pub fn stream_count(&self) -> usize {
        self.streams.lock().len()
    }

    /// Number of distinct subscriptions.
    pub fn group_count(&self) -> usize {
        self.topology.read().group_count()
    }

    /// Number of view parts that are kept for wildcard subscriptions.
    pub fn part_count(&self) -> usize {
        self.topology.read().whole_counts().0
    }

    /// Number of part compositions that are kept: one for each view, and the common tails that several views
    /// share.
    pub fn whole_count(&self) -> usize {
        self.topology.read().whole_counts().1
    }

    /// Estimated memory of all subscribed names, in bytes.
    pub fn subscription_bytes(&self) -> usize {
        self.names.used()
    }

    /// Estimated memory of the nodes of all streams, in bytes.
    pub fn node_bytes(&self) -> usize {
        self.nodes.used()
    }

    /// Status of all connected clients, sorted by connection id, for debug pages. Locks each stream in turn
    /// to read a few numbers; the cost of a client does not grow with its subscriptions.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let mut all: Vec<_> = self.listed(|_| true).iter().filter_map(|stream| stream.report()).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Acknowledgement progress of all connected clients. Locks each stream in turn to read a few numbers.
    pub fn progress(&self) -> Vec<Progress> {
        self.listed(|_| true).iter().filter_map(|stream| stream.progress()).collect()
    }

    /// Acknowledgement progress of those of the given clients that are connected. `clients` has to be sorted.
    /// Does not lock other streams.
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

    /// Ends the streams of peers whose credentials are no longer valid, so that they authenticate again.
    /// Returns the number of streams.
    pub fn revoke(&self, is_meant: impl Fn(&PeerInfo) -> bool) -> usize {
        self.listed(|_| true).iter().filter(|stream| stream.revoke(&is_meant)).count()
    }

    /// All connected clients, and a revision that their statuses include.
    pub fn acknowledgements(&self) -> (u64, Vec<ConnectionStatus>) {
        // Read before the streams: a later publication has then marked those that it concerns.
        let revision = self.revision();
        (revision, self.connections())
    }
}

/// Copies resources from another group into a new one. The topology has to be locked for writing.
fn take_over(place: &Membership, other: Option<&Group>) {
    if let Some(other) = other.filter(|_| place.is_alone()) {
        place.group.take_over(other);
    }
}

#[cfg(test)]
mod tests;
