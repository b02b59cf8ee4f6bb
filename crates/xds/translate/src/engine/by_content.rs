//! Shared values as parts of queries.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// A shared value that is compared and hashed by content: queries with equal values are equal, wherever the
/// values come from. The hash covers the parts that differ in nearly all cases; equality compares the content
/// only if the pointers differ.
#[derive(Debug)]
pub(crate) struct ByContent<T> {
    value: Arc<T>,
    hash: u64,
}

/// Randomly keyed, so that nobody can choose names whose hashes collide.
pub(super) static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl<T> ByContent<T> {
    /// Wraps a value. Equal values must have equal identities, from which the hash is computed.
    pub(crate) fn new(value: Arc<T>, identity: &impl Hash) -> Self {
        Self::hashed(value, HASHER.hash_one(identity))
    }

    /// Wraps a value with its hash. Equal values must have equal hashes.
    pub(super) fn hashed(value: Arc<T>, hash: u64) -> Self {
        Self { value, hash }
    }

    pub(crate) fn get(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T> Deref for ByContent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for ByContent<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), hash: self.hash }
    }
}

impl<T: PartialEq> PartialEq for ByContent<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value) || (self.hash == other.hash && self.value == other.value)
    }
}

impl<T: PartialEq> Eq for ByContent<T> {}

impl<T> Hash for ByContent<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_are_equal_and_others_differ_though_they_hash_alike() {
        let a = ByContent::new(Arc::new(vec![1, 2]), &"name");
        let again = ByContent::new(Arc::new(vec![1, 2]), &"name");
        let other = ByContent::new(Arc::new(vec![1, 3]), &"name");
        let hash = |it: &ByContent<Vec<i32>>| HASHER.hash_one(it);
        assert!(a == again && a != other);
        assert_eq!((hash(&a), hash(&a)), (hash(&again), hash(&other)));
    }
}
