//! A group: one type, one view, one subscription, shared by every stream that has exactly that subscription.

use crate::entries::{Entries, NameSet, entry_hash};
use crate::mark::Mark;
use crate::response::{Contents, EncodedResponse, Nonces};
use crate::source::{Resource, Snapshot, ViewId};
use parking_lot::{Mutex, MutexGuard};
use pilotfish_proto::ResourceType;
use slab::Slab;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub(crate) ty: ResourceType,
    pub(crate) view: ViewId,
    pub(crate) subscription: SubscriptionKey,
}

/// A subscription by its hash: the sum of the hashes of its names, so that it follows additions and removals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SubscriptionKey {
    pub(crate) wildcard: bool,
    sum: u128,
    pub(crate) count: usize,
    /// The length of all names together.
    pub(crate) bytes: usize,
}

impl SubscriptionKey {
    /// A subscription without names.
    pub(crate) fn new(wildcard: bool) -> Self {
        Self { wildcard, ..Self::default() }
    }

    pub(crate) fn add(&mut self, hasher: NameHasher, name: &str) {
        self.sum = self.sum.wrapping_add(hasher.hash(name));
        self.count += 1;
        self.bytes += name.len();
    }

    pub(crate) fn remove(&mut self, hasher: NameHasher, name: &str) {
        self.sum = self.sum.wrapping_sub(hasher.hash(name));
        self.count -= 1;
        self.bytes -= name.len();
    }
}

/// Hashes names of subscriptions, keyed so that clients cannot make two subscriptions collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHasher {
    seed: u64,
}

impl NameHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// A number from 0 to 1 that clients cannot choose.
    pub(crate) fn part(self, text: &str) -> f64 {
        let bits = u32::try_from(self.hash(text) & 0xffff_ffff).unwrap_or_default();
        f64::from(bits) / f64::from(u32::MAX)
    }

    fn hash(self, name: &str) -> u128 {
        xxhash_rust::xxh3::xxh3_128_with_seed(name.as_bytes(), self.seed)
    }
}

/// The newest resources of one subscription, and the marks of the streams that have it.
#[derive(Debug)]
pub(crate) struct Group {
    /// Counts up with each group, so that the order of groups is that in which they were made.
    pub(crate) id: u64,
    pub(crate) ty: ResourceType,
    /// A copy of [`GroupState::seq`] that is read without the lock.
    seq: AtomicU64,
    state: Mutex<GroupState>,
    /// Held while resources are read from the source, so that one stream does it for all.
    filling: Mutex<()>,
    members: Mutex<Slab<Arc<Mark>>>,
}

/// The part of a group behind its lock.
#[derive(Debug, Default)]
pub(crate) struct GroupState {
    pub(crate) names: NameSet,
    pub(crate) wildcard: bool,
    pub(crate) entries: Entries,
    /// Hash of `entries`: the version of the set.
    pub(crate) version: u64,
    seq: u64,
    /// What still has to be read from the source.
    pending: Pending,
    /// The revision below which a snapshot is too old to fill the pending part from.
    min_revision: u64,
    /// The revision of the newest publication or snapshot in `entries`.
    revision: u64,
    responses: Vec<(Baseline, Cached)>,
}

/// The part of a subscription that is not read from the source yet.
#[derive(Clone, Debug, Default)]
struct Pending {
    wildcard: bool,
    names: Vec<Arc<str>>,
}

/// Most names that are read from one snapshot. Reading may compute: when the next state waits for the snapshot, fewer are read.
const PART: usize = 256;

impl Pending {
    fn is_empty(&self) -> bool {
        !self.wildcard && self.names.is_empty()
    }

    /// What is read next.
    fn part(&self) -> Self {
        if self.wildcard {
            return Self { wildcard: true, names: Vec::new() };
        }
        let start = self.names.len().saturating_sub(PART);
        Self { wildcard: false, names: self.names.get(start..).unwrap_or_default().to_vec() }
    }

    /// Takes off what was read. Returns whether it was still the next.
    fn finish(&mut self, part: &Self) -> bool {
        let is_next = self.wildcard == part.wildcard && self.names.ends_with(&part.names);
        if is_next {
            self.wildcard = false;
            self.names.truncate(self.names.len() - part.names.len());
        }
        is_next
    }
}

/// What a client has before a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// Delta: nothing. The response also names what was requested and does not exist.
    DeltaAll,
    /// Delta: that state of the group.
    Delta(u64),
    /// State of the world: the response has everything, whatever the client has.
    SotwAll,
    /// State of the world, for types of which a part may be sent: that state of the group.
    Sotw(u64),
}

