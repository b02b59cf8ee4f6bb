//! Limit on the endpoints of the ServiceEntries of one namespace, so that no tenant uses the memory of all.
//!
//! Entries are in force from the oldest to the youngest as long as their endpoints fit; the order of
//! arrival does not matter.

use crate::links::Name;
use pilotfish_model::Namespace;
use std::collections::{BTreeMap, BTreeSet};

/// Limit on the endpoints of all ServiceEntries of a namespace: hosts times addresses times ports times
/// endpoints (limit `namespace-endpoints`).
pub const NAMESPACE_ENDPOINTS: usize = 1_000_000;

/// Endpoints of each entry, and the entries that exceed the limit of their namespace.
#[derive(Clone, Default)]
pub(super) struct Budget {
    /// Endpoints by namespace, in the order of precedence.
    costs: BTreeMap<Namespace, BTreeMap<(i64, Name), usize>>,
    created: BTreeMap<Name, i64>,
    refused: BTreeMap<Name, Refused>,
    changed: BTreeSet<Namespace>,
}

/// Numbers of an entry that is not in force because of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// Number of endpoints of the entry.
    pub(super) endpoints: usize,
    /// Number of endpoints of the older entries in force.
    pub(super) older: usize,
}

impl Budget {
    /// Sets the creation time and number of endpoints of an entry; `None` removes it.
    pub(super) fn set(&mut self, name: &Name, cost: Option<(i64, usize)>) {
        let of_namespace = self.costs.entry(name.namespace.clone()).or_default();
        let known = self.created.get(name).copied();
        let before =
            known.and_then(|created| Some((created, of_namespace.remove(&(created, name.clone()))?)));
        match cost {
            Some((created, endpoints)) => {
                of_namespace.insert((created, name.clone()), endpoints);
                self.created.insert(name.clone(), created);
            }
            None => {
                self.created.remove(name);
            }
        }
        if before != cost || of_namespace.is_empty() {
            self.changed.insert(name.namespace.clone());
        }
    }

    /// Applies the limit again in namespaces with changes. Returns the entries that come into force or leave
    /// it; `None` if no refusal has changed.
    pub(super) fn settle(&mut self) -> Option<Vec<Name>> {
        let (mut flipped, mut differs) = (Vec::new(), false);
        for namespace in std::mem::take(&mut self.changed) {
            let refused = self.refused_in(&namespace);
            let first = Name { namespace: namespace.clone(), name: "".into() };
            let before: BTreeMap<Name, Refused> = self
                .refused
                .range(first..)
                .take_while(|(name, _)| name.namespace == namespace)
                .map(|(name, refused)| (name.clone(), *refused))
                .collect();
            differs |= before != refused;
            flipped.extend(before.keys().filter(|name| !refused.contains_key(*name)).cloned());
            flipped.extend(refused.keys().filter(|name| !before.contains_key(*name)).cloned());
            self.refused.retain(|name, _| !before.contains_key(name));
            self.refused.extend(refused);
            if self.costs.get(&namespace).is_some_and(BTreeMap::is_empty) {
                self.costs.remove(&namespace);
            }
        }
        differs.then_some(flipped)
    }

    fn refused_in(&self, namespace: &Namespace) -> BTreeMap<Name, Refused> {
        let (mut refused, mut older) = (BTreeMap::new(), 0_usize);
        for ((_, name), endpoints) in self.costs.get(namespace).into_iter().flatten() {
            let endpoints = *endpoints;
            if older.saturating_add(endpoints) > NAMESPACE_ENDPOINTS {
                refused.insert(name.clone(), Refused { endpoints, older });
            } else {
                older += endpoints;
            }
        }
        refused
    }

    /// True for an entry that exceeds the limit.
    pub(super) fn refuses(&self, name: &Name) -> bool {
        self.refused.contains_key(name)
    }

    /// Returns the entries that exceed the limit.
    pub(super) fn refused(&self) -> &BTreeMap<Name, Refused> {
        &self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name { namespace: "shop".into(), name: name.into() }
    }

    fn refused(budget: &Budget) -> Vec<&str> {
        budget.refused().keys().map(|name| &*name.name).collect()
    }

    #[test]
    fn youngest_entries_beyond_the_bound_are_refused_whatever_the_order_of_arrival() {
        let entries = [("a", 3, 600_000), ("b", 1, 600_000), ("c", 2, 300_000), ("d", 4, 100_000)];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let mut budget = Budget::default();
            for place in order {
                let (entry, created, endpoints) = entries[place];
                budget.set(&name(entry), Some((created, endpoints)));
                budget.settle();
            }
            assert_eq!(refused(&budget), ["a"], "b and c are older, and d fits");
            let Refused { endpoints, older } = budget.refused()[&name("a")];
            assert_eq!((endpoints, older), (600_000, 900_000));
        }
    }

    #[test]
    fn entry_comes_into_force_when_an_older_one_shrinks_or_goes() {
        for change in [None, Some((1, 10))] {
            let mut budget = Budget::default();
            budget.set(&name("a"), Some((1, NAMESPACE_ENDPOINTS)));
            budget.set(&name("b"), Some((2, 1)));
            assert_eq!(budget.settle(), Some(vec![name("b")]));
            budget.set(&name("a"), Some((1, NAMESPACE_ENDPOINTS)));
            assert_eq!(budget.settle(), None, "nothing differs");
            budget.set(&name("a"), change);
            assert_eq!(budget.settle(), Some(vec![name("b")]));
            assert!(refused(&budget).is_empty());
        }
    }

    #[test]
    fn other_namespace_has_a_bound_of_its_own() {
        let mut budget = Budget::default();
        budget.set(&name("a"), Some((1, NAMESPACE_ENDPOINTS)));
        let other = Name { namespace: "other".into(), name: "a".into() };
        budget.set(&other, Some((2, NAMESPACE_ENDPOINTS)));
        assert_eq!(budget.settle(), None);
        budget.set(&other, Some((2, usize::MAX)));
        assert_eq!(budget.settle(), Some(vec![other]));
    }
}
