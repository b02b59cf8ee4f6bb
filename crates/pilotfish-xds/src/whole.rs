//! Whole views: everything that clients with a wildcard subscription see of a type.
//!
//! A view is made of parts ([`crate::Snapshot::parts`]). Each part is read from the source once, whatever views it is in, and a [`Whole`] is
//! a part over the whole of the parts behind it, so that views which end in the same parts share what those come to:
//!
//! ```text
//!   groups of proxy 1 ──▶ Whole (own 1) ─┐
//!   groups of proxy 2 ──▶ Whole (own 2) ─┴▶ Whole (selective) ──▶ Whole (shared)
//! ```
//!
//! A part or whole is there as long as some group needs it.

use crate::entries::Map;
use crate::group::Group;
use crate::layer::{Changed, Layer, Own};
use crate::source::{Resource, Snapshot, ViewId};
use crate::topology::Groups;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A part of views: its resources, once they are read from the source.
#[derive(Debug)]
pub(crate) struct Part {
    view: ViewId,
    state: Mutex<PartState>,
    /// Held while the part is read, so that one stream does it for all.
    filling: Mutex<()>,
}

#[derive(Debug, Default)]
struct PartState {
    /// `None` until they are read.
    own: Option<Arc<Own>>,
    /// The revision of the snapshot from which they were read.
    read_at: u64,
    /// The revision of the newest publication or snapshot in `own`.
    revision: u64,
    /// The revision below which a snapshot is too old to be read.
    min_revision: u64,
}

/// Changes of one part, by name; `None` is gone.
type Changes<'a> = Vec<(&'a Arc<str>, Option<&'a Arc<Resource>>)>;

impl Part {
    fn new(view: ViewId) -> Self {
        Self { view, state: Mutex::default(), filling: Mutex::new(()) }
    }

    fn own(&self) -> Option<Arc<Own>> {
        self.state.lock().own.clone()
    }

    /// Reads the part, unless that is done; `install` runs the given function while no publication is under way.
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
                // What was read lacks a publication that came in between: it is read again.
                if revision >= state.min_revision {
                    state.own = Some(Arc::clone(&own));
                    state.read_at = revision;
                    state.revision = revision;
                }
            });
        }
    }

    /// `None` when it is not computed yet.
    fn read<C>(&self, snapshot: &impl Snapshot<C>) -> Option<(u64, Own)> {
        if !snapshot.prepare(self.view) {
            return None;
        }
        let names = snapshot.names(self.view);
        let resources = names.iter().filter_map(|name| snapshot.get(self.view, name));
        let map: Map = resources.map(|resource| (Arc::clone(&resource.name), Arc::new(resource))).collect();
        Some((snapshot.revision(), Own::new(map)))
    }

    /// Applies one publication's changes. Returns the names that differ.
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
    /// How many parts are behind it.
    depth: usize,
    part: Arc<Part>,
    under: Option<Arc<Self>>,
    /// The newest state; `None` until all parts are read.
    layer: Mutex<Option<Arc<Layer>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    ty: ResourceType,
    part: ViewId,
    /// The whole of the parts behind it, by its id.
    under: Option<u64>,
}

impl Whole {
    /// Reads the parts that are not read yet, the last one first, as most others need that, too.
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

    /// The newest state, made of the parts if it is not there yet; `None` while one is not read. No publication may be under way.
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

    /// Whether all parts, which are read, are of one state: that of the newest publication, or a later one from which all were read.
    pub(crate) fn is_of_one_state(&self, published: u64) -> bool {
        let wholes = std::iter::successors(Some(self), |whole| whole.under.as_deref());
        let read_at: Vec<u64> = wholes.map(|whole| whole.part.state.lock().read_at).collect();
        let newest = read_at.iter().copied().max().unwrap_or_default();
        newest <= published || read_at.iter().all(|revision| *revision == newest)
    }

    /// Follows a publication that changed its part, or the whole under it, or both. `None` where there is no state yet.
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
    /// Each with the wholes that it is the first part of.
    parts: HashMap<(ResourceType, ViewId), (Arc<Part>, Vec<u64>)>,
    ids: HashMap<Key, u64>,
    places: HashMap<u64, Place>,
    next: u64,
}

/// A whole and who follows it.
#[derive(Debug)]
struct Place {
    whole: Arc<Whole>,
    /// The wholes over it.
    over: Vec<u64>,
    /// `None` while none does.
    groups: Option<Groups>,
}

/// A group that follows a whole which was published.
pub(crate) struct Following<'a> {
    pub(crate) group: &'a Arc<Group>,
    /// The whole's new state.
    pub(crate) layer: Arc<Layer>,
    /// Whether that differs.
    pub(crate) differs: bool,
}

impl Wholes {
    /// How many parts are kept.
    pub(crate) fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// How many wholes are kept.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Whether some group follows a part.
    pub(crate) fn has_part(&self, ty: ResourceType, part: ViewId) -> bool {
        self.parts.contains_key(&(ty, part))
    }

    /// The whole of these parts; `None` of none. It has to be followed by a group, with [`Self::join`].
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
        let place = Place { whole: Arc::clone(&whole), over: Vec::new(), groups: None };
        self.places.insert(id, place);
        whole
    }

    /// A group follows a whole from now on.
    pub(crate) fn join(&mut self, whole: &Whole, group: &Arc<Group>) {
        let Some(place) = self.places.get_mut(&whole.id) else { return };
        match &mut place.groups {
            Some(groups) => groups.insert(group),
            none => *none = Some(Groups::One(Arc::clone(group))),
        }
    }

    /// A group follows a whole no longer. What nobody follows is gone.
    pub(crate) fn leave(&mut self, whole: &Arc<Whole>, group: &Group) {
        if let Some(place) = self.places.get_mut(&whole.id)
            && place.groups.as_mut().is_some_and(|groups| groups.remove(group))
        {
            place.groups = None;
        }
        let mut next = Some(whole);
        while let Some(whole) = next {
            let is_followed = |place: &Place| !(place.groups.is_none() && place.over.is_empty());
            if self.places.get(&whole.id).is_none_or(is_followed) {
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

    /// Applies one publication's changes of parts: to each part once, then to the wholes of it from the lowest up. Returns
    /// the groups that follow one of these.
    pub(crate) fn publish(
        &self,
        revision: u64,
        changes: &HashMap<(ResourceType, ViewId), Changes<'_>>,
    ) -> Vec<Following<'_>> {
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
            let groups = place.groups.iter().flat_map(Groups::all);
            all.extend(groups.map(|group| Following { group, layer: Arc::clone(&layer), differs }));
            for over in &place.over {
                add(&mut dirty, (depth + 1, *over), &changed);
            }
        }
        all
    }
}

/// Adds names to those that changed under a whole, or in its part.
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

/// Takes a number out of a list in order.
fn remove(ids: &mut Vec<u64>, id: u64) {
    if let Ok(at) = ids.binary_search(&id) {
        ids.remove(at);
    }
    if ids.capacity() > 64 && ids.capacity() > 4 * ids.len() {
        ids.shrink_to(2 * ids.len());
    }
}
