//! Deduplication of equal values: thousands of Pods have the labels, ports and identity of their Deployment.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Pool of shared values. Values without another holder are dropped in sweeps.
#[derive(Debug)]
pub(crate) struct Pool<T: ?Sized> {
    known: HashSet<Arc<T>>,
    sweep_at: usize,
}

/// Number of values at which the first sweep drops values without another holder.
const SWEEP_AT: usize = 1024;

impl<T: ?Sized> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self { known: self.known.clone(), sweep_at: self.sweep_at }
    }
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), sweep_at: SWEEP_AT }
    }
}

impl<T: ?Sized + Hash + Eq> Pool<T> {
    /// Puts the one that is kept in the place of an equal value.
    pub(crate) fn share(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.known.get(&**value) {
            value.clone_from(known);
            return;
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = SWEEP_AT.max(2 * self.known.len());
        }
        self.known.insert(value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one() {
        let mut pool: Pool<str> = Pool::default();
        let (mut one, mut other): (Arc<str>, Arc<str>) = ("a".into(), "a".into());
        pool.share(&mut one);
        pool.share(&mut other);
        assert!(Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn values_without_a_holder_are_dropped() {
        let mut pool: Pool<str> = Pool::default();
        let mut held: Arc<str> = "held".into();
        pool.share(&mut held);
        for number in 0..10 * SWEEP_AT {
            pool.share(&mut number.to_string().into());
        }
        assert!(pool.known.len() <= SWEEP_AT);
        assert!(pool.known.contains("held"));
    }
}
