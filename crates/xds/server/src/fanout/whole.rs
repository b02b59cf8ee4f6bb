//! Views as wholes: all resources that clients with a wildcard subscription see of a type.
//!
//! A view is made of parts ([`crate::Snapshot::parts`]). Each part is read from the source once, even if
//! several views contain it. A [`Whole`] is a part over the whole of the parts behind it, so that views with
//! the same last parts share those:
//!
//! ```text
//!   groups of proxy 1 ──▶ Whole (own 1) ─┐
//!   groups of proxy 2 ──▶ Whole (own 2) ─┴▶ Whole (selective) ──▶ Whole (shared)
//! ```
//!
//! A part or whole lives as long as some group needs it.

use crate::resources::{Changed, Layer, Map, Own};
use crate::source::{Resource, Snapshot, ViewId};
use parking_lot::Mutex;
use pilotfish_proto::ResourceType;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A part of views: its resources, once they are read from the source.
#[derive(Debug)]
pub(crate) struct Part {
    view: ViewId,
    state: Mutex<PartState>,
    /// Held while the part is read, so that one stream reads for all.
    filling: Mutex<()>,
}

#[derive(Debug, Default)]
struct PartState {
    /// `None` until they are read.
    own: Option<Arc<Own>>,
    /// Revision of the snapshot from which they were read.
    read_at: u64,
    /// Revision of the newest publication or snapshot in `own`.
    revision: u64,
    /// Minimum revision of a snapshot to read from.
    min_revision: u64,
}

/// Changes of one part, by name; `None` is a removal.
type Changes<'a> = Vec<(&'a Arc<str>, Option<&'a Arc<Resource>>)>;

impl Part {
    fn new(view: ViewId) -> Self {
        Self { view, state: Mutex::default(), filling: Mutex::new(()) }
    }

    fn own(&self) -> Option<Arc<Own>> {
        self.state.lock().own.clone()
    }

    /// Reads the part unless it has been read; `install` runs the given function while no publication is in
    /// progress.
    fn fill<S: Snapshot<C>, C>(&self, snapshot: &impl Fn() -> S, install: &impl Fn(&mut dyn FnMut(u64))) {
        if self.own().is_some() {
            return;
        }
        let _one = self.filling.lock();
        while self.own().is_none() {
            let Some((revision, own)) = self.read(&snapshot()) else { continue };
            let own = Arc::new(own);
            install(&mut |_| {
                let mut state = self.state.lock();
                // The read may miss a publication that came in between; then it is repeated.
                if revision >= state.min_revision {
                    state.own = Some(Arc::clone(&own));
                    state.read_at = revision;
                    state.revision = revision;
                }
            });
        }
    }

    /// Reads all resources; `None` if they are not computed yet.
    fn read<C>(&self, snapshot: &impl Snapshot<C>) -> Option<(u64, Own)> {
        if !snapshot.prepare(self.view) {
            return None;
        }
        let names = snapshot.names(self.view);
        let resources = names.iter().filter_map(|name| snapshot.get(self.view, name));
        let map: Map = resources.map(|resource| (Arc::clone(&resource.name), Arc::new(resource))).collect();
        Some((snapshot.revision(), Own::new(map)))
    }

    /// Applies the changes of one publication. Returns the names that differ.
    fn publish(&self, revision: u64, changes: &Changes<'_>) -> Vec<Arc<str>> {
        let mut state = self.state.lock();
        let Some(own) = &state.own else {
            state.min_revision = state.min_revision.max(revision);
            return Vec::new();
        };
        if state.revision > revision {
            return Vec::new();
        }
        let (own, names) = own.with(changes);
        if !names.is_empty() {
            state.own = Some(Arc::new(own));
        }
        state.revision = revision;
        names
    }
}

/// A part over the whole of the parts behind it.
#[derive(Debug)]
pub(crate) struct Whole {
    id: u64,
    key: Key,
    /// Number of parts behind it.
    depth: usize,
    part: Arc<Part>,
    under: Option<Arc<Self>>,
    /// Newest state; `None` until all parts are read.
    layer: Mutex<Option<Arc<Layer>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    ty: ResourceType,
    part: ViewId,
    /// Id of the whole of the parts behind it.
    under: Option<u64>,
}

