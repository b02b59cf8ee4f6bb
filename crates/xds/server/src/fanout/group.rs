//! A group: one type, one view, one subscription, shared by every stream that has exactly that subscription.

use super::whole::Whole;
use crate::mark::Mark;
use crate::resources::{Contents, EncodedResponse, Entries, Layer, NameSet, Nonces, Step, entry_hash};
use crate::source::{Resource, Snapshot, ViewId};
use parking_lot::{Mutex, MutexGuard};
use pilotfish_proto::ResourceType;
use slab::Slab;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub(crate) ty: ResourceType,
    pub(crate) view: ViewId,
    pub(crate) subscription: SubscriptionKey,
}

/// Hash of a subscription: the sum of the hashes of its names, so that additions and removals update it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SubscriptionKey {
    pub(crate) wildcard: bool,
    sum: u128,
    pub(crate) count: usize,
    /// The length of all names together.
    pub(crate) bytes: usize,
    /// Unique number while names are entered in batches, so that no stream joins an incomplete subscription;
    /// zero otherwise.
    entering: u64,
}

impl SubscriptionKey {
    /// A subscription without names.
    pub(crate) fn new(wildcard: bool) -> Self {
        Self { wildcard, ..Self::default() }
    }

    /// Key of an incomplete subscription whose names are still being entered; `number` makes it unique.
    pub(crate) fn entering(self, number: u64) -> Self {
        Self { entering: number, ..self }
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

/// Newest resources of one subscription, and the marks of the streams that have it.
#[derive(Debug)]
pub(crate) struct Group {
    /// Ascending in the order of creation.
    pub(crate) id: u64,
    pub(crate) ty: ResourceType,
    /// Parts of the view.
    pub(crate) parts: Arc<[ViewId]>,
    /// Copy of [`GroupState::seq`], readable without the lock.
    seq: AtomicU64,
    state: Mutex<GroupState>,
    /// Held while resources are read from the source, so that one stream reads for all.
    filling: Mutex<()>,
    members: Mutex<Slab<Arc<Mark>>>,
}

#[derive(Debug, Default)]
pub(crate) struct GroupState {
    pub(crate) names: NameSet,
    pub(crate) wildcard: bool,
    /// Resources of the wildcard; `None` without a wildcard, and for a view without parts.
    whole: Option<Arc<Whole>>,
    /// Resources that are subscribed to by name, over the layers of the whole.
    pub(crate) entries: Entries,
    /// Sum of the hashes of resources that are subscribed to by name.
    named: u64,
    /// Hash of `entries`: the version of the set.
    pub(crate) version: u64,
    seq: u64,
    /// Names in `entries` that no part has yet.
    between: Vec<Arc<str>>,
    /// Names and parts that still have to be read from the source.
    pending: Pending,
    /// Minimum revision of a snapshot for reading the pending part.
    min_revision: u64,
    /// Revision of the newest publication or snapshot of resources that are subscribed to by name.
    revision: u64,
    responses: Vec<(Baseline, Cached)>,
}

/// State of a group that is used without its lock. Shares all data with the group.
#[derive(Clone, Debug)]
pub(crate) struct GroupView {
    pub(crate) seq: u64,
    pub(crate) version: u64,
    pub(crate) entries: Entries,
    names: NameSet,
    wildcard: bool,
}

/// Part of a subscription that has not been read from the source.
#[derive(Clone, Debug, Default)]
struct Pending {
    wildcard: bool,
    names: Vec<Arc<str>>,
}

/// Maximum number of names that are read from one snapshot. Fewer are read when the next state waits for the
/// snapshot.
const NAMES_AT_A_TIME: usize = 256;

impl Pending {
    fn is_empty(&self) -> bool {
        !self.wildcard && self.names.is_empty()
    }

    /// Names to read next.
    fn next(&self) -> Vec<Arc<str>> {
        let start = self.names.len().saturating_sub(NAMES_AT_A_TIME);
        self.names.get(start..).unwrap_or_default().to_vec()
    }

    /// Removes the names that were read. Returns false if they are no longer the next.
    fn finish(&mut self, names: &[Arc<str>]) -> bool {
        let is_next = self.names.ends_with(names);
        if is_next {
            self.names.truncate(self.names.len() - names.len());
        }
        is_next
    }
}

/// State of a client's resources before a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// Delta: no resources. The response also lists requested resources that do not exist.
    DeltaAll,
    /// Delta: the state of the group with that number.
    Delta(u64),
    /// State of the world: the response has all resources.
    SotwAll,
    /// State of the world, for types of which a response may have a part: the state of the group with that
    /// number.
    Sotw(u64),
}

/// Maximum length of responses that are kept until the group changes. Longer ones, and those of a group with
/// one member, are kept only while a stream waits for their ACK.
const KEPT_RESPONSE: usize = 16 << 10;

#[derive(Debug)]
enum Cached {
    Strong(Arc<EncodedResponse>),
    Weak(std::sync::Weak<EncodedResponse>),
}

impl Group {
    /// Creates a group whose whole subscription is pending.
    pub(crate) fn new(
        id: u64,
        key: &GroupKey,
        parts: Arc<[ViewId]>,
        whole: Option<Arc<Whole>>,
        names: NameSet,
    ) -> Self {
        let wildcard = key.subscription.wildcard;
        let pending = Pending { wildcard, names: names.iter().cloned().collect() };
        let state = GroupState { names, wildcard, whole, pending, ..GroupState::default() };
        Self::with_state(id, key.ty, parts, state)
    }

