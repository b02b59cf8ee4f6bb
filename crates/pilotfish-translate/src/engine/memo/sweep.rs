//! Dropping results that nothing needs any more: those that are no roots and that no result reads.
//!
//! They are known from where they are let go, so a sweep costs what there is to drop, however large the world is. It takes the read side
//! of the world's lock for a few results at a time: others compute meanwhile, and the next world waits for those few at most.

use super::table::fit;
use super::{Memo, Node, remove_reader};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Results that may not be needed any more. All that are not are among them; others may be.
#[derive(Default)]
pub(super) struct Candidates {
    /// The oldest first.
    nodes: Mutex<VecDeque<Arc<Node>>>,
    /// Bytes of what is no root any more since all candidates were looked at.
    weight: AtomicUsize,
    /// Held by the sweep that is going on.
    sweeping: Mutex<()>,
}

impl Candidates {
    /// To be called after each change by which the node may be needed by nothing.
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

    /// What was taken and not looked at.
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
    /// Drops results that nothing needs, once there may be a thousand of them, or large ones: some of them, as whoever calls this has more
    /// to do. The others are dropped by the next calls.
    pub(crate) fn sweep_if_due(&self) {
        const SOME: usize = 1_024;
        if self.candidates.is_due() {
            self.sweep_at_most(SOME);
        } else {
            self.shared.tidy_if_due();
        }
    }

    /// Drops every result that nothing needs, if there are any.
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

    /// Looks at so many candidates. If another thread is doing that, it is left to it.
    fn sweep_at_most(&self, most: usize) {
        /// How many the next world waits for.
        const AT_A_TIME: usize = 256;
        let Some(_sweeping) = self.candidates.sweeping.try_lock() else { return };
        let (began, before) = (Instant::now(), self.len());
        let mut open = self.candidates.take();
        let mut held = Vec::new();
        let mut looked_at = 0;
        while looked_at < most && !open.is_empty() {
            // They are freed when the lock was given back: some are large.
            let mut gone = Vec::with_capacity(AT_A_TIME);
            // The read side: a world that comes asks for readers that are about to be gone.
            let _current = self.current.read();
            for _ in 0..AT_A_TIME {
                let Some(node) = open.pop_front() else { break };
                looked_at += 1;
                // Before it is looked at: who lets it go afterwards makes it a candidate again.
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
        // Somebody is computing them, or about to make them roots or readers of others.
        held.iter().for_each(|node| self.candidates.add_if_unused(node));
        let is_done = open.is_empty();
        self.candidates.put_back(open);
        if is_done {
            fit(&mut self.facts.lock());
            self.shared.tidy();
        }
        tracing::debug!(before, kept = self.len(), time = ?began.elapsed(), "dropped results that nothing needs");
    }

    /// Takes a node, which nobody else has, off what it reads. What nothing else reads is to be dropped next.
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
