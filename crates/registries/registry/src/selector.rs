//! Index of label selectors: finds those that match a set of labels without a walk over all selectors.

use pilotfish_model::{Labels, Namespace, Workload, label_subset};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Selectors of one kind of owner, by namespace. Each is indexed by its first label only, because labels that
/// match a selector must contain that one; candidates are then compared in full.
#[derive(Clone, Debug)]
pub struct SelectorIndex<O> {
    selectors: BTreeMap<O, (Namespace, Labels)>,
    /// Sorted owners. Most lists have one entry, for which a list needs far less memory than a set.
    by_label: BTreeMap<(Namespace, Arc<str>, Arc<str>), Vec<O>>,
    match_all: BTreeMap<Namespace, Vec<O>>,
}

impl<O> Default for SelectorIndex<O> {
    fn default() -> Self {
        Self { selectors: BTreeMap::new(), by_label: BTreeMap::new(), match_all: BTreeMap::new() }
    }
}

impl<O: Ord + Clone> SelectorIndex<O> {
    /// Sets or replaces the selector of an owner. An empty selector matches everything in the namespace.
    pub fn set(&mut self, owner: O, namespace: Namespace, selector: Labels) {
        if self.selectors.get(&owner).is_some_and(|(ns, old)| *ns == namespace && *old == selector) {
            return;
        }
        self.remove(&owner);
        match selector.iter().next() {
            Some((key, value)) => {
                let at = (namespace.clone(), key.clone(), value.clone());
                put(self.by_label.entry(at).or_default(), &owner);
            }
            None => {
                put(self.match_all.entry(namespace.clone()).or_default(), &owner);
            }
        }
        self.selectors.insert(owner, (namespace, selector));
    }

    /// Removes the selector of an owner.
    pub(crate) fn remove(&mut self, owner: &O) {
        let Some((namespace, selector)) = self.selectors.remove(owner) else { return };
        match selector.iter().next() {
            Some((key, value)) => {
                let at = (namespace, key.clone(), value.clone());
                take(&mut self.by_label, &at, owner);
            }
            None => take(&mut self.match_all, &namespace, owner),
        }
    }

    /// Returns the owners whose selectors match, sorted.
    #[must_use]
    pub fn matching(&self, namespace: &Namespace, labels: &Labels) -> BTreeSet<O> {
        let mut found: BTreeSet<O> = self.match_all.get(namespace).into_iter().flatten().cloned().collect();
        for (key, value) in labels.iter() {
            let at = (namespace.clone(), key.clone(), value.clone());
            for owner in self.by_label.get(&at).into_iter().flatten() {
                let full = self.selectors.get(owner);
                if full.is_some_and(|(_, selector)| label_subset(&**selector, labels)) {
                    found.insert(owner.clone());
                }
            }
        }
        found
    }

    /// Returns the owners that select a workload; none without a workload.
    pub(crate) fn of_workload(&self, workload: Option<&Workload>) -> BTreeSet<O> {
        let matching = |workload: &Workload| self.matching(&workload.key.namespace, &workload.labels);
        workload.map(matching).unwrap_or_default()
    }
}

fn put<O: Ord + Clone>(owners: &mut Vec<O>, owner: &O) {
    if let Err(place) = owners.binary_search(owner) {
        if owners.is_empty() {
            owners.reserve_exact(1);
        }
        owners.insert(place, owner.clone());
    }
}

fn take<K: Ord, O: Ord>(index: &mut BTreeMap<K, Vec<O>>, at: &K, owner: &O) {
    if let Some(owners) = index.get_mut(at) {
        if let Ok(place) = owners.binary_search(owner) {
            owners.remove(place);
        }
        if owners.is_empty() {
            index.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Arc::new(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn selectors_match_by_all_their_labels_in_their_namespace() {
        let mut index = SelectorIndex::default();
        index.set(1, "a".into(), labels(&[("app", "web")]));
        index.set(2, "a".into(), labels(&[("app", "web"), ("version", "v2")]));
        index.set(3, "a".into(), labels(&[]));
        index.set(4, "b".into(), labels(&[("app", "web")]));
        let web = labels(&[("app", "web"), ("x", "y")]);
        assert_eq!(index.matching(&"a".into(), &web), [1, 3].into());
        assert_eq!(index.matching(&"b".into(), &web), [4].into());
        index.set(4, "a".into(), labels(&[("x", "y")]));
        index.remove(&3);
        assert_eq!(index.matching(&"a".into(), &web), [1, 4].into());
        assert_eq!(index.matching(&"b".into(), &web), [].into());
        index.remove(&1);
        index.remove(&4);
        assert!(index.match_all.is_empty());
        assert_eq!(index.by_label.len(), 1);
    }
}