    fn with_state(id: u64, ty: ResourceType, parts: Arc<[ViewId]>, state: GroupState) -> Self {
        Self {
            id,
            ty,
            parts,
            seq: AtomicU64::new(state.seq),
            state: Mutex::new(state),
            filling: Mutex::new(()),
            members: Mutex::default(),
        }
    }

    /// Creates a group for this subscription with names added and removed, keeping the resources that both
    /// have; `whole` is that of a wildcard.
    pub(crate) fn derive(
        &self,
        id: u64,
        (added, removed): (&[Arc<str>], &[&str]),
        wildcard: bool,
        whole: Option<Arc<Whole>>,
    ) -> Self {
        let old = self.state.lock();
        let mut state = GroupState {
            names: old.names.clone(),
            wildcard: old.wildcard,
            entries: old.entries.clone(),
            named: old.named,
            between: old.between.clone(),
            pending: old.pending.clone(),
            min_revision: old.min_revision,
            revision: old.revision,
            ..GroupState::default()
        };
        state.change_names(added, removed, wildcard, whole);
        Self::with_state(id, self.ty, Arc::clone(&self.parts), state)
    }

    /// Changes the subscription in place, for a group with one member.
    pub(crate) fn amend(
        &self,
        added: &[Arc<str>],
        removed: &[&str],
        wildcard: bool,
        whole: Option<Arc<Whole>>,
    ) {
        let mut state = self.state.lock();
        state.change_names(added, removed, wildcard, whole);
        self.advance(&mut state);
    }

    /// Number of the state of `entries`; equal numbers mean equal contents.
    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock()
    }

    /// Current state, and the response from a baseline to it if some stream was sent that.
    pub(crate) fn view(&self, baseline: Option<Baseline>) -> (GroupView, Option<Arc<EncodedResponse>>) {
        let state = self.state.lock();
        let view = GroupView {
            seq: state.seq,
            version: state.version,
            entries: state.entries.clone(),
            names: state.names.clone(),
            wildcard: state.wildcard,
        };
        (view, baseline.and_then(|baseline| state.cached(baseline)))
    }

    /// Response from a baseline to a state. It is encoded without the lock, and kept for others if the group
    /// still has that state; of two that are encoded at the same time, one is kept. `sent` are the resources
    /// of a stream with the baseline, and `alone` is true if there is no other stream.
    pub(crate) fn response(
        &self,
        view: &GroupView,
        baseline: Baseline,
        sent: &Entries,
        alone: bool,
        nonces: &Nonces,
    ) -> Arc<EncodedResponse> {
        let response = Arc::new(view.build(self.ty, baseline, sent, nonces.next()));
        let mut state = self.state.lock();
        if state.seq != view.seq {
            return response;
        }
        state.cached(baseline).unwrap_or_else(|| {
            state.keep(baseline, &response, alone);
            response
        })
    }

