//! Layers: the resources of a view's parts, each over those of the parts behind it.
//!
//! ```text
//!   Entries of a group ──▶ Layer ──────▶ Layer ────────▶ Layer
//!   (subscribed by name)     │ Own         │ Own           │ Own
//!                        client's own   selective   what all clients share
//! ```
//!
//! Layers are immutable: a publication creates a new [`Own`] for each part that it changes, and new layers
//! from there up. A layer takes a few words, independent of the size of those under it, and two states of a
//! client are compared layer by layer.

use super::contents::Contents;
use super::frame::{Chunk, delta_resources};
use super::map::{Map, entry_hash, set_version};
use crate::source::Resource;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Minimum size in bytes of a separate shared chunk; streams copy smaller ones.
const WORTH_SHARING: usize = 16 << 10;

/// Resources of one part in one state.
#[derive(Debug, Default)]
pub(crate) struct Own {
    map: Map,
    /// Sum of the hashes of all entries.
    sum: u64,
    /// Encoded form, while some stream sends it.
    chunk: Mutex<Weak<Chunk>>,
    /// Encoded differences from earlier states, while some stream sends them.
    differences: Mutex<Vec<(Weak<Self>, Weak<Chunk>)>>,
}

impl Own {
    pub(crate) fn new(map: Map) -> Self {
        let sum = set_version(map.values());
        Self { map, sum, ..Self::default() }
    }

    pub(crate) fn map(&self) -> &Map {
        &self.map
    }

    /// Applies changes, where `None` removes a resource. Returns the new state and the names that differ.
    pub(crate) fn with(&self, changes: &[(&Arc<str>, Option<&Arc<Resource>>)]) -> (Self, Vec<Arc<str>>) {
        let (mut map, mut sum) = (self.map.clone(), self.sum);
        for (name, resource) in changes {
            let old = match resource {
                Some(new) if map.get(*name).is_some_and(|old| old.version == new.version) => continue,
                Some(new) => {
                    sum = sum.wrapping_add(entry_hash(new));
                    map.insert(Arc::clone(&new.name), Arc::clone(new))
                }
                None => map.remove(*name),
            };
            sum = sum.wrapping_sub(old.map_or(0, |old| entry_hash(&old)));
        }
        let version = |map: &Map, name: &Arc<str>| map.get(name).map(|resource| resource.version);
        let mut names: Vec<Arc<str>> = changes.iter().map(|(name, _)| Arc::clone(name)).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| version(&self.map, name) != version(&map, name));
        (Self { map, sum, ..Self::default() }, names)
    }

    /// All resources in the encoding of a delta response, shared by all streams that send them at the same
    /// time.
    pub(crate) fn chunk(&self) -> Arc<Chunk> {
        let mut cached = self.chunk.lock();
        if let Some(chunk) = cached.upgrade() {
            return chunk;
        }
        let chunk = Arc::new(delta_resources(self.map.values()));
        *cached = Arc::downgrade(&chunk);
        chunk
    }

    /// Encoded form of `upserts`, the resources that differ from the earlier state `old`.
    fn difference(&self, old: &Arc<Self>, upserts: &[Arc<Resource>]) -> Arc<Chunk> {
        let mut cached = self.differences.lock();
        cached.retain(|(_, chunk)| chunk.strong_count() > 0);
        let old = Arc::downgrade(old);
        let known = cached.iter().find(|(from, _)| from.ptr_eq(&old));
        if let Some(chunk) = known.and_then(|(_, chunk)| chunk.upgrade()) {
            return chunk;
        }
        let chunk = Arc::new(delta_resources(upserts.iter()));
        cached.push((old, Arc::downgrade(&chunk)));
        chunk
    }
}

/// Resources of a layer that are shadowed by a layer above, which has resources with the same names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) count: usize,
    /// Sum of the hashes of these entries.
    pub(crate) sum: u64,
}

impl Hidden {
    /// Resources of `under` that `own` shadows.
    pub(crate) fn by(own: &Map, under: &Layer) -> Self {
        let mut hidden = Self::default();
        // An empty layer needs no search for each name.
        for resource in own.keys().filter(|_| under.len > 0).filter_map(|name| under.get(name)) {
            hidden.add(resource);
        }
        hidden
    }

