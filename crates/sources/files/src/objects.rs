//! The objects of one file.

use pilotfish_model::{Object, ObjectKey};
use std::collections::BTreeMap;

/// Objects by their keys, in order. Most files have one, for which a map would be mostly empty space.
#[derive(Debug, Default)]
pub(super) struct Objects(Box<[Object]>);

impl Objects {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Object> {
        self.0.binary_search_by(|object| object.key().cmp(key)).ok().and_then(|at| self.0.get(at))
    }

    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.iter().map(Object::key)
    }

    /// Copies the objects into a map, for the next version of the file.
    pub(super) fn to_map(&self) -> BTreeMap<ObjectKey, Object> {
        self.0.iter().map(|object| (object.key().clone(), object.clone())).collect()
    }
}

impl From<BTreeMap<ObjectKey, Object>> for Objects {
    fn from(objects: BTreeMap<ObjectKey, Object>) -> Self {
        Self(objects.into_values().collect())
    }
}
