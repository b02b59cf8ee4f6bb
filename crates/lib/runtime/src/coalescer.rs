//! A channel that keeps only the newest value of each key, for writers that are faster than their reader.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Returns both ends of a channel that holds one value for each key. Sending never waits: it replaces the
/// pending value, so the channel holds at most one value per distinct key, and a slow reader catches up in
/// one step.
#[must_use]
pub fn coalescer<K: Ord, V>() -> (CoalescingSender<K, V>, CoalescingReceiver<K, V>) {
    let shared = Arc::new(Shared {
        pending: Mutex::new(Pending { values: BTreeMap::new(), is_closed: false }),
        changed: Notify::new(),
        senders: AtomicUsize::new(1),
    });
    (CoalescingSender { shared: shared.clone() }, CoalescingReceiver { shared })
}

struct Shared<K, V> {
    pending: Mutex<Pending<K, V>>,
    /// Notified when the channel becomes non-empty, and when the last sender is dropped.
    changed: Notify,
    senders: AtomicUsize,
}

struct Pending<K, V> {
    values: BTreeMap<K, V>,
    /// True if the receiver was dropped.
    is_closed: bool,
}

impl<K, V> Shared<K, V> {
    fn lock(&self) -> MutexGuard<'_, Pending<K, V>> {
        // A panic under the lock leaves a valid map: each change is one insertion.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end. Clones send to the same channel.
pub struct CoalescingSender<K, V> {
    shared: Arc<Shared<K, V>>,
}

impl<K: Ord, V> CoalescingSender<K, V> {
    /// Sends a value; it replaces the pending one of its key. Returns `false` if the receiver was dropped.
    pub fn send(&self, key: K, value: V) -> bool {
        self.update(key, |_| Some(value))
    }

    /// Replaces the pending value of a key by the result of `merge`. `None` removes it. Returns `false`,
    /// without a call of `merge`, if the receiver was dropped. `merge` runs under the lock of the channel and
    /// must be short.
    pub fn update(&self, key: K, merge: impl FnOnce(Option<V>) -> Option<V>) -> bool {
        let mut pending = self.shared.lock();
        if pending.is_closed {
            return false;
        }
        let was_empty = pending.values.is_empty();
        let before = pending.values.remove(&key);
        if let Some(value) = merge(before) {
            pending.values.insert(key, value);
            drop(pending);
            if was_empty {
                self.shared.changed.notify_one();
            }
        }
        true
    }

    /// True if the receiver was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }
}

impl<K, V> Clone for CoalescingSender<K, V> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared: self.shared.clone() }
    }
}

impl<K, V> Drop for CoalescingSender<K, V> {
    fn drop(&mut self) {
        // Release: a receiver that sees no sender must also see the values of this one.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.notify_one();
        }
    }
}

/// Receiver of the pending values; one per channel.
pub struct CoalescingReceiver<K, V> {
    shared: Arc<Shared<K, V>>,
}

impl<K: Ord, V> CoalescingReceiver<K, V> {
    /// Takes all pending values; waits while there are none. Returns `None` if there are none and no sender
    /// is left. Cancel-safe.
    pub async fn recv(&mut self) -> Option<BTreeMap<K, V>> {
        // A value may have been removed between the two.
        while self.wait().await {
            let values = self.take();
            if !values.is_empty() {
                return Some(values);
            }
        }
        None
    }

    /// Waits until values are pending, without taking them. Returns `false` if there are none and no sender
    /// is left.
    pub async fn wait(&mut self) -> bool {
        loop {
            // Read before the map: the values of dropped senders are then in the map.
            let is_over = self.shared.senders.load(Ordering::Acquire) == 0;
            if !self.shared.lock().values.is_empty() {
                return true;
            }
            if is_over {
                return false;
            }
            self.shared.changed.notified().await;
        }
    }

    /// Takes all pending values; there may be none.
    pub fn take(&mut self) -> BTreeMap<K, V> {
        std::mem::take(&mut self.shared.lock().values)
    }
}

impl<K, V> Drop for CoalescingReceiver<K, V> {
    fn drop(&mut self) {
        let mut pending = self.shared.lock();
        pending.is_closed = true;
        pending.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn the_newest_value_of_each_key_is_taken_at_once() {
        let (sender, mut receiver) = coalescer();
        for (key, value) in [("b", 1), ("a", 2), ("b", 3)] {
            assert!(sender.send(key, value));
        }
        assert_eq!(receiver.recv().await, Some(BTreeMap::from([("a", 2), ("b", 3)])));
        assert!(receiver.take().is_empty());
    }

    #[tokio::test]
    async fn a_value_can_be_merged_with_the_one_that_waits() {
        let (sender, mut receiver) = coalescer();
        let add = |key, n: u32| sender.update(key, |sum| Some(sum.unwrap_or(0) + n));
        assert!(add("a", 1) && add("a", 2) && add("b", 4));
        assert!(sender.update("b", |_| None));
        assert_eq!(receiver.recv().await, Some(BTreeMap::from([("a", 3)])));
        assert!(add("a", 5));
        assert_eq!(receiver.recv().await, Some(BTreeMap::from([("a", 5)])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_waits_is_woken() {
        let (sender, mut receiver) = coalescer();
        let reader = tokio::spawn(async move { (receiver.recv().await, receiver.recv().await) });
        tokio::time::sleep(Duration::from_millis(1)).await;
        sender.send("a", 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(sender);
        assert_eq!(reader.await.unwrap(), (Some(BTreeMap::from([("a", 1)])), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_loses_nothing() {
        let (sender, mut receiver) = coalescer();
        let none = timeout(Duration::from_millis(1), receiver.recv()).await;
        assert!(none.is_err());
        sender.send("a", 1);
        assert!(receiver.recv().await.is_some());
    }

    #[tokio::test]
    async fn what_was_sent_is_taken_after_the_last_sender_is_gone() {
        let (sender, mut receiver) = coalescer();
        let other = sender.clone();
        sender.send("a", 1);
        drop(sender);
        other.send("b", 2);
        drop(other);
        assert_eq!(receiver.recv().await.map(|values| values.len()), Some(2));
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn senders_see_that_the_reader_is_gone() {
        let (sender, receiver) = coalescer();
        assert!(sender.send("a", 1) && !sender.is_closed());
        drop(receiver);
        assert!(!sender.send("a", 2) && sender.is_closed());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_last_value_always_arrives() {
        let (sender, mut receiver) = coalescer();
        let writers = (0..4u8).map(|key| {
            let sender = sender.clone();
            tokio::task::spawn_blocking(move || (0..=1000u32).for_each(|n| assert!(sender.send(key, n))))
        });
        let writers: Vec<_> = writers.collect();
        drop(sender);
        let mut newest = BTreeMap::new();
        let read = async {
            while let Some(values) = receiver.recv().await {
                for (key, value) in values {
                    assert!(newest.insert(key, value).is_none_or(|before| before < value));
                }
            }
        };
        timeout(Duration::from_secs(60), read).await.expect("the reader is woken");
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(newest, (0..4).map(|key| (key, 1000)).collect());
    }
}
