//! Work on many items in parallel, on all processors.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{panic, thread};

/// Minimum number of items for each thread: with fewer, starting it costs more than it saves.
const EACH: usize = 32;
/// Maximum number of threads.
const MOST: usize = 16;

/// Does the work for every item, in parallel if there are many. The results are in the order of the items.
pub(super) fn for_each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    on_threads(processors.min(MOST).min(items.len() / EACH), items, work)
}

fn on_threads<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    // One by one, as a single large file may take as long as all others.
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(item)));
        }
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(worker)).collect();
        let own = worker();
        let others = others.into_iter().flat_map(|other| match other.join() {
            Ok(done) => done,
            Err(panic) => panic::resume_unwind(panic),
        });
        own.into_iter().chain(others).collect()
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, EACH - 1, 10 * EACH] {
            let items: Vec<usize> = (0..count).collect();
            let squares: Vec<usize> = items.iter().map(|n| n * n).collect();
            assert_eq!(for_each(&items, |n| n * n), squares);
            for threads in [0, 1, 2, 5] {
                assert_eq!(on_threads(threads, &items, |n| n * n), squares, "{threads} threads");
            }
        }
    }

    #[test]
    fn a_panic_is_the_callers() {
        let items: Vec<usize> = (0..10).collect();
        let work = |n: &usize| assert!(*n != 7, "seven");
        assert!(panic::catch_unwind(|| on_threads(3, &items, work)).is_err());
    }
}
