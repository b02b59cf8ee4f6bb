//! Dropping results that nothing needs any more: those that are no roots and that no result reads.
//!
//! They are known from where they are let go, so a sweep costs what there is to drop, however large the world is. It takes the read side
//! of the world's lock for a few results at a time: others compute meanwhile, and the next world waits for those few at most.

use super::{Memo, Node, fit, remove_reader};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Results that may not be needed any more. All that are not are among them; others may be.
#[derive(Default)]
pub(super) struct Candidates {
    nodes: Mutex<Vec<Arc<Node>>>,
    /// Bytes of what is no root any more since the last sweep.
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
            self.nodes.lock().push(node.clone());
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

    fn take(&self) -> Vec<Arc<Node>> {
        self.weight.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.nodes.lock())
    }
}

impl Node {
    fn is_unused(&self) -> bool {
        !self.root.load(Ordering::Acquire) && self.readers.lock().is_empty()
    }
}

impl Memo {
    /// Drops every result that nothing needs, once there may be a thousand of them, or large ones.
    pub(crate) fn sweep_if_due(&self) {
        if self.candidates.is_due() {
            self.sweep();
        } else {
            self.shared.tidy_if_due();
        }
    }

    /// Drops every result that nothing needs, if there are any.
    pub(crate) fn sweep_leftovers(&self) {
        if !self.candidates.nodes.lock().is_empty() {
            self.sweep();
        }
    }

    /// Drops every result that no root depends on. If another thread is doing that, it is left to it.
    pub(crate) fn sweep(&self) {
        /// How many results the next world waits for.
        const AT_A_TIME: usize = 256;
        let Some(_sweeping) = self.candidates.sweeping.try_lock() else { return };
        let (began, before) = (Instant::now(), self.len());
        let mut open = self.candidates.take();
        let mut held = Vec::new();
        while !open.is_empty() {
            // The read side: a world that comes asks for readers that are about to be gone.
            let _current = self.current.read();
            for _ in 0..AT_A_TIME {
                let Some(node) = open.pop() else { break };
                // Before it is looked at: who lets it go afterwards makes it a candidate again.
                node.is_candidate.swap(false, Ordering::AcqRel);
                if !node.is_unused() {
                    continue;
                }
                match node.query.forget(self, &node) {
                    true => self.unlink(&node, &mut open),
                    false => held.push(node),
                }
            }
        }
        // Somebody is computing them, or about to make them roots or readers of others.
        held.iter().for_each(|node| self.candidates.add_if_unused(node));
        fit(&mut self.facts.lock());
        self.shared.tidy();
        tracing::debug!(before, kept = self.len(), time = ?began.elapsed(), "dropped results that nothing needs");
    }

    /// Takes a node, which nobody else has, off what it reads. What nothing else reads is to be dropped next.
    fn unlink(&self, node: &Node, open: &mut Vec<Arc<Node>>) {
        let reads = std::mem::take(&mut node.result.lock().reads);
        let mut facts = self.facts.lock();
        reads.facts.iter().for_each(|fact| remove_reader(&mut facts, fact, node.id));
        drop(facts);
        for read in reads.nodes {
            read.readers.lock().remove(node.id);
            if read.is_unused() && !read.is_candidate.swap(true, Ordering::AcqRel) {
                open.push(read);
            }
        }
    }
}