    fn add(&mut self, resource: &Resource) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(entry_hash(resource));
    }

    fn subtract(&mut self, resource: &Resource) {
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(entry_hash(resource));
    }
}

/// Resources of a part over those of the parts behind it.
#[derive(Debug)]
pub(crate) struct Layer {
    own: Arc<Own>,
    under: Option<Arc<Self>>,
    hidden: Hidden,
    /// Number of visible resources of this layer and those under it.
    len: usize,
    /// Version of the visible set.
    version: u64,
}

/// Difference between two states of a stack of layers.
pub(crate) struct Step {
    /// Changed resources, those of the uppermost layer first.
    pub(crate) upserts: Vec<Arc<Resource>>,
    /// Encoded form of the changed resources of lower layers, equal for all clients whose layers take this
    /// step.
    pub(crate) shared: Vec<Arc<Chunk>>,
}

/// Names that differ between two states of a layer, shared by all layers over it.
pub(crate) type Changed = Arc<[Arc<str>]>;

impl Layer {
    pub(crate) fn new(own: Arc<Own>, under: Option<Arc<Self>>) -> Self {
        let hidden = under.as_ref().map_or_else(Hidden::default, |under| Hidden::by(&own.map, under));
        Self::hiding(own, under, hidden)
    }

    fn hiding(own: Arc<Own>, under: Option<Arc<Self>>, hidden: Hidden) -> Self {
        let (len, version) = under.as_ref().map_or((0, 0), |under| (under.len, under.version));
        let len = len - hidden.count + own.map.len();
        let version = version.wrapping_sub(hidden.sum).wrapping_add(own.sum);
        Self { own, under, hidden, len, version }
    }