    /// Copies pending resources that another group has. No publication may be in progress.
    pub(crate) fn take_over(&self, other: &Self) {
        let (known, revision, min_revision) = {
            let other = other.state.lock();
            (other.entries.clone(), other.revision, other.min_revision)
        };
        let mut state = self.state.lock();
        for name in std::mem::take(&mut state.pending.names) {
            match known.get(&name) {
                Some(resource) => drop(state.set(&name, Some(resource))),
                None => state.pending.names.push(name),
            }
        }
        state.revision = state.revision.max(revision);
        state.min_revision = state.min_revision.max(min_revision);
        self.advance(&mut state);
    }

    fn advance(&self, state: &mut GroupState) {
        state.seq += 1;
        state.version = state.entries.version(state.named);
        state.responses.clear();
        self.seq.store(state.seq, Ordering::Release);
    }

    /// Reads pending names, a batch at a time, and pending parts. `install` has to run the given function
    /// while no publication is in progress, with the revision of the newest one.
    pub(crate) fn fill<S: Snapshot<C>, C>(
        &self,
        view: ViewId,
        snapshot: impl Fn() -> S,
        install: impl Fn(&mut dyn FnMut(u64)),
    ) {
        if self.state.lock().pending.is_empty() {
            return;
        }
        let _one = self.filling.lock();
        self.fill_wildcard(view, &snapshot, &install);
        loop {
            let names = self.state.lock().pending.next();
            if names.is_empty() {
                return;
            }
            let (revision, names, found) = read_names(names, view, &snapshot());
            install(&mut |_| {
                let mut state = self.state.lock();
                // The read may miss a publication that came in between; then it is repeated.
                if revision >= state.min_revision && state.pending.finish(&names) {
                    let empty = state.entries.own().is_empty();
                    for resource in &found {
                        state.set(&resource.name, Some(resource));
                    }
                    state.revision = if empty { revision } else { state.revision };
                    self.advance(&mut state);
                }
            });
        }
    }

    /// Reads the parts that have not been read, and takes over their resources.
    ///
    /// The source may be ahead of what was published, and some parts were read before and others only now. A
    /// resource that moves from one part to another would be in none of them until the publication comes, and
    /// would be sent as removed. So resources that the parts lack are read from the view.
    fn fill_wildcard<S: Snapshot<C>, C>(
        &self,
        view: ViewId,
        snapshot: &impl Fn() -> S,
        install: &impl Fn(&mut dyn FnMut(u64)),
    ) {
        let whole = {
            let state = self.state.lock();
            if !state.pending.wildcard {
                return;
            }
            state.whole.clone()
        };
        let Some(whole) = whole else {
            let mut state = self.state.lock();
            state.pending.wildcard = false;
            self.advance(&mut state);
            return;
        };
        whole.fill(snapshot, install);
        // Revision of the newest publication when `lacking` was read.
        let mut read: Option<(u64, Vec<Arc<Resource>>)> = None;
        loop {
            let mut apart: Option<(u64, Arc<Layer>)> = None;
            install(&mut |published| {
                let Some(layer) = whole.layer() else { return };
                let lacking = match &read {
                    _ if whole.is_of_one_state(published) => &[][..],
                    Some((since, lacking)) if *since == published => lacking,
                    _ => return apart = Some((published, layer)),
                };
                self.attach(layer, lacking);
            });
            let Some((published, layer)) = apart else { return };
            read = read_lacking(view, &layer, &snapshot()).map(|lacking| (published, lacking));
        }
    }

    /// Takes over the state of the whole, and the resources that it lacks.
    fn attach(&self, layer: Arc<Layer>, lacking: &[Arc<Resource>]) {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.pending.wildcard) {
            return;
        }
        for resource in
            lacking.iter().filter(|resource| !state.names.contains(&resource.name)).collect::<Vec<_>>()
        {
            state.set(&resource.name, Some(resource));
            state.between.push(Arc::clone(&resource.name));
        }
        state.entries.set_under(Some(layer));
        self.advance(&mut state);
    }

    /// Applies one publication: the new state of the whole, and resources that are subscribed to by name.
    /// Returns true if a resource differs now.
    pub(crate) fn publish(&self, revision: u64, publication: &Affected<'_>) -> bool {
        let mut state = self.state.lock();
        let mut changed = false;
        // A pending wildcard takes the newest state once it is filled.
        if let Some((layer, differs)) = &publication.layer
            && state.entries.under().is_some()
        {
            state.entries.set_under(Some(Arc::clone(layer)));
            changed |= *differs;
            state.drop_between(|name| layer.get(name).is_some());
        }
        if !publication.names.is_empty() && state.revision <= revision {
            if !state.pending.names.is_empty() {
                state.min_revision = state.min_revision.max(revision);
            }
            for (name, resource) in &publication.names {
                changed |= state.set(name, *resource);
            }
            state.revision = revision;
        }
        if changed {
            self.advance(&mut state);
        }
        changed
    }

    pub(crate) fn join(&self, mark: &Arc<Mark>) -> usize {
        self.members.lock().insert(Arc::clone(mark))
    }

    /// Removes a member. Returns true if the group is empty now.
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