impl Whole {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Reads the unread parts, starting with the last one, which most other wholes need as well.
    pub(crate) fn fill<S: Snapshot<C>, C>(
        &self,
        snapshot: &impl Fn() -> S,
        install: &impl Fn(&mut dyn FnMut(u64)),
    ) {
        if let Some(under) = &self.under {
            under.fill(snapshot, install);
        }
        self.part.fill(snapshot, install);
    }

    /// Newest state, built from the parts if necessary; `None` while one is unread. No publication may be in
    /// progress.
    pub(crate) fn layer(&self) -> Option<Arc<Layer>> {
        if let Some(layer) = &*self.layer.lock() {
            return Some(Arc::clone(layer));
        }
        let under = match &self.under {
            Some(under) => Some(under.layer()?),
            None => None,
        };
        let own = self.part.own()?;
        let mut layer = self.layer.lock();
        Some(Arc::clone(layer.get_or_insert_with(|| Arc::new(Layer::new(own, under)))))
    }

    /// True if all parts, which have been read, are of one state: that of the newest publication, or a later
    /// one from which all were read.
    pub(crate) fn is_of_one_state(&self, published: u64) -> bool {
        let wholes = std::iter::successors(Some(self), |whole| whole.under.as_deref());
        let read_at: Vec<u64> = wholes.map(|whole| whole.part.state.lock().read_at).collect();
        let newest = read_at.iter().copied().max().unwrap_or_default();
        newest <= published || read_at.iter().all(|revision| *revision == newest)
    }

    /// Follows a publication that changed its part, or the whole under it, or both. `None` without a state.
    fn publish(&self, changed: &Changed) -> Option<(Arc<Layer>, Changed)> {
        let mut layer = self.layer.lock();
        let old = layer.as_ref()?;
        let under = self.under.as_ref().and_then(|under| under.layer.lock().clone());
        let (new, names) = old.next(self.part.own()?, under, changed);
        let new = Arc::new(new);
        *layer = Some(Arc::clone(&new));
        Some((new, names))
    }
}

/// All parts and wholes that some group needs.
#[derive(Debug, Default)]
pub(crate) struct Wholes {
    /// Parts with the wholes that they are the first part of.
    parts: HashMap<(ResourceType, ViewId), (Arc<Part>, Vec<u64>)>,
    ids: HashMap<Key, u64>,
    places: HashMap<u64, Place>,
    next: u64,
}

/// A whole, and its users.
#[derive(Debug)]
struct Place {
    whole: Arc<Whole>,
    /// Ids of the wholes that are built over this one.
    over: Vec<u64>,
    /// True if some group has it.
    is_followed: bool,
}

/// New state of a whole that some group has, by a publication.
pub(crate) struct NewState {
    /// Id of the whole.
    pub(crate) whole: u64,
    pub(crate) layer: Arc<Layer>,
    /// True if the layer differs from the previous one.
    pub(crate) differs: bool,
}