    /// Next state of this layer; `changed` are the names that differ in `own` or `under`. Also returns the
    /// names whose visible resource differs. The cost depends on the smaller of the changes and the layer's
    /// own resources.
    pub(crate) fn next(&self, own: Arc<Own>, under: Option<Arc<Self>>, changed: &Changed) -> (Self, Changed) {
        if Arc::ptr_eq(&own, &self.own) && own.map.len() < changed.len() {
            // More names differ than the layer has: some may be shadowed, but reporting them is harmless.
            return (Self::new(own, under), Arc::clone(changed));
        }
        let mut hidden = self.hidden;
        let mut names = Vec::new();
        for name in changed.iter() {
            let was_under = self.under.as_ref().and_then(|under| under.get(name));
            let is_under = under.as_ref().and_then(|under| under.get(name));
            let (was, is) = (self.own.map.get(name), own.map.get(name));
            if let (Some(_), Some(resource)) = (was, was_under) {
                hidden.subtract(resource);
            }
            if let (Some(_), Some(resource)) = (is, is_under) {
                hidden.add(resource);
            }
            if was.or(was_under) != is.or(is_under) {
                names.push(Arc::clone(name));
            }
        }
        let names = if names.len() == changed.len() { Arc::clone(changed) } else { names.into() };
        (Self::hiding(own, under, hidden), names)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.own.map.get(name).or_else(|| self.under.as_ref()?.get(name))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn own(&self) -> &Arc<Own> {
        &self.own
    }

    pub(crate) fn under(&self) -> Option<&Arc<Self>> {
        self.under.as_ref()
    }

    /// This layer and those under it.
    fn layers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |layer| layer.under.as_deref())
    }

    fn hides(&self) -> bool {
        self.layers().any(|layer| layer.hidden.count > 0)
    }

    /// Difference from an earlier state of the layers to this one. `None` if a resource is shadowed or
    /// removed, since another layer may now provide it, and if there is too little to share.
    pub(crate) fn step_from(&self, old: &Self) -> Option<Step> {
        if self.hides() || old.hides() || self.layers().count() != old.layers().count() {
            return None;
        }
        let (mut upserts, mut shared) = (Vec::new(), Vec::new());
        for (at, (new, old)) in self.layers().zip(old.layers()).enumerate() {
            if Arc::ptr_eq(&new.own, &old.own) {
                continue;
            }
            let step = Contents::between(&old.own.map, &new.own.map);
            if !step.removed.is_empty() {
                return None;
            }
            if at > 0 && !step.upserts.is_empty() {
                let bytes: usize = step.upserts.iter().map(|resource| resource.body.len()).sum();
                if bytes < WORTH_SHARING {
                    return None;
                }
                shared.push(new.own.difference(&old.own, &step.upserts));
            }
            upserts.extend(step.upserts);
        }
        (!shared.is_empty()).then_some(Step { upserts, shared })
    }

    /// Encoded form of all layers under this one; `None` if there are none, or some resource is shadowed.
    pub(crate) fn chunks(&self) -> Option<Vec<Arc<Chunk>>> {
        let lower: Vec<&Self> = self.layers().skip(1).filter(|layer| !layer.own.map.is_empty()).collect();
        (!self.hides() && !lower.is_empty()).then(|| lower.iter().map(|layer| layer.own.chunk()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Entries;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What three parts have, from the first to the last, by name.
    type Parts = [BTreeMap<u8, u64>; 3];

    fn resource(name: u8, version: u64) -> Arc<Resource> {
        let name = name.to_string().into();
        Arc::new(Resource {
            name,
            version,
            body: Bytes::from_static(b"body"),
            changed_at: 0,
            stands_in: false,
        })
    }

    /// Everything by name: the first part wins.
    fn expected(parts: &Parts) -> Map {
        let mut all = BTreeMap::new();
        parts.iter().rev().for_each(|part| all.extend(part));
        all.into_iter()
            .map(|(name, version)| resource(name, version))
            .map(|r| (Arc::clone(&r.name), r))
            .collect()
    }

    fn check(layer: &Layer, parts: &Parts) -> Result<(), TestCaseError> {
        let all = expected(parts);
        let mut entries = Entries::new();
        entries.set_under(Some(Arc::new(Layer::new(Arc::clone(layer.own()), layer.under().cloned()))));
        prop_assert_eq!((layer.len(), layer.version()), (all.len(), set_version(all.values())));
        prop_assert_eq!((entries.len(), entries.version(0)), (layer.len(), layer.version()));
        let seen: Map = entries.values().map(|r| (Arc::clone(&r.name), Arc::clone(r))).collect();
        prop_assert_eq!(&seen, &all);
        if let Some(chunks) = layer.chunks() {
            let own = layer.own().map().len();
            prop_assert_eq!(own + chunks.iter().map(|chunk| chunk.count).sum::<usize>(), all.len());
        }
        Ok(())
    }

    fn with_layer(layer: &Arc<Layer>) -> Entries {
        let mut entries = Entries::new();
        entries.set_under(Some(Arc::clone(layer)));
        entries
    }

    proptest! {
        #[test]
        fn layers_that_follow_changes_are_what_the_parts_come_to(
            publications in proptest::collection::vec(
                proptest::collection::vec((0..3_usize, 0..6_u8, 0..3_u64), 1..8),
                1..12,
            ),
        ) {
            let mut parts = Parts::default();
            let mut owns: [Arc<Own>; 3] = Default::default();
            let mut layers: Vec<Arc<Layer>> = Vec::new();
            for own in owns.iter().rev() {
                let under = layers.last().cloned();
                layers.push(Arc::new(Layer::new(Arc::clone(own), under)));
            }
            for changes in publications {
                let (before, was) = (with_layer(&layers[2]), expected(&parts));
                let mut changed = Changed::default();
                for (at, part) in (0..3).rev().enumerate() {
                    let changes: Vec<_> = changes.iter().filter(|(to, ..)| *to == part).collect();
                    let new: Vec<_> = changes.iter().map(|(_, name, version)| resource(*name, *version)).collect();
                    let listed = new.iter().map(|r| (&r.name, Some(r).filter(|r| r.version > 0))).collect::<Vec<_>>();
                    let (own, names) = owns[part].with(&listed);
                    if !names.is_empty() {
                        owns[part] = Arc::new(own);
                    }
                    for (_, name, version) in changes {
                        parts[part].insert(*name, *version);
                    }
                    parts[part].retain(|_, version| *version > 0);
                    let mut all: Vec<_> = changed.iter().chain(&names).cloned().collect();
                    all.sort_unstable();
                    all.dedup();
                    let under = at.checked_sub(1).map(|under| Arc::clone(&layers[under]));
                    let (layer, names) = layers[at].next(Arc::clone(&owns[part]), under, &all.into());
                    (layers[at], changed) = (Arc::new(layer), names);
                }
                check(&layers[2], &parts)?;
                // The difference of layers is that of plain maps, whichever side is one.
                let (after, is) = (with_layer(&layers[2]), expected(&parts));
                let wanted = Contents::between(&was, &is);
                for (old, new) in [
                    (before.clone(), after.clone()),
                    (before, is.clone().into()),
                    (was.clone().into(), after),
                ] {
                    let mut got = old.difference(&new);
                    got.upserts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
                    prop_assert_eq!(&got.upserts, &wanted.upserts);
                    prop_assert_eq!(&got.removed, &wanted.removed);
                    let mut entries = old;
                    entries.apply(&got);
                    let now: Map = entries.values().map(|r| (Arc::clone(&r.name), Arc::clone(r))).collect();
                    prop_assert_eq!(&now, &is);
                }
                for name in wanted.upserts.iter().map(|r| &r.name).chain(&wanted.removed) {
                    prop_assert!(changed.contains(name));
                }
            }
        }
    }

    #[test]
    fn a_step_of_shared_layers_is_encoded_once() {
        let large = |name: u8, version: u64| {
            let small = resource(name, version);
            let body = Bytes::from(vec![0; WORTH_SHARING]);
            Arc::new(Resource { body, ..Resource::clone(&small) })
        };
        let map = |resources: Vec<Arc<Resource>>| -> Map {
            resources.into_iter().map(|r| (Arc::clone(&r.name), r)).collect()
        };
        let shared = |resources| Arc::new(Layer::new(Arc::new(Own::new(map(resources))), None));
        let over =
            |own, under: &Arc<Layer>| Layer::new(Arc::new(Own::new(map(own))), Some(Arc::clone(under)));
        let (old, new) = (shared(vec![large(1, 1), large(2, 1)]), shared(vec![large(1, 2), large(2, 1)]));
        let step = |own: u8| {
            let after = over(vec![resource(own, 2)], &new);
            after.step_from(&over(vec![resource(own, 1)], &old)).unwrap()
        };
        let (Step { upserts, shared: one }, Step { shared: two, .. }) = (step(8), step(9));
        let names: Vec<&str> = upserts.iter().map(|r| &*r.name).collect();
        assert_eq!((names, one.len(), one[0].count), (vec!["8", "1"], 1, 1));
        assert!(Arc::ptr_eq(&one[0], &two[0]));
        // What is hidden, or gone from a layer, is looked at resource by resource.
        assert!(over(vec![large(1, 7)], &new).step_from(&over(vec![], &old)).is_none());
        assert!(over(vec![], &shared(vec![large(1, 2)])).step_from(&over(vec![], &old)).is_none());
        drop((one, two));
        let owns = new.own().differences.lock();
        assert!(owns.iter().all(|(_, chunk)| chunk.strong_count() == 0), "nobody sends it");
    }

    #[test]
    fn streams_at_the_same_time_send_the_same_bytes() {
        let map: Map = [resource(1, 1)].into_iter().map(|r| (Arc::clone(&r.name), r)).collect();
        let shared = Arc::new(Layer::new(Arc::new(Own::new(map.clone())), None));
        let top = |own: Map| Layer::new(Arc::new(Own::new(own)), Some(Arc::clone(&shared)));
        let (one, two) = (top(Map::new()).chunks().unwrap(), top(Map::new()).chunks().unwrap());
        assert!(Arc::ptr_eq(&one[0], &two[0]));
        assert!(shared.chunks().is_none(), "nothing is under it");
        assert!(top(map).chunks().is_none(), "something is hidden");
        drop((one, two));
        assert!(shared.own().chunk.lock().upgrade().is_none(), "nobody sends it");
    }
}
