//! Who read something: weak, because readers may be dropped, which takes them off.

use super::Node;
use super::table::fit;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Readers by their ids. Nearly everything has one or two, for which a map is mostly empty space; a few things are read by
/// everything, so that a list would be searched for ever.
#[derive(Default)]
pub(super) struct Readers(Kept);

#[allow(clippy::box_collection, reason = "what nearly all nodes do without must not make them larger")]
enum Kept {
    Few(Vec<(u64, Weak<Node>)>),
    Many(Box<HashMap<u64, Weak<Node>>>),
}

impl Default for Kept {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// As many are searched as fast as a map is.
const FEW: usize = 8;

impl Readers {
    pub(super) fn insert(&mut self, id: u64, reader: Weak<Node>) {
        match &mut self.0 {
            Kept::Many(map) => drop(map.insert(id, reader)),
            Kept::Few(list) => {
                if let Some(known) = list.iter_mut().find(|(other, _)| *other == id) {
                    known.1 = reader;
                } else if list.len() < FEW {
                    if list.len() == list.capacity() {
                        // One is what most have; two, four and eight follow.
                        list.reserve_exact(list.len().max(1));
                    }
                    list.push((id, reader));
                } else {
                    let all = list.drain(..).chain([(id, reader)]).collect();
                    self.0 = Kept::Many(Box::new(all));
                }
            }
        }
    }

    pub(super) fn remove(&mut self, id: u64) {
        match &mut self.0 {
            Kept::Few(list) => list.retain(|(other, _)| *other != id),
            Kept::Many(map) => {
                map.remove(&id);
                if map.len() <= FEW / 2 {
                    self.0 = Kept::Few(map.drain().collect());
                } else {
                    fit(map);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.0 {
            Kept::Few(list) => list.is_empty(),
            Kept::Many(map) => map.is_empty(),
        }
    }

    /// Those that are still there.
    pub(super) fn alive(&self) -> impl Iterator<Item = Arc<Node>> + '_ {
        let (few, many) = match &self.0 {
            Kept::Few(list) => (&list[..], None),
            Kept::Many(map) => (&[][..], Some(map.values())),
        };
        few.iter().map(|(_, reader)| reader).chain(many.into_iter().flatten()).filter_map(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn few_and_many_are_kept_alike() {
        let gone = Weak::new();
        let mut readers = Readers::default();
        let mut known = BTreeSet::new();
        // Up and down over the limit, with every reader noted twice.
        for id in 0..3 * FEW as u64 {
            readers.insert(id, gone.clone());
            readers.insert(id, gone.clone());
            known.insert(id);
            if id % 3 == 0 {
                readers.remove(id);
                known.remove(&id);
            }
            assert_eq!(readers.ids(), known);
        }
        for id in known.clone() {
            readers.remove(id);
            known.remove(&id);
            assert_eq!((readers.ids(), readers.is_empty()), (known.clone(), known.is_empty()));
        }
    }

    impl Readers {
        pub(in crate::engine::memo) fn ids(&self) -> BTreeSet<u64> {
            match &self.0 {
                Kept::Few(list) => list.iter().map(|(id, _)| *id).collect(),
                Kept::Many(map) => map.keys().copied().collect(),
            }
        }
    }
}
