//! Resources by name, in layers.

use super::contents::Contents;
use super::frame::Chunk;
use super::layer::{Hidden, Layer, Step};
use super::map::Map;
use crate::source::Resource;
use imbl::ordmap::DiffItem;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Resources by name: an own map over layers that are shared with others. A clone costs two pointers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    own: Map,
    under: Option<Arc<Layer>>,
}

impl Entries {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Resources that are not in any layer (subscriptions by name).
    pub(crate) fn own(&self) -> &Map {
        &self.own
    }

    pub(crate) fn own_mut(&mut self) -> &mut Map {
        &mut self.own
    }

    pub(crate) fn under(&self) -> Option<&Arc<Layer>> {
        self.under.as_ref()
    }

    pub(crate) fn set_under(&mut self, under: Option<Arc<Layer>>) {
        self.under = under;
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.own.get(name).or_else(|| self.under.as_ref()?.get(name))
    }

    pub(crate) fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.under.as_ref().is_none_or(|under| under.len() == 0)
    }

    pub(crate) fn len(&self) -> usize {
        let under = self.under.as_ref();
        under.map_or(0, |under| under.len() - self.hidden(under).count) + self.own.len()
    }

    /// Version of the whole set; `own` is the hash of the resources outside of layers.
    pub(crate) fn version(&self, own: u64) -> u64 {
        let Some(under) = &self.under else { return own };
        under.version().wrapping_sub(self.hidden(under).sum).wrapping_add(own)
    }

    fn hidden(&self, under: &Layer) -> Hidden {
        Hidden::by(&self.own, under)
    }

    /// All resources, each once: first the own ones by name, then those of each layer.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let maps = self.maps();
        let mut all = Vec::with_capacity(self.len());
        for (at, map) in maps.iter().enumerate().rev() {
            let above: Vec<&Map> =
                maps.iter().skip(at + 1).copied().filter(|map: &&Map| !map.is_empty()).collect();
            let seen = map.iter().filter(|(name, _)| !above.iter().any(|map| map.contains_key(*name)));
            all.extend(seen.map(|(_, resource)| resource));
        }
        all.into_iter()
    }

    /// Encoded form of the last resources of [`Self::values`]; `None` if one of them is shadowed, or nothing
    /// is shared.
    pub(crate) fn chunks(&self) -> Option<Vec<Arc<Chunk>>> {
        let under = self.under.as_ref()?;
        if self.hidden(under).count > 0 { None } else { under.chunks() }
    }

    /// Difference to `new` if only the layers differ, from [`Layer::step_from`].
    pub(crate) fn step_to(&self, new: &Self) -> Option<Step> {
        if !self.own.is_empty() || !new.own.is_empty() {
            return None;
        }
        new.under.as_ref()?.step_from(self.under.as_ref()?)
    }

    pub(crate) fn insert(&mut self, resource: Arc<Resource>) {
        self.own.insert(Arc::clone(&resource.name), resource);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<Resource>> {
        if self.under.as_ref().is_some_and(|under| under.get(name).is_some()) {
            self.flatten();
        }
        self.own.remove(name)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Merges all layers into one map: the lowest, which is the largest, with the others inserted.
    fn flatten(&mut self) {
        let maps = self.maps();
        let mut maps = maps.into_iter();
        let mut all = maps.next().cloned().unwrap_or_default();
        for map in maps {
            for (name, resource) in map {
                all.insert(Arc::clone(name), Arc::clone(resource));
            }
        }
        *self = Self { own: all, under: None };
    }

    /// Maps from the lowest layer up to the own one.
    fn maps(&self) -> Vec<&Map> {
        let layers = std::iter::successors(self.under.as_deref(), |layer| layer.under().map(Arc::as_ref));
        let mut maps: Vec<&Map> =
            [&self.own].into_iter().chain(layers.map(|layer| layer.own().map())).collect();
        maps.reverse();
        maps
    }

    /// Changes from these resources to `new`.
    pub(crate) fn difference(&self, new: &Self) -> Contents {
        if self.is_empty() {
            return Contents { upserts: new.values().cloned().collect(), removed: Vec::new() };
        }
        if let (Some(old), Some(new)) = (self.as_map(), new.as_map()) {
            return Contents::between(old, new);
        }
        let mut contents = Contents::default();
        for name in self.differing(new) {
            match (self.get(&name), new.get(&name)) {
                (Some(_), None) => contents.removed.push(name),
                (before, Some(after)) if before != Some(after) => contents.upserts.push(Arc::clone(after)),
                _ => {}
            }
        }
        contents
    }

    /// Applies the changes of a response.
    pub(crate) fn apply(&mut self, contents: &Contents) {
        for resource in &contents.upserts {
            self.insert(Arc::clone(resource));
        }
        for name in &contents.removed {
            self.remove(name);
        }
    }

    /// The only map, if there are no layers.
    fn as_map(&self) -> Option<&Map> {
        self.under.is_none().then_some(&self.own)
    }

    /// Names that may lead to another resource in `new`: those that differ in some layer. Layers are compared
    /// from the lowest, which is the largest, and subtrees that two of them share are skipped.
    fn differing(&self, new: &Self) -> BTreeSet<Arc<str>> {
        let (old, new) = (self.maps(), new.maps());
        let empty = Map::new();
        let mut names = BTreeSet::new();
        for at in 0..old.len().max(new.len()) {
            let [old, new] = [&old, &new].map(|maps| maps.get(at).copied().unwrap_or(&empty));
            names.extend(old.diff(new).map(|item| match item {
                DiffItem::Add(name, _)
                | DiffItem::Update { new: (name, _), .. }
                | DiffItem::Remove(name, _) => Arc::clone(name),
            }));
        }
        names
    }
}

impl From<Map> for Entries {
    fn from(own: Map) -> Self {
        Self { own, under: None }
    }
}

impl FromIterator<(Arc<str>, Arc<Resource>)> for Entries {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, Arc<Resource>)>>(resources: T) -> Self {
        Self { own: resources.into_iter().collect(), under: None }
    }
}