/// Changes of a group by one publication.
#[derive(Debug, Default)]
pub(crate) struct Affected<'a> {
    /// The new state of its whole, and whether that differs.
    pub(crate) layer: Option<(Arc<Layer>, bool)>,
    /// Resources that are subscribed to by name; `None` for one that does not exist.
    pub(crate) names: Vec<(&'a Arc<str>, Option<&'a Arc<Resource>>)>,
}

/// Reads resources that a view has and the layer lacks; `None` if the view is not computed yet.
fn read_lacking<C>(view: ViewId, layer: &Layer, snapshot: &impl Snapshot<C>) -> Option<Vec<Arc<Resource>>> {
    if !snapshot.prepare(view) {
        return None;
    }
    let names = snapshot.names(view);
    let lacking = names.iter().filter(|name| layer.get(name).is_none());
    Some(lacking.filter_map(|name| snapshot.get(view, name)).map(Arc::new).collect())
}

/// Reads resources by name: all, or at least one if the next state waits for the snapshot. Starts at the end,
/// where names are removed.
fn read_names<C>(
    mut names: Vec<Arc<str>>,
    view: ViewId,
    snapshot: &impl Snapshot<C>,
) -> (u64, Vec<Arc<str>>, Vec<Arc<Resource>>) {
    let mut found = Vec::new();
    if view != ViewId::NONE {
        snapshot.prepare_names(view, &names);
        let mut unread = names.len();
        while let Some(name) = unread.checked_sub(1).and_then(|last| names.get(last)) {
            // Shares the text of the name.
            let shared = |resource: Resource| Resource { name: Arc::clone(name), ..resource };
            found.extend(snapshot.get(view, name).map(shared).map(Arc::new));
            unread -= 1;
            if snapshot.is_waited_for() {
                break;
            }
        }
        names.drain(..unread);
    }
    (snapshot.revision(), names, found)
}

impl GroupState {
    fn change_names(
        &mut self,
        added: &[Arc<str>],
        removed: &[&str],
        wildcard: bool,
        whole: Option<Arc<Whole>>,
    ) {
        if wildcard && !self.wildcard {
            self.pending.wildcard = true;
        }
        for name in removed {
            self.names.remove(*name);
            self.set(name, None);
        }
        if !self.pending.names.is_empty() && !removed.is_empty() {
            let names = &self.names;
            self.pending.names.retain(|pending| names.contains(pending));
        }
        for name in added {
            self.names.insert(Arc::clone(name));
            match self.entries.get(name).cloned() {
                Some(known) => drop(self.set(name, Some(&known))),
                None => self.pending.names.push(Arc::clone(name)),
            }
        }
        if !wildcard {
            self.drop_between(|_| true);
            // Resources that only the wildcard subscribed to are removed.
            self.entries.set_under(None);
            self.pending.wildcard = false;
        }
        self.wildcard = wildcard;
        self.whole = whole;
        self.version = self.entries.version(self.named);
    }

