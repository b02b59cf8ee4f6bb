//! Parallel computation of many results for one reader. The first view of a proxy needs results for every
//! service, and the other processors are idle until it is computed.
//!
//! Each result is computed by the thread that requests it first, and shared with the others, so the results
//! do not depend on the threads.

use crate::engine::memo::{Current, Memo};
use crate::engine::{Query, ResourceBatchKey};
use crate::translator::budget::{MAX_PROXY_BYTES, ViewBudget, by_weight};
use crate::translator::view::{BatchKeysOf, Generate};
use crate::translator::{Snapshot, ViewId, read};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Number of results that are read first. If they take fewer computations than this, the others are assumed
/// to be in the memo.
const PROBED: usize = 32;
/// More threads would contend for locks.
pub(super) const MOST_HELPERS: usize = 7;

/// Threads that may help readers, in total for all readers of a translator: if every processor has a reader
/// already, helpers gain nothing.
pub(super) struct Helpers {
    free: AtomicUsize,
}

impl Default for Helpers {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self::new((processors - 1).min(MOST_HELPERS))
    }
}

impl Helpers {
    fn new(most: usize) -> Self {
        Self { free: AtomicUsize::new(most) }
    }

    /// Runs `compute` for each item, which requests a result from the memo and drops it. Stops early, but not
    /// before one result was computed, if the next world waits.
    pub(super) fn compute<T: Sync>(&self, memo: &Memo, items: &[T], compute: impl Fn(&T) + Sync) {
        let (probed, rest) = items.split_at(items.len().min(PROBED));
        let before = memo.computed();
        let computed = || memo.computed() - before;
        for item in probed {
            compute(item);
            if memo.is_waited_for() && computed() > 0 {
                return;
            }
        }
        if computed() < PROBED as u64 {
            return;
        }
        let taken = self.take(rest.len() / PROBED);
        let next = AtomicUsize::new(0);
        let work = || {
            while !memo.is_waited_for()
                && let Some(item) = rest.get(next.fetch_add(1, Ordering::Relaxed))
            {
                compute(item);
            }
        };
        thread::scope(|scope| {
            for _ in 0..taken.count {
                // If no thread can be started, this one computes everything.
                let named = thread::Builder::new().name("translate".into());
                if named.spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            if taken.count > 0 {
                work();
            }
        });
    }

    fn take(&self, wanted: usize) -> Taken<'_> {
        let count = |free: usize| free.min(wanted);
        let before =
            self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| Some(free - count(free)));
        Taken { helpers: self, count: before.map_or(0, count) }
    }
}

/// Helpers reserved by one reader until the guard is dropped.
struct Taken<'a> {
    helpers: &'a Helpers,
    count: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.helpers.free.fetch_add(self.count, Ordering::AcqRel);
    }
}

/// Number of results that are computed in parallel between two checks of the limits of a proxy.
const AT_A_TIME: usize = 1_024;

