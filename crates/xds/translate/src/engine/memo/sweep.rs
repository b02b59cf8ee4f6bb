//! Removal of unused results: those that are no roots and have no readers.
//!
//! Nodes become candidates where they lose a reader, so the cost of a sweep depends on the number of unused
//! results and not on the size of the world. It holds the read lock of the world for a few results at a time:
//! other computations continue, and the next world waits for those few at most.

use super::table::fit;
use super::{Memo, Node, remove_reader};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Results that may be unused. All unused results are among them.
#[derive(Default)]
pub(super) struct Candidates {
    /// Candidates, the oldest one first.
    nodes: Mutex<VecDeque<Arc<Node>>>,
    /// Bytes of results that stopped being roots since the last complete sweep.
    weight: AtomicUsize,
    /// Held while a sweep runs.
    sweeping: Mutex<()>,
}

impl Candidates {
    /// Adds a node if it is unused. Must be called after each change that may make it so.
    pub(super) fn add_if_unused(&self, node: &Arc<Node>) {
        if node.is_unused() {
            self.add(node);
        }
    }

    fn add(&self, node: &Arc<Node>) {
        if !node.is_candidate.swap(true, Ordering::AcqRel) {
            self.nodes.lock().push_back(node.clone());
        }
    }

    pub(super) fn add_weight(&self, bytes: usize) {
        self.weight.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_due(&self) -> bool {
        const MANY: usize = 1_000;
        const HEAVY: usize = 16 << 20;
        self.weight.load(Ordering::Relaxed) > HEAVY || self.nodes.lock().len() > MANY
    }

    fn take(&self) -> VecDeque<Arc<Node>> {
        std::mem::take(&mut *self.nodes.lock())
    }

    /// Returns candidates that this sweep did not reach to the front of the queue.
    fn put_back(&self, left: VecDeque<Arc<Node>>) {
        if left.is_empty() {
            self.weight.store(0, Ordering::Relaxed);
            return;
        }
        let mut nodes = self.nodes.lock();
        let come = std::mem::replace(&mut *nodes, left);
        nodes.extend(come);
    }
}

impl Node {
    fn is_unused(&self) -> bool {
        !self.root.load(Ordering::Acquire) && self.readers.lock().is_empty()
    }
}

impl Memo {
    /// Drops unused results, once there are about a thousand, or large ones. Limits its work, because callers
    /// have other work to do; the next calls drop the rest.
    pub(crate) fn sweep_if_due(&self) {
        const SOME: usize = 1_024;
        if self.candidates.is_due() {
            self.sweep_at_most(SOME);
        } else {
            self.shared.tidy_if_due();
        }
    }

    /// Drops all unused results, if there are any.
    pub(crate) fn sweep_leftovers(&self) {
        if !self.candidates.nodes.lock().is_empty() {
            self.sweep_at_most(usize::MAX);
        }
    }

    /// Drops every result that no root depends on.
    #[cfg(test)]
    pub(crate) fn sweep(&self) {
        self.sweep_at_most(usize::MAX);
    }

    /// Examines at most that many candidates. Returns at once if another thread is sweeping.
    fn sweep_at_most(&self, most: usize) {
        /// Nodes swept under one read lock; a new world waits for at most that many.
        const AT_A_TIME: usize = 256;
        let Some(_sweeping) = self.candidates.sweeping.try_lock() else { return };
        let (began, before) = (Instant::now(), self.len());
        let mut open = self.candidates.take();
        let mut held = Vec::new();
        let mut looked_at = 0;
        while looked_at < most && !open.is_empty() {
            // Freed after the lock is released, because some are large.
            let mut gone = Vec::with_capacity(AT_A_TIME);
            // Excludes `advance`, which would upgrade references to readers that are about to be dropped.
            let _current = self.current.read();
            for _ in 0..AT_A_TIME {
                let Some(node) = open.pop_front() else { break };
                looked_at += 1;
                // Cleared before the check: a thread that releases the node afterwards makes it a candidate
                // again.
                node.is_candidate.swap(false, Ordering::AcqRel);
                if !node.is_unused() {
                    continue;
                }
                if node.query.forget(self, &node) {
                    self.unlink(&node, &mut open);
                    gone.push(node);
                } else {
                    held.push(node);
                }
            }
        }
        // Another thread is computing them, or about to make them roots or readers.
        held.iter().for_each(|node| self.candidates.add_if_unused(node));
        let is_done = open.is_empty();
        self.candidates.put_back(open);
        if is_done {
            fit(&mut self.facts.lock());
            self.shared.tidy();
        }
        tracing::debug!(before, kept = self.len(), time = ?began.elapsed(), "dropped unused results");
    }

    /// Removes an unused node from the readers of what it read. Nodes without other readers are swept next.
    fn unlink(&self, node: &Node, open: &mut VecDeque<Arc<Node>>) {
        let reads = std::mem::take(&mut node.result.lock().reads);
        let mut facts = self.facts.lock();
        reads.facts.iter().for_each(|fact| remove_reader(&mut facts, fact, node.id));
        drop(facts);
        for read in reads.nodes {
            read.readers.lock().remove(node.id);
            if read.is_unused() && !read.is_candidate.swap(true, Ordering::AcqRel) {
                open.push_front(read);
            }
        }
    }
}