impl Wholes {
    pub(crate) fn part_count(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// True if some group follows the part.
    pub(crate) fn has_part(&self, ty: ResourceType, part: ViewId) -> bool {
        self.parts.contains_key(&(ty, part))
    }

    /// Returns the whole of these parts; `None` without parts. The caller calls [`Self::follow`] for it.
    pub(crate) fn of(&mut self, ty: ResourceType, parts: &[ViewId]) -> Option<Arc<Whole>> {
        parts.iter().rev().fold(None, |under, part| Some(self.intern(ty, *part, under)))
    }

    fn intern(&mut self, ty: ResourceType, part: ViewId, under: Option<Arc<Whole>>) -> Arc<Whole> {
        let key = Key { ty, part, under: under.as_ref().map(|under| under.id) };
        if let Some(place) = self.ids.get(&key).and_then(|id| self.places.get(id)) {
            return Arc::clone(&place.whole);
        }
        let id = self.next;
        self.next += 1;
        let (part, wholes) =
            self.parts.entry((ty, part)).or_insert_with(|| (Arc::new(Part::new(part)), Vec::new()));
        wholes.push(id);
        if let Some(place) = under.as_ref().and_then(|under| self.places.get_mut(&under.id)) {
            place.over.push(id);
        }
        let depth = under.as_ref().map_or(0, |under| under.depth + 1);
        let whole =
            Arc::new(Whole { id, key, depth, part: Arc::clone(part), under, layer: Mutex::default() });
        self.ids.insert(key, id);
        let place = Place { whole: Arc::clone(&whole), over: Vec::new(), is_followed: false };
        self.places.insert(id, place);
        whole
    }

    /// Keeps a whole, which a group has now.
    pub(crate) fn follow(&mut self, whole: &Whole) {
        if let Some(place) = self.places.get_mut(&whole.id) {
            place.is_followed = true;
        }
    }

    /// Drops a whole that no group has any more, and those under it that nothing else needs.
    pub(crate) fn unfollow(&mut self, whole: &Arc<Whole>) {
        if let Some(place) = self.places.get_mut(&whole.id) {
            place.is_followed = false;
        }
        let mut next = Some(whole);
        while let Some(whole) = next {
            let is_needed = |place: &Place| place.is_followed || !place.over.is_empty();
            if self.places.get(&whole.id).is_none_or(is_needed) {
                return;
            }
            self.places.remove(&whole.id);
            self.ids.remove(&whole.key);
            let at = (whole.key.ty, whole.key.part);
            if let Some((_, wholes)) = self.parts.get_mut(&at) {
                remove(wholes, whole.id);
                if wholes.is_empty() {
                    self.parts.remove(&at);
                }
            }
            if let Some(place) = whole.under.as_ref().and_then(|under| self.places.get_mut(&under.id)) {
                remove(&mut place.over, whole.id);
            }
            next = whole.under.as_ref();
        }
    }

    /// Applies the part changes of one publication: to each part once, then to its wholes from the lowest up.
    /// Returns the new states of wholes that groups have.
    pub(crate) fn publish(
        &self,
        revision: u64,
        changes: &HashMap<(ResourceType, ViewId), Changes<'_>>,
    ) -> Vec<NewState> {
        let mut dirty: BTreeMap<(usize, u64), Changed> = BTreeMap::new();
        let mut all = Vec::new();
        for (at, changes) in changes {
            let Some((part, wholes)) = self.parts.get(at) else { continue };
            let names: Changed = part.publish(revision, changes).into();
            for id in wholes.iter().filter(|_| !names.is_empty()) {
                let depth = self.places.get(id).map_or(0, |place| place.whole.depth);
                add(&mut dirty, (depth, *id), &names);
            }
        }
        while let Some(((depth, id), changed)) = dirty.pop_first() {
            let Some(place) = self.places.get(&id) else { continue };
            let Some((layer, changed)) = place.whole.publish(&changed) else { continue };
            let differs = !changed.is_empty();
            if place.is_followed {
                all.push(NewState { whole: id, layer, differs });
            }
            for over in &place.over {
                add(&mut dirty, (depth + 1, *over), &changed);
            }
        }
        all
    }
}

/// Adds names to those that changed in the part of a whole or under it.
fn add(dirty: &mut BTreeMap<(usize, u64), Changed>, at: (usize, u64), names: &Changed) {
    let all = dirty.entry(at).or_default();
    if all.is_empty() {
        *all = Arc::clone(names);
    } else if !names.is_empty() {
        let mut both: Vec<Arc<str>> = all.iter().chain(names.iter()).cloned().collect();
        both.sort_unstable();
        both.dedup();
        *all = both.into();
    }
}

/// Removes a number from a sorted list.
fn remove(ids: &mut Vec<u64>, id: u64) {
    if let Ok(at) = ids.binary_search(&id) {
        ids.remove(at);
    }
    if ids.capacity() > 64 && ids.capacity() > 4 * ids.len() {
        ids.shrink_to(2 * ids.len());
    }
}
