//! Semaphores by key, such as the connections of each address.

use crate::live::LiveValues;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One semaphore for each key, all with the same number of permits. A semaphore exists as long as somebody
/// holds one of its permits or waits for one.
#[derive(Debug)]
pub struct KeyedSemaphore<K> {
    allowed: usize,
    semaphores: LiveValues<K, Semaphore>,
}

/// A permit, until it is dropped.
#[derive(Debug)]
#[must_use = "the permit is returned when it is dropped"]
pub struct Permit(#[allow(dead_code, reason = "held until drop")] OwnedSemaphorePermit);

impl<K: Eq + Hash> KeyedSemaphore<K> {
    /// `allowed` is the number of permits of each key.
    #[must_use]
    pub fn new(allowed: usize) -> Self {
        Self { allowed: allowed.min(Semaphore::MAX_PERMITS), semaphores: LiveValues::default() }
    }

    /// Number of permits of each key.
    #[must_use]
    pub fn allowed(&self) -> usize {
        self.allowed
    }

    /// Returns a permit of the key; `None` if all are held.
    pub fn try_acquire(&self, key: K) -> Option<Permit> {
        self.of(key).try_acquire_owned().ok().map(Permit)
    }

    /// Waits for a permit of the key, after those that wait already.
    ///
    /// # Panics
    /// Never: semaphores are not closed.
    pub async fn acquire(&self, key: K) -> Permit {
        Permit(self.of(key).acquire_owned().await.expect("semaphores are not closed"))
    }

    fn of(&self, key: K) -> Arc<Semaphore> {
        self.semaphores.of(key, || Arc::new(Semaphore::new(self.allowed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn keys_do_not_share_permits() {
        let semaphore = KeyedSemaphore::new(2);
        let (a, b, other) =
            (semaphore.try_acquire("a"), semaphore.try_acquire("a"), semaphore.try_acquire("b"));
        assert!(a.is_some() && b.is_some() && other.is_some());
        assert!(semaphore.try_acquire("a").is_none());
        drop(a);
        assert!(semaphore.try_acquire("a").is_some());
    }

    #[test]
    fn first_waiter_gets_the_returned_permit() {
        let semaphore = KeyedSemaphore::new(1);
        let held = semaphore.try_acquire("a").unwrap();
        let (mut first, mut second) = (pin!(semaphore.acquire("a")), pin!(semaphore.acquire("a")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
        drop(held);
        assert!(semaphore.try_acquire("a").is_none(), "it belongs to the first waiter");
        let permit = first.as_mut().poll(&mut cx);
        assert!(permit.is_ready() && second.as_mut().poll(&mut cx).is_pending());
    }
}