impl Snapshot<'_> {
    /// Computes the results that [`Self::names`] of a view needs. Returns true if all are computed; if the
    /// next world waits, it stops after the first batch that was missing.
    #[must_use]
    pub fn prepare(&self, id: ViewId) -> bool {
        self.parts(id).iter().all(|part| self.prepare_part(*part))
    }

    /// Computes the results that [`Self::get`] of these names needs, for views that are subscribed by name.
    /// Stops early if the next world waits. This affects speed alone.
    pub fn prepare_names(&self, id: ViewId, names: &[Arc<str>]) {
        // Helpers would not speed up so few, and all of them would be read twice.
        if names.len() < 2 * PROBED {
            return;
        }
        let Some((view, index)) = self.index_of(id) else { return };
        if index.is_some() {
            return;
        }
        let (memo, current): (&Memo, &Current) = (&self.translator.memo, &self.current);
        self.translator.helpers.compute(memo, names, |name| {
            let batch_key = ResourceBatchKey::Named(name.clone());
            drop(read(memo, current, &view, name, Some(batch_key)));
        });
    }

    fn prepare_part(&self, id: ViewId) -> bool {
        let (memo, current): (&Memo, &Current) = (&self.translator.memo, &self.current);
        let Some(view) = self.translator.clients.lock().views.get(&id).map(|viewed| viewed.view.clone())
        else {
            return true;
        };
        let (batch_keys, _) = memo.get(current, &BatchKeysOf(view.clone()));
        let batch_keys: Vec<_> =
            Option::as_ref(&batch_keys).into_iter().flat_map(|keys| by_weight(keys)).collect();
        let query =
            |batch_key: &ResourceBatchKey| Generate { view: view.clone(), batch_key: batch_key.clone() };
        let before = memo.computed();
        let mut budget = ViewBudget::default();
        // Total size of the batches computed ahead; batches beyond the limit of a proxy are not computed.
        let bytes = AtomicUsize::new(0);
        let ahead = |key: &&ResourceBatchKey| {
            if bytes.load(Ordering::Relaxed) <= MAX_PROXY_BYTES {
                let (batch, _) = memo.get(current, &query(key));
                bytes.fetch_add(Generate::weight(&batch), Ordering::Relaxed);
            }
        };
        for batch_keys in batch_keys.chunks(AT_A_TIME) {
            self.translator.helpers.compute(memo, batch_keys, ahead);
            for batch_key in batch_keys {
                let (batch, _) = memo.get(current, &query(batch_key));
                if !budget.take(&batch) {
                    return true;
                }
                if memo.is_waited_for() && memo.computed() != before {
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Cx;
    use parking_lot::Mutex;
    use std::collections::HashSet;
    use std::thread::ThreadId;

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Square(usize);

    impl Query for Square {
        type Output = usize;

        fn compute(&self, _cx: &Cx<'_>) -> usize {
            // Long enough for others to come in between.
            thread::yield_now();
            self.0 * self.0
        }
    }

    /// Computes the squares of these, and returns the threads that did.
    fn squares(helpers: &Helpers, memo: &Memo, of: &[usize]) -> HashSet<ThreadId> {
        let (current, threads) = (memo.read(), Mutex::new(HashSet::new()));
        let current: &Current = &current;
        helpers.compute(memo, of, |n| {
            threads.lock().insert(thread::current().id());
            assert_eq!(*memo.get(current, &Square(*n)).0, n * n);
        });
        threads.into_inner()
    }

    #[test]
    fn all_are_computed_once_and_helpers_are_free_again() {
        let (helpers, memo) = (Helpers::new(3), Memo::new());
        let all: Vec<usize> = (0..1_000).collect();
        squares(&helpers, &memo, &all);
        assert_eq!((memo.computed(), memo.len()), (1_000, 1_000));
        assert_eq!(helpers.free.load(Ordering::Acquire), 3);
    }

    #[test]
    fn what_is_there_already_or_little_needs_no_help() {
        let (helpers, memo) = (Helpers::new(3), Memo::new());
        let few: Vec<usize> = (0..2 * PROBED - 1).collect();
        assert_eq!(squares(&helpers, &memo, &few), HashSet::from([thread::current().id()]));
        let many: Vec<usize> = (0..1_000).collect();
        many.iter().for_each(|n| drop(memo.get(&memo.read(), &Square(*n))));
        let threads = squares(&helpers, &memo, &many);
        assert_eq!(threads, HashSet::from([thread::current().id()]));
        assert_eq!(memo.computed(), 1_000);
    }

    #[test]
    fn helpers_are_shared_by_all_readers() {
        let helpers = Helpers::new(3);
        let first = helpers.take(2);
        let second = helpers.take(2);
        assert_eq!((first.count, second.count, helpers.take(1).count), (2, 1, 0));
        drop(first);
        assert_eq!(helpers.take(5).count, 2);
    }
}
