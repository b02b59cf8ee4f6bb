//! Per-client quotas, such as the number of connections.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Number of slots in use by each key.
#[derive(Debug)]
pub struct Slots<K: Eq + Hash> {
    allowed: usize,
    taken: Mutex<HashMap<K, usize>>,
}

/// One slot; given back when it is dropped.
#[derive(Debug)]
pub struct Slot<K: Eq + Hash> {
    slots: Arc<Slots<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone> Slots<K> {
    /// `allowed` is the maximum for each key.
    #[must_use]
    pub fn new(allowed: usize) -> Arc<Self> {
        Arc::new(Self { allowed, taken: Mutex::default() })
    }

    /// Takes a slot; `None` if the key has reached the maximum.
    pub fn take(self: &Arc<Self>, key: K) -> Option<Slot<K>> {
        let mut taken = self.taken.lock();
        if taken.get(&key).copied().unwrap_or_default() >= self.allowed {
            return None;
        }
        *taken.entry(key.clone()).or_default() += 1;
        Some(Slot { slots: Arc::clone(self), key })
    }

    /// Maximum number of slots for each key.
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
