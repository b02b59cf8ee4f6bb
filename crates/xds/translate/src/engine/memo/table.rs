//! The tables of the memo: for each type of query, its nodes.

use super::{Memo, Node, Query, Value};
use crate::engine::Cx;
use parking_lot::RwLock;
use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

/// A query with its type erased.
pub(super) trait AnyQuery: Send + Sync + Debug {
    fn compute(&self, cx: &Cx<'_>) -> Value;
    fn equal(&self, a: &Value, b: &Value) -> bool;
    fn reconcile(&self, old: Option<&Value>, new: Value, revision: u64) -> Value;
    fn as_any(&self) -> &dyn Any;
    /// Removes the node, of which the caller has a reference, from the table if nobody else has one. Must be
    /// called under a lock of the world.
    fn forget(&self, memo: &Memo, node: &Arc<Node>) -> bool;
}

impl<Q: Query> AnyQuery for Q {
    fn compute(&self, cx: &Cx<'_>) -> Value {
        Arc::new(Q::share(Query::compute(self, cx), cx.shared()))
    }

    fn equal(&self, a: &Value, b: &Value) -> bool {
        match (a.downcast_ref::<Q::Output>(), b.downcast_ref::<Q::Output>()) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }

    fn reconcile(&self, old: Option<&Value>, new: Value, revision: u64) -> Value {
        let before = old.and_then(|old| old.downcast_ref::<Q::Output>());
        match new.downcast::<Q::Output>().map(Arc::try_unwrap) {
            Ok(Ok(after)) => Arc::new(Q::reconcile(before, after, revision)),
            Ok(Err(shared)) => shared,
            Err(new) => new,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn forget(&self, memo: &Memo, node: &Arc<Node>) -> bool {
        Table::<Q>::of(&*memo.table::<Q>()).forget(self, node)
    }
}

/// All nodes of one query type.
pub(super) trait AnyTable: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn len(&self) -> usize;
}

pub(super) struct Table<Q: Query> {
    pub(super) nodes: RwLock<HashMap<Arc<Q>, Arc<Node>>>,
}

impl<Q: Query> Table<Q> {
    pub(super) fn of(table: &dyn AnyTable) -> &Self {
        table.as_any().downcast_ref().expect("tables are kept by the type of their query")
    }

    fn forget(&self, query: &Q, node: &Arc<Node>) -> bool {
        /// The table's reference and the caller's.
        const OURS: usize = 2;
        let mut nodes = self.nodes.write();
        // Another holder of a reference could clone it; nobody else can obtain one while the table and the
        // world are locked.
        let is_free = Arc::strong_count(node) <= OURS;
        if is_free {
            nodes.remove(query);
            fit(&mut nodes);
        }
        is_free
    }
}

/// Shrinks a table that is mostly empty, so that names made up by clients do not occupy memory for ever.
pub(super) fn fit<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    const SMALL: usize = 1024;
    if table.capacity() > SMALL.max(4 * table.len()) {
        table.shrink_to(2 * table.len());
    }
}

impl<Q: Query> AnyTable for Table<Q> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn len(&self) -> usize {
        self.nodes.read().len()
    }
}
