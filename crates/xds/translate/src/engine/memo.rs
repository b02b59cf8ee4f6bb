//! The memo: results of pure queries over the world, kept while nothing that they read has changed.
//!
//! A [`Query`] computes a value from the world and from other queries, through a [`Cx`] that records each
//! read. The memo keeps the value with these reads. When a new world arrives with the facts that changed,
//! [`Memo::advance`] walks from those facts to everything that read them, directly or through other queries,
//! and marks it; nothing else is visited. A marked result is checked when it is read: if all queries that it
//! read still have their old values it stays as it is, otherwise it is computed again, and if the new value
//! equals the old one, its readers are unaffected.
//!
//! ```text
//! Fact ──read by──▶ Node(query, value, reads) ──read by──▶ Node ──▶ ... ──▶ root nodes: resources of proxies
//! ```
//!
//! Locking: computing takes the read side of one lock, `advance` the write side, so a computation sees one
//! world. Readers that need many results check between them whether the next world waits
//! ([`Memo::is_waited_for`]) and release the lock, so it waits for single results. A node's own lock is held
//! while it is computed, so each result is computed once however many read it; queries never need their own
//! result, so these locks are always taken in one direction.
//!
//! Invariant: a reader of a node that is not fresh is not fresh either. So marking stops at nodes that are
//! already marked, and a root that was brought up to date after the last world is reported by the next one
//! that touches it.
//!
//! Every result that is no root and has no readers is a candidate of the next [sweep](sweep), from the moment
//! in which it is made.

mod readers;
mod reads;
mod sweep;
mod table;

pub(crate) use reads::Reading;

use super::TranslationSettings;
use crate::engine::{Cx, Shared};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use pilotfish_model::ClusterDomain;
use pilotfish_model::{ChangeSet, Fact, World};
use readers::Readers;
use reads::{Reads, beside};
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use sweep::Candidates;
use table::{AnyQuery, AnyTable, Table};

/// A pure function of the world, identified by its arguments.
pub(crate) trait Query: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Result of the query. If a recomputed output equals the old one, its readers stay valid.
    type Output: PartialEq + Send + Sync + 'static;

    /// Computes the output. Everything that it depends on must be its own fields or be read through `cx`.
    fn compute(&self, cx: &Cx<'_>) -> Self::Output;

    /// Shares parts of an output with other results that are equal in them. The output stays equal.
    fn share(output: Self::Output, _shared: &Shared) -> Self::Output {
        output
    }

    /// Size of the output in bytes, if it is large.
    fn weight(_output: &Self::Output) -> usize {
        0
    }

    /// Combines a new output with the previous one, if any; for outputs whose parts have a history of their
    /// own.
    fn reconcile(_old: Option<&Self::Output>, new: Self::Output, _revision: u64) -> Self::Output {
        new
    }
}

/// The value is up to date.
const FRESH: u8 = 0;
/// A query that it read may have another value.
const SUSPECT: u8 = 1;
/// A fact that it read changed, or it was never computed.
const STALE: u8 = 2;

type Value = Arc<dyn Any + Send + Sync>;

/// One memoised result. A large world has hundreds of thousands of them.
pub(crate) struct Node {
    id: u64,
    /// Shared with the table that contains the node.
    query: Arc<dyn AnyQuery>,
    state: AtomicU8,
    result: Mutex<Result>,
    /// Nodes that read this node.
    readers: Mutex<Readers>,
    /// True if proxies are sent this result; `advance` then reports it with its old value.
    root: AtomicBool,
    /// True if the node is queued for the next sweep.
    is_candidate: AtomicBool,
}

impl Node {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

#[derive(Default)]
struct Result {
    value: Option<Value>,
    changed_at: u64,
    verified_at: u64,
    reads: Reads,
}

/// Stack of the running computations of a thread, innermost first.
pub(crate) struct Frame<'a> {
    node: &'a Node,
    outer: Option<&'a Frame<'a>>,
}

impl<'a> Frame<'a> {
    /// Pushes a computation. A query that needs its own result would deadlock.
    ///
    /// # Panics
    /// If the node is already being computed by this thread, which is a bug in the queries.
    fn enter(node: &'a Node, outer: Option<&'a Self>) -> Self {
        let frame = Self { node, outer };
        let is_free = frame.outer().all(|outer| outer.node.id != node.id);
        assert!(is_free, "query {:?} needs its own result, through {}", node.query, frame.chain());
        frame
    }

    fn chain(&self) -> String {
        let queries: Vec<_> = self.outer().map(|frame| format!("{:?}", frame.node.query)).collect();
        queries.join(" of ")
    }

    fn outer(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.outer, |frame| frame.outer)
    }
}

/// The world that results are computed from.
pub(crate) struct Current {
    pub(crate) world: Arc<World>,
    pub(crate) revision: u64,
}

/// Results by query, and the readers of each fact.
pub(crate) struct Memo {
    settings: TranslationSettings,
    current: RwLock<Current>,
    /// True while `advance` waits for the readers of the current world.
    waiting: AtomicBool,
    tables: RwLock<HashMap<TypeId, Arc<dyn AnyTable>>>,
    facts: Mutex<HashMap<Fact, Readers>>,
    roots: Mutex<BTreeMap<u64, Arc<Node>>>,
    next_id: AtomicU64,
    computed: AtomicU64,
    shared: Shared,
    candidates: Candidates,
}