/// Responses up to this length stay until the group changes; longer ones only while some stream waits for their ACK.
const KEPT_RESPONSE: usize = 16 << 10;

#[derive(Debug)]
enum Cached {
    Strong(Arc<EncodedResponse>),
    Weak(std::sync::Weak<EncodedResponse>),
}

impl Group {
    /// A group without resources: all of its subscription is pending.
    pub(crate) fn new(id: u64, key: &GroupKey, names: NameSet) -> Self {
        let wildcard = key.subscription.wildcard;
        let pending = Pending { wildcard, names: names.iter().cloned().collect() };
        Self::with_state(id, key.ty, GroupState { names, wildcard, pending, ..GroupState::default() })
    }

    fn with_state(id: u64, ty: ResourceType, state: GroupState) -> Self {
        Self {
            id,
            ty,
            seq: AtomicU64::new(state.seq),
            state: Mutex::new(state),
            filling: Mutex::new(()),
            members: Mutex::default(),
        }
    }

    /// A group for this one's subscription with names added and removed. It takes over what both have in common.
    pub(crate) fn derive(&self, id: u64, added: &[Arc<str>], removed: &[&str], wildcard: bool) -> Self {
        let old = self.state.lock();
        let mut state = GroupState {
            names: old.names.clone(),
            wildcard: old.wildcard,
            entries: old.entries.clone(),
            version: old.version,
            pending: old.pending.clone(),
            min_revision: old.min_revision,
            revision: old.revision,
            ..GroupState::default()
        };
        state.change_names(added, removed, wildcard);
        Self::with_state(id, self.ty, state)
    }

    /// Changes the subscription in place, for a group that has one member.
    pub(crate) fn amend(&self, added: &[Arc<str>], removed: &[&str], wildcard: bool) {
        let mut state = self.state.lock();
        state.change_names(added, removed, wildcard);
        self.advance(&mut state);
    }

    /// The number of the state of `entries`; equal numbers are equal contents.
    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock()
    }

    fn advance(&self, state: &mut GroupState) {
        state.seq += 1;
        state.responses.clear();
        self.seq.store(state.seq, Ordering::Release);
    }

    /// Reads what is still pending, part by part; `install` runs the given function while no publication is under way.
    pub(crate) fn fill<S: Snapshot<C>, C>(
        &self,
        view: ViewId,
        snapshot: impl Fn() -> S,
        install: impl Fn(&mut dyn FnMut()),
    ) {
        if self.state.lock().pending.is_empty() {
            return;
        }
        let _one = self.filling.lock();
        loop {
            let part = self.state.lock().pending.part();
            if part.is_empty() {
                return;
            }
            let Some((revision, part, found)) = read_part(part, view, &snapshot()) else { continue };
            install(&mut || {
                let mut state = self.state.lock();
                // What was read lacks a publication that came in between: it is read again.
                if revision >= state.min_revision && state.pending.finish(&part) {
                    let empty = state.entries.is_empty();
                    for resource in &found {
                        state.set(&resource.name, Some(resource));
                    }
                    state.revision = if empty { revision } else { state.revision };
                    self.advance(&mut state);
                }
            });
        }
    }

    /// Applies one publication's changes. Returns whether a resource differs now.
    pub(crate) fn publish(&self, revision: u64, changes: &[(&Arc<str>, Option<&Arc<Resource>>)]) -> bool {
        let mut state = self.state.lock();
        if state.revision > revision {
            return false;
        }
        if !state.pending.is_empty() {
            state.min_revision = state.min_revision.max(revision);
        }
        let mut changed = false;
        for (name, resource) in changes {
            changed |= state.set(name, *resource);
        }
        state.revision = revision;
        if changed {
            self.advance(&mut state);
        }
        changed
    }

    pub(crate) fn join(&self, mark: &Arc<Mark>) -> usize {
        self.members.lock().insert(Arc::clone(mark))
    }

    /// Returns whether the group is empty now.
    pub(crate) fn leave(&self, slot: usize) -> bool {
        let mut members = self.members.lock();
        members.try_remove(slot);
        members.is_empty()
    }

    pub(crate) fn member_count(&self) -> usize {
        self.members.lock().len()
    }

    pub(crate) fn each_member(&self, mut f: impl FnMut(&Arc<Mark>)) {
        for (_, mark) in &*self.members.lock() {
            f(mark);
        }
    }
}

