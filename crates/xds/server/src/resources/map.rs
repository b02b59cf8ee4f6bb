//! Resources by name, and the version of a set of them.

use crate::source::Resource;
use imbl::{OrdMap, OrdSet};
use std::sync::Arc;

/// Resources by name. Clones share everything that did not change since.
pub(crate) type Map = OrdMap<Arc<str>, Arc<Resource>>;
/// Names, shared in the same way.
pub(crate) type NameSet = OrdSet<Arc<str>>;

/// Hash of one entry, to be added up to the hash of a set. Equal in all replicas.
pub(crate) fn entry_hash(resource: &Resource) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(resource.name.as_bytes(), resource.version)
}

/// The version of a whole set.
pub(crate) fn set_version<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> u64 {
    resources.fold(0, |sum: u64, resource| sum.wrapping_add(entry_hash(resource)))
}
