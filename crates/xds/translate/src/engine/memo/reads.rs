//! Facts and nodes that a computation reads: while it runs, and as they are stored with its result.

use super::Node;
use pilotfish_model::Fact;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Reads of a running computation so far.
#[derive(Default)]
pub(crate) struct Reading {
    facts: BTreeSet<Fact>,
    nodes: Vec<Arc<Node>>,
    seen: HashSet<u64>,
}

impl Reading {
    pub(crate) fn fact(&mut self, fact: Fact) {
        self.facts.insert(fact);
    }

    pub(crate) fn node(&mut self, node: Arc<Node>) {
        if self.seen.insert(node.id()) {
            self.nodes.push(node);
        }
    }

    pub(super) fn finish(self) -> Reads {
        Reads { facts: self.facts.into_iter().collect(), nodes: self.nodes.into() }
    }
}

/// Dependencies of a result. Kept compact, because every result has them.
#[derive(Default)]
pub(super) struct Reads {
    /// Sorted, for binary search.
    pub(super) facts: Box<[Fact]>,
    /// In the order in which they were read.
    pub(super) nodes: Box<[Arc<Node>]>,
}

impl Reads {
    /// Returns the facts that are in these reads but not in the others.
    pub(super) fn facts_beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Fact> {
        self.facts.iter().filter(|fact| other.facts.binary_search(fact).is_err())
    }

    /// Returns both lists of nodes without their common prefix and suffix. The rest is mostly empty, because
    /// a computation usually repeats its reads.
    pub(super) fn different_nodes<'a>(&'a self, other: &'a Self) -> (&'a [Arc<Node>], &'a [Arc<Node>]) {
        let same = |(a, b): &(&Arc<Node>, &Arc<Node>)| Arc::ptr_eq(a, b);
        let (a, b) = (&self.nodes, &other.nodes);
        let head = a.iter().zip(b.iter()).take_while(same).count();
        let (a, b) = (a.get(head..).unwrap_or_default(), b.get(head..).unwrap_or_default());
        let tail = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
        (a.get(..a.len() - tail).unwrap_or_default(), b.get(..b.len() - tail).unwrap_or_default())
    }
}

/// Returns the nodes of one list that are not in the other.
pub(super) fn beside<'a>(
    nodes: &'a [Arc<Node>],
    others: &[Arc<Node>],
) -> impl Iterator<Item = &'a Arc<Node>> {
    let others: HashSet<u64> = others.iter().map(|node| node.id()).collect();
    nodes.iter().filter(move |node| !others.contains(&node.id()))
}
