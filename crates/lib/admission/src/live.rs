//! Values by key that exist as long as somebody holds them.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

/// Number of entries below which none are removed.
const FEW: usize = 64;

/// Values by key, such as the quota of an address.
#[derive(Debug)]
pub(crate) struct LiveValues<K, V>(Mutex<Known<K, V>>);

#[derive(Debug)]
struct Known<K, V> {
    values: HashMap<K, Weak<V>>,
    /// Number of entries at which unused ones are removed: twice the number that remained last time.
    clean_at: usize,
}

impl<K, V> Default for LiveValues<K, V> {
    fn default() -> Self {
        Self(Mutex::new(Known { values: HashMap::new(), clean_at: FEW }))
    }
}

impl<K: Eq + Hash, V> LiveValues<K, V> {
    /// Returns the value of a key, created by `new` if nobody holds it.
    pub(crate) fn of(&self, key: K, new: impl FnOnce() -> Arc<V>) -> Arc<V> {
        let Known { values, clean_at } = &mut *self.0.lock();
        if let Some(known) = values.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        if values.len() >= *clean_at {
            values.retain(|_, value| value.strong_count() > 0);
            *clean_at = (2 * values.len()).max(FEW);
        }
        let value = new();
        values.insert(key, Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_shared_until_nobody_holds_it() {
        let values = LiveValues::default();
        let of = |key: u32, value: u32| values.of(key, || Arc::new(value));
        let (one, same, other) = (of(1, 10), of(1, 11), of(2, 20));
        assert_eq!((*one, *same, *other), (10, 10, 20));
        drop((one, same));
        assert_eq!(*of(1, 12), 12);
    }

    #[test]
    fn values_that_nobody_holds_are_removed() {
        let values = LiveValues::default();
        for key in 0..1_000 {
            drop(values.of(key, || Arc::new(())));
            assert!(values.0.lock().values.len() <= FEW);
        }
    }
}
