//! How many of something, such as connections, each client has.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// How many of something each key has.
#[derive(Debug)]
pub struct Slots<K: Eq + Hash> {
    allowed: usize,
    taken: Mutex<HashMap<K, usize>>,
}

/// One of them; given back when it is dropped.
#[derive(Debug)]
pub struct Slot<K: Eq + Hash> {
    slots: Arc<Slots<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone> Slots<K> {
    /// So many for each key.
    #[must_use]
    pub fn new(allowed: usize) -> Arc<Self> {
        Arc::new(Self { allowed, taken: Mutex::default() })
    }

    /// One more for a key; `None` when it has as many as it may.
    pub fn take(self: &Arc<Self>, key: K) -> Option<Slot<K>> {
        let mut taken = self.taken.lock();
        if taken.get(&key).copied().unwrap_or_default() >= self.allowed {
            return None;
        }
        *taken.entry(key.clone()).or_default() += 1;
        Some(Slot { slots: Arc::clone(self), key })
    }

    /// What each key may have.
    #[must_use]
    pub fn allowed(&self) -> usize {
        self.allowed
    }
}

impl<K: Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted_by_key_and_forgotten() {
        let slots = Slots::new(2);
        let (a, b, other) = (slots.take("a"), slots.take("a"), slots.take("b"));
        assert!(a.is_some() && b.is_some() && other.is_some());
        assert!(slots.take("a").is_none());
        drop(a);
        let again = slots.take("a");
        assert!(again.is_some());
        drop((again, b, other));
        assert!(slots.taken.lock().is_empty());
    }
}