/// A root whose value may differ in the new world, with its old value.
pub(crate) struct Touched {
    pub(crate) node: Arc<Node>,
    pub(crate) before: Value,
}

impl Touched {
    /// The query of the root, if it is of that type.
    pub(crate) fn query<Q: Query>(&self) -> Option<&Q> {
        self.node.query.as_any().downcast_ref()
    }

    /// The value that the root had, if it is of that query's type.
    pub(crate) fn before<Q: Query>(&self) -> Option<Arc<Q::Output>> {
        self.before.clone().downcast().ok()
    }
}

impl Memo {
    /// An empty memo for the domain `cluster.local`.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::with_settings(TranslationSettings::default())
    }

    /// An empty memo with these settings.
    pub(crate) fn with_settings(settings: TranslationSettings) -> Self {
        Self {
            settings,
            current: RwLock::new(Current { world: Arc::new(World::default()), revision: 0 }),
            waiting: AtomicBool::new(false),
            tables: RwLock::default(),
            facts: Mutex::default(),
            roots: Mutex::default(),
            next_id: AtomicU64::new(1),
            computed: AtomicU64::new(0),
            shared: Shared::default(),
            candidates: Candidates::default(),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn domain(&self) -> &ClusterDomain {
        &self.settings.domain
    }

    pub(crate) fn settings(&self) -> &TranslationSettings {
        &self.settings
    }

    /// Locks the current world for reading, until the guard is dropped. One thread must not lock it twice.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read()
    }

    /// Returns true while `advance` waits for the readers of the current world. Callers that compute many
    /// results check it between them and release the world.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Number of computations since the start, for metrics and for tests of what a change recomputes.
    pub(crate) fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    /// Number of results in the memo.
    pub(crate) fn len(&self) -> usize {
        self.tables.read().values().map(|table| table.len()).sum()
    }

    /// Makes `world` current and marks the results that its changes may affect. Returns the affected roots
    /// with their old values, and the guard of the new world.
    pub(crate) fn advance(
        &self,
        world: Arc<World>,
        changes: &ChangeSet,
    ) -> (RwLockReadGuard<'_, Current>, Vec<Touched>) {
        self.waiting.store(true, Ordering::Release);
        let mut current = self.current.write();
        self.waiting.store(false, Ordering::Release);
        current.world = world;
        current.revision += 1;
        let touched = self.mark(changes);
        (RwLockWriteGuard::downgrade(current), touched)
    }

    fn mark(&self, changes: &ChangeSet) -> Vec<Touched> {
        let mut open: Vec<Arc<Node>> = Vec::new();
        let mut touched = Vec::new();
        let facts = self.facts.lock();
        for fact in &changes.facts {
            for node in facts.get(fact).into_iter().flat_map(Readers::alive) {
                if node.state.swap(STALE, Ordering::AcqRel) == FRESH {
                    open.push(node);
                }
            }
        }
        drop(facts);
        while let Some(node) = open.pop() {
            for reader in node.readers.lock().alive() {
                if reader.state.compare_exchange(FRESH, SUSPECT, Ordering::AcqRel, Ordering::Acquire).is_ok()
                {
                    open.push(reader);
                }
            }
            if node.root.load(Ordering::Acquire) {
                let before = node.result.lock().value.clone();
                touched.extend(before.map(|before| Touched { node, before }));
            }
        }
        // Creation order makes the order of pushes independent of hash maps.
        touched.sort_by_key(|touched| touched.node.id);
        touched
    }

    fn table<Q: Query>(&self) -> Arc<dyn AnyTable> {
        let id = TypeId::of::<Q>();
        if let Some(table) = self.tables.read().get(&id) {
            return table.clone();
        }
        let new = || Arc::new(Table::<Q> { nodes: RwLock::default() }) as Arc<dyn AnyTable>;
        self.tables.write().entry(id).or_insert_with(new).clone()
    }

    /// The node of a query, if there is one.
    fn find<Q: Query>(&self, query: &Q) -> Option<Arc<Node>> {
        let table = self.table::<Q>();
        let nodes = Table::<Q>::of(&*table).nodes.read();
        nodes.get(query).cloned()
    }

    fn node<Q: Query>(&self, query: &Q) -> Arc<Node> {
        let table = self.table::<Q>();
        let table = Table::<Q>::of(&*table);
        if let Some(node) = table.nodes.read().get(query) {
            return node.clone();
        }
        let query = Arc::new(query.clone());
        let new = || {
            Arc::new(Node {
                id: self.next_id.fetch_add(1, Ordering::Relaxed),
                query: query.clone(),
                state: AtomicU8::new(STALE),
                result: Mutex::default(),
                readers: Mutex::default(),
                root: AtomicBool::new(false),
                is_candidate: AtomicBool::new(false),
            })
        };
        let node = table.nodes.write().entry(query.clone()).or_insert_with(new).clone();
        self.candidates.add_if_unused(&node);
        node
    }

    /// The value of a query in the current world.
    pub(crate) fn get<Q: Query>(&self, current: &Current, query: &Q) -> (Arc<Q::Output>, Arc<Node>) {
        self.get_within(current, query, None)
    }

    /// As `get`, from within a computation.
    pub(crate) fn get_within<Q: Query>(
        &self,
        current: &Current,
        query: &Q,
        outer: Option<&Frame<'_>>,
    ) -> (Arc<Q::Output>, Arc<Node>) {
        let node = self.node(query);
        (self.value::<Q>(current, &node, outer), node)
    }

    /// The value of a node of that query's type.
    ///
    /// # Panics
    /// When its query is of another type.
    pub(crate) fn value<Q: Query>(
        &self,
        current: &Current,
        node: &Arc<Node>,
        outer: Option<&Frame<'_>>,
    ) -> Arc<Q::Output> {
        let value = self.refresh(current, node, outer);
        value.downcast().expect("a node's value has its query's type")
    }

    /// Makes the node a root, which `advance` reports when it is affected. The guard under which the node's
    /// value was read must still be held, or a world published in between would not be reported.
    pub(crate) fn set_root(&self, node: Arc<Node>) {
        node.root.store(true, Ordering::Release);
        self.roots.lock().insert(node.id, node);
    }

    /// Removes the node from the roots. The next sweep drops it unless another result reads it.
    pub(crate) fn unroot<Q: Query>(&self, query: &Q) {
        let Some(node) = self.find(query) else { return };
        node.root.store(false, Ordering::Release);
        self.roots.lock().remove(&node.id);
        let weight = node.result.lock().value.as_ref().and_then(|value| value.downcast_ref().map(Q::weight));
        self.candidates.add_weight(weight.unwrap_or_default());
        self.candidates.add_if_unused(&node);
    }

    /// Like [`Self::unroot`], for a query of that many bytes: a few large ones are enough to make a sweep
    /// due.
    pub(crate) fn unroot_heavy<Q: Query>(&self, query: &Q, bytes: usize) {
        self.unroot(query);
        self.candidates.add_weight(bytes);
    }

    fn refresh(&self, current: &Current, node: &Arc<Node>, outer: Option<&Frame<'_>>) -> Value {
        let frame = Frame::enter(node, outer);
        let mut result = node.result.lock();
        if let (FRESH, Some(value)) = (node.state.load(Ordering::Acquire), &result.value) {
            return value.clone();
        }
        if node.state.load(Ordering::Acquire) == SUSPECT && self.reads_hold(current, &result, &frame) {
            result.verified_at = current.revision;
        } else {
            self.compute(current, node, &mut result, &frame);
        }
        node.state.store(FRESH, Ordering::Release);
        result.value.clone().expect("computed just now or before")
    }

    /// Returns true if all queries that the result read still have the values that it read.
    fn reads_hold(&self, current: &Current, result: &Result, frame: &Frame<'_>) -> bool {
        result.value.is_some()
            && result.reads.nodes.iter().all(|read| {
                if read.state.load(Ordering::Acquire) != FRESH {
                    self.refresh(current, read, Some(frame));
                }
                read.result.lock().changed_at <= result.verified_at
            })
    }

    fn compute(&self, current: &Current, node: &Arc<Node>, result: &mut Result, frame: &Frame<'_>) {
        self.computed.fetch_add(1, Ordering::Relaxed);
        let cx = Cx::new(self, current, frame);
        let new = node.query.compute(&cx);
        let reads = cx.into_reading().finish();
        self.link(node, &result.reads, &reads);
        result.reads = reads;
        let old = result.value.take();
        result.value = Some(match old {
            Some(old) if node.query.equal(&old, &new) => old,
            old => {
                result.changed_at = current.revision;
                node.query.reconcile(old.as_ref(), new, current.revision)
            }
        });
        result.verified_at = current.revision;
    }

    /// Registers the node as reader of its new reads, and removes it from the readers of reads that it no
    /// longer has.
    fn link(&self, node: &Arc<Node>, old: &Reads, new: &Reads) {
        let weak = Arc::downgrade(node);
        if old.facts != new.facts {
            let mut facts = self.facts.lock();
            old.facts_beside(new).for_each(|fact| remove_reader(&mut facts, fact, node.id));
            for fact in new.facts_beside(old) {
                facts.entry(fact.clone()).or_default().insert(node.id, weak.clone());
            }
        }
        let (gone, come) = old.different_nodes(new);
        for read in beside(come, gone) {
            read.readers.lock().insert(node.id, weak.clone());
        }
        for read in beside(gone, come) {
            read.readers.lock().remove(node.id);
            self.candidates.add_if_unused(read);
        }
    }
}

fn remove_reader(facts: &mut HashMap<Fact, Readers>, fact: &Fact, id: u64) {
    if let Some(readers) = facts.get_mut(fact) {
        readers.remove(id);
        if readers.is_empty() {
            facts.remove(fact);
        }
    }
}

#[cfg(test)]
mod tests;