/// Reads a part, or as much of it as the next state waits for, and at least one name. `None` when a wildcard is not computed yet.
fn read_part<C>(
    mut part: Pending,
    view: ViewId,
    snapshot: &impl Snapshot<C>,
) -> Option<(u64, Pending, Vec<Arc<Resource>>)> {
    let mut found = Vec::new();
    if view != ViewId::NONE {
        if part.wildcard {
            if !snapshot.prepare(view) {
                return None;
            }
            let names = snapshot.names(view);
            found.extend(names.iter().filter_map(|name| snapshot.get(view, name)).map(Arc::new));
        }
        // From the end, which is what is taken off.
        let mut unread = part.names.len();
        while let Some(name) = unread.checked_sub(1).and_then(|last| part.names.get(last)) {
            // The text of the name is there already.
            let shared = |resource: Resource| Resource { name: Arc::clone(name), ..resource };
            found.extend(snapshot.get(view, name).map(shared).map(Arc::new));
            unread -= 1;
            if snapshot.is_waited_for() {
                break;
            }
        }
        part.names.drain(..unread);
    }
    Some((snapshot.revision(), part, found))
}

impl GroupState {
    fn change_names(&mut self, added: &[Arc<str>], removed: &[&str], wildcard: bool) {
        if wildcard && !self.wildcard {
            self.pending.wildcard = true;
        }
        for name in removed {
            self.names.remove(*name);
        }
        if !self.pending.names.is_empty() && !removed.is_empty() {
            let names = &self.names;
            self.pending.names.retain(|pending| names.contains(pending));
        }
        for name in added {
            self.names.insert(Arc::clone(name));
            if !self.entries.contains_key(name) {
                self.pending.names.push(Arc::clone(name));
            }
        }
        if self.wildcard && !wildcard {
            // Resources that only the wildcard subscribed to are removed.
            let names = &self.names;
            let gone: Vec<_> = self.entries.keys().filter(|name| !names.contains(*name)).cloned().collect();
            for name in gone {
                self.set(&name, None);
            }
            self.pending.wildcard = false;
        } else if !wildcard {
            for name in removed {
                self.set(name, None);
            }
        }
        self.wildcard = wildcard;
    }

    /// Sets or removes an entry; returns whether that changed anything.
    fn set(&mut self, name: &str, resource: Option<&Arc<Resource>>) -> bool {
        let old = self.entries.get(name);
        if old.map(|old| old.version) == resource.map(|new| new.version) {
            return false;
        }
        if let Some(old) = old {
            self.version = self.version.wrapping_sub(entry_hash(old));
        }
        if let Some(new) = resource {
            self.version = self.version.wrapping_add(entry_hash(new));
            self.entries.insert(Arc::clone(&new.name), Arc::clone(new));
        } else {
            self.entries.remove(name);
        }
        true
    }

    /// The subscribed names that do not exist.
    pub(crate) fn absent(&self) -> Vec<Arc<str>> {
        if self.names.len() <= self.entries.len() && !self.wildcard {
            return Vec::new();
        }
        self.names.iter().filter(|name| !self.entries.contains_key(*name)).cloned().collect()
    }

    /// The response that leads from a state to the newest. Streams in step share it. `sent` is what a stream in that state has.
    pub(crate) fn response(
        &mut self,
        ty: ResourceType,
        baseline: Baseline,
        sent: &Entries,
        nonces: &Nonces,
    ) -> Arc<EncodedResponse> {
        let cached =
            self.responses.iter().find(|(key, _)| *key == baseline).and_then(|(_, cached)| match cached {
                Cached::Strong(response) => Some(Arc::clone(response)),
                Cached::Weak(response) => response.upgrade(),
            });
        if let Some(response) = cached {
            return response;
        }
        let response = Arc::new(self.build(ty, baseline, sent, nonces.next()));
        self.responses.retain(|(key, _)| *key != baseline);
        let keep = response.frame.len() <= KEPT_RESPONSE;
        let cached = if keep {
            Cached::Strong(Arc::clone(&response))
        } else {
            Cached::Weak(Arc::downgrade(&response))
        };
        self.responses.push((baseline, cached));
        response
    }

    fn build(&self, ty: ResourceType, baseline: Baseline, sent: &Entries, nonce: u64) -> EncodedResponse {
        match baseline {
            Baseline::DeltaAll => {
                let mut contents = Contents::difference(&Entries::new(), &self.entries);
                contents.removed = self.absent();
                EncodedResponse::delta(ty, self.version, contents, nonce)
            }
            Baseline::Delta(_) => {
                EncodedResponse::delta(ty, self.version, Contents::difference(sent, &self.entries), nonce)
            }
            Baseline::SotwAll => {
                let contents = Contents::difference(&Entries::new(), &self.entries);
                EncodedResponse::sotw(ty, self.version, contents, nonce)
            }
            Baseline::Sotw(_) => {
                EncodedResponse::sotw(ty, self.version, Contents::difference(sent, &self.entries), nonce)
            }
        }
    }
}