    /// Removes resources that were in no part and are in one now, unless they are subscribed to by name.
    fn drop_between(&mut self, is_there: impl Fn(&str) -> bool) {
        if self.between.is_empty() {
            return;
        }
        let (there, between): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.between).into_iter().partition(|name| is_there(name));
        self.between = between;
        for name in there.iter().filter(|name| !self.names.contains(*name)).collect::<Vec<_>>() {
            self.set(name, None);
        }
    }

    pub(crate) fn whole(&self) -> Option<&Arc<Whole>> {
        self.whole.as_ref()
    }

    /// Sets or removes a resource that is subscribed to by name; returns true on a change. The caller updates
    /// the version of the set.
    fn set(&mut self, name: &str, resource: Option<&Arc<Resource>>) -> bool {
        let own = self.entries.own_mut();
        let old = own.get(name);
        if old.map(|old| old.version) == resource.map(|new| new.version) {
            return false;
        }
        if let Some(old) = old {
            self.named = self.named.wrapping_sub(entry_hash(old));
        }
        if let Some(new) = resource {
            self.named = self.named.wrapping_add(entry_hash(new));
            own.insert(Arc::clone(&new.name), Arc::clone(new));
        } else {
            own.remove(name);
        }
        true
    }

    fn cached(&self, baseline: Baseline) -> Option<Arc<EncodedResponse>> {
        let (_, cached) = self.responses.iter().find(|(key, _)| *key == baseline)?;
        match cached {
            Cached::Strong(response) => Some(Arc::clone(response)),
            Cached::Weak(response) => response.upgrade(),
        }
    }

    /// Keeps a response for streams in step.
    fn keep(&mut self, baseline: Baseline, response: &Arc<EncodedResponse>, alone: bool) {
        self.responses.retain(|(key, _)| *key != baseline);
        let is_kept = response.frame.len() <= KEPT_RESPONSE && !alone;
        let cached = if is_kept {
            Cached::Strong(Arc::clone(response))
        } else {
            Cached::Weak(Arc::downgrade(response))
        };
        self.responses.push((baseline, cached));
    }
}

impl GroupView {
    /// Subscribed names without a resource.
    pub(crate) fn absent(&self) -> Vec<Arc<str>> {
        if self.names.len() <= self.entries.len() && !self.wildcard {
            return Vec::new();
        }
        self.names.iter().filter(|name| !self.entries.contains_key(name)).cloned().collect()
    }

    pub(crate) fn build(
        &self,
        ty: ResourceType,
        baseline: Baseline,
        sent: &Entries,
        nonce: u64,
    ) -> EncodedResponse {
        match baseline {
            Baseline::DeltaAll => {
                let mut contents = Entries::new().difference(&self.entries);
                contents.removed = self.absent();
                // A client without resources accepts absent endpoints as removed from every server; absent
                // routes keep their stand-ins.
                contents.tell_absent(|_| ty == ResourceType::Endpoint);
                let shared = self.entries.chunks().unwrap_or_default();
                EncodedResponse::delta_over(ty, self.version, contents, nonce, shared)
            }
            Baseline::Delta(_) => match sent.step_to(&self.entries) {
                Some(Step { upserts, shared }) => {
                    let contents = Contents { upserts, removed: Vec::new() };
                    EncodedResponse::delta_over(ty, self.version, contents, nonce, shared)
                }
                None => {
                    let contents = sent.difference(&self.entries);
                    EncodedResponse::delta(ty, self.version, contents, nonce)
                }
            },
            Baseline::SotwAll => {
                let contents = Entries::new().difference(&self.entries);
                EncodedResponse::sotw(ty, self.version, contents, nonce)
            }
            Baseline::Sotw(_) => {
                EncodedResponse::sotw(ty, self.version, sent.difference(&self.entries), nonce)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::ResourceType::Endpoint;

    #[test]
    fn a_response_is_kept_for_others_as_long_as_the_group_has_its_state() {
        let key = GroupKey { ty: Endpoint, view: ViewId(1), subscription: SubscriptionKey::new(false) };
        let group = Group::new(1, &key, Arc::from([ViewId(1)]), None, NameSet::new());
        let (nonces, nothing) = (Nonces::new(1), Entries::new());
        let make = |view: &GroupView| group.response(view, Baseline::DeltaAll, &nothing, false, &nonces);
        let (view, none) = group.view(Some(Baseline::DeltaAll));
        assert!(none.is_none());
        // Two streams make it at once, and one of both is kept.
        let (first, second) = (make(&view), make(&view));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(group.view(Some(Baseline::DeltaAll)).1.is_some_and(|kept| Arc::ptr_eq(&kept, &first)));
        group.amend(&["a".into()], &[], false, None);
        let late = make(&view);
        assert!(!Arc::ptr_eq(&late, &first), "of a state that is over");
        assert!(group.view(Some(Baseline::DeltaAll)).1.is_none(), "what leads to it leads others astray");
    }
}
