//! Weak references to the readers of a node or fact. A reader that is dropped is removed.

use super::Node;
use super::table::fit;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Readers by id. Nearly every node has one or two, for which a map would be mostly empty; a few nodes have
/// very many, for which a list would be too slow.
#[derive(Default)]
pub(super) struct Readers(Kept);

#[allow(clippy::box_collection, reason = "what nearly all nodes do without must not make them larger")]
#[derive(Default)]
enum Kept {
    #[default]
    None,
    One((u64, Weak<Node>)),
    Few(Vec<(u64, Weak<Node>)>),
    Many(Box<HashMap<u64, Weak<Node>>>),
}

/// Maximum length of the list: up to it, a linear search is as fast as a map.
const FEW: usize = 8;

impl Readers {
    pub(super) fn insert(&mut self, id: u64, reader: Weak<Node>) {
        match &mut self.0 {
            Kept::None => self.0 = Kept::One((id, reader)),
            Kept::One(known) if known.0 == id => known.1 = reader,
            Kept::One(_) => {
                let Kept::One(known) = std::mem::take(&mut self.0) else { return };
                self.0 = Kept::Few(vec![known, (id, reader)]);
            }
            Kept::Many(map) => drop(map.insert(id, reader)),
            Kept::Few(list) => {
                if let Some(known) = list.iter_mut().find(|(other, _)| *other == id) {
                    known.1 = reader;
                } else if list.len() < FEW {
                    if list.len() == list.capacity() {
                        // Most nodes have two readers; then capacities of four and eight follow.
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
            Kept::None => {}
            Kept::One((known, _)) => {
                if *known == id {
                    self.0 = Kept::None;
                }
            }
            Kept::Few(list) => {
                list.retain(|(other, _)| *other != id);
                if list.len() < 2 {
                    self.0 = list.pop().map_or(Kept::None, Kept::One);
                }
            }
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
        matches!(self.0, Kept::None)
    }

    /// Readers that still exist.
    pub(super) fn alive(&self) -> impl Iterator<Item = Arc<Node>> + '_ {
        let (list, map) = match &self.0 {
            Kept::None => (&[][..], None),
            Kept::One(one) => (std::slice::from_ref(one), None),
            Kept::Few(list) => (&list[..], None),
            Kept::Many(map) => (&[][..], Some(map.values())),
        };
        list.iter().map(|(_, reader)| reader).chain(map.into_iter().flatten()).filter_map(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn one_reader_needs_no_more_room_than_none() {
        assert_eq!(size_of::<Readers>(), size_of::<Vec<(u64, Weak<Node>)>>());
    }

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
                Kept::None => BTreeSet::new(),
                Kept::One((id, _)) => BTreeSet::from([*id]),
                Kept::Few(list) => list.iter().map(|(id, _)| *id).collect(),
                Kept::Many(map) => map.keys().copied().collect(),
            }
        }
    }
}
