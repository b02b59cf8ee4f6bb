//! A queue of deadlines by key.

use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Keys with their due times. Each key has at most one time; setting another one moves it.
///
/// The queue has no clock: its owner takes [what is due](Self::pop_due) at a time, and sleeps until [the
/// next](Self::next). (`tokio_util::time::DelayQueue` has its own timer, so it cannot be part of a state
/// machine that takes `now`.) `T` is the time: an `Instant`, or anything ordered, such as `Option<Instant>`
/// where `None` is due at once.
#[derive(Clone, Debug)]
pub struct DeadlineQueue<K, T = Instant> {
    times: BTreeMap<K, T>,
    order: BTreeSet<(T, K)>,
}

impl<K, T> Default for DeadlineQueue<K, T> {
    fn default() -> Self {
        Self { times: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, T: Ord + Copy> DeadlineQueue<K, T> {
    /// Sets the due time of a key. Returns the previous one.
    pub fn set(&mut self, key: K, at: T) -> Option<T> {
        let before = self.times.insert(key.clone(), at);
        if let Some(before) = before {
            // The set's lookup needs an owned tuple; keys are cheap to clone.
            self.order.remove(&(before, key.clone()));
        }
        self.order.insert((at, key));
        before
    }

    /// Removes a key. Returns its due time.
    pub fn remove(&mut self, key: &K) -> Option<T> {
        let at = self.times.remove(key)?;
        self.order.remove(&(at, key.clone()));
        Some(at)
    }

    /// Returns the due time of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<T> {
        self.times.get(key).copied()
    }

    /// Returns the earliest due time, which can be in the past.
    #[must_use]
    pub fn next(&self) -> Option<T> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes and returns the key with the earliest due time, if that is not after `now`. Equal times are
    /// sorted by key.
    pub fn pop_due(&mut self, now: T) -> Option<K> {
        let (at, _) = self.order.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.times.remove(&key);
        Some(key)
    }

    /// Returns the keys with their times, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, T)> {
        self.times.iter().map(|(key, at)| (key, *at))
    }

    /// True if no key is scheduled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(entries: &[(&'static str, u32)]) -> DeadlineQueue<&'static str, u32> {
        let mut queue = DeadlineQueue::default();
        for (key, at) in entries {
            queue.set(*key, *at);
        }
        queue
    }

    fn due(queue: &mut DeadlineQueue<&'static str, u32>, now: u32) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop_due(now)).collect()
    }

    #[test]
    fn keys_come_when_they_are_due_in_the_order_of_their_times() {
        let mut queue = queue(&[("c", 1), ("a", 3), ("b", 1), ("d", 9)]);
        assert_eq!(due(&mut queue, 0), [""; 0]);
        assert_eq!(due(&mut queue, 3), ["b", "c", "a"]);
        assert_eq!((queue.next(), queue.len()), (Some(9), 1));
    }

    #[test]
    fn a_key_is_due_once_at_its_newest_time() {
        let mut queue = queue(&[("a", 5), ("b", 1)]);
        assert_eq!(queue.set("b", 7), Some(1));
        assert_eq!(due(&mut queue, 6), ["a"]);
        assert_eq!(due(&mut queue, 7), ["b"]);
        assert!(queue.is_empty() && queue.next().is_none());
    }

    #[test]
    fn a_removed_key_is_never_due() {
        let mut queue = queue(&[("a", 5), ("b", 6)]);
        assert_eq!((queue.remove(&"a"), queue.remove(&"a")), (Some(5), None));
        assert_eq!(due(&mut queue, 9), ["b"]);
    }

    #[test]
    fn no_time_is_at_once() {
        let mut queue = DeadlineQueue::<_, Option<u32>>::default();
        queue.set("later", Some(4));
        queue.set("now", None);
        assert_eq!(queue.next(), Some(None));
        assert_eq!(queue.pop_due(Some(3)), Some("now"));
        assert_eq!(queue.pop_due(Some(3)), None);
    }

    proptest! {
        #[test]
        fn both_orders_hold_the_same(steps in prop::collection::vec((0u8..6, 0u8..20, 0u8..4), 0..100)) {
            let mut queue = DeadlineQueue::default();
            let mut model = BTreeMap::new();
            for (key, at, what) in steps {
                match what {
                    0 => prop_assert_eq!(queue.remove(&key), model.remove(&key)),
                    1 => {
                        let first = model.iter().map(|(key, at)| (*at, *key)).min().filter(|first| first.0 <= at);
                        prop_assert_eq!(queue.pop_due(at), first.map(|(_, key)| key));
                        first.map(|(_, key)| model.remove(&key));
                    }
                    _ => prop_assert_eq!(queue.set(key, at), model.insert(key, at)),
                }
                prop_assert_eq!(queue.order.len(), queue.times.len());
                prop_assert_eq!(queue.next(), model.values().min().copied());
            }
        }
    }
}
