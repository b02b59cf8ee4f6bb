//! Resources by name, and the version of a whole set of them.

use crate::source::Resource;
use imbl::{OrdMap, OrdSet};
use std::sync::Arc;

/// Resources by name. Clones share everything that did not change since.
pub(crate) type Entries = OrdMap<Arc<str>, Arc<Resource>>;
/// Names, shared in the same way.
pub(crate) type NameSet = OrdSet<Arc<str>>;

/// One entry's share of a set's hash: the same in every replica.
pub(crate) fn entry_hash(resource: &Resource) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(resource.name.as_bytes(), resource.version)
}

/// The version of a whole set.
pub(crate) fn set_version(entries: &Entries) -> u64 {
    entries.values().fold(0, |sum: u64, resource| sum.wrapping_add(entry_hash(resource)))
}
