//! Revisions since which recently changed objects are in force.

use pilotfish_model::{ChangeSet, Fact, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of remembered changes.
const REMEMBERED: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct ChangedObjects {
    /// Objects with their revisions, the newest last.
    changes: VecDeque<(ObjectKey, u64)>,
    /// Latest possible revision of objects that are not among the changes.
    before: u64,
}

impl ChangedObjects {
    /// Records the changed objects of a publication.
    pub(super) fn note(&mut self, revision: u64, changes: &ChangeSet) {
        let keys = changes.facts.iter().filter_map(|fact| match fact {
            Fact::Object(key) => Some(key),
            _ => None,
        });
        for key in keys {
            if self.changes.len() == REMEMBERED
                && let Some((_, forgotten)) = self.changes.pop_front()
            {
                self.before = forgotten;
            }
            self.changes.push_back((key.clone(), revision));
        }
    }

    /// The revision of an object's newest version.
    pub(super) fn revision_of(&self, key: &ObjectKey) -> u64 {
        self.find(key).unwrap_or(self.before)
    }

    /// True if the object is among the recent changes.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.find(key).is_some()
    }

    /// Revisions of those objects that changed recently, in one pass over the changes.
    pub(super) fn revisions_of(&self, keys: &BTreeSet<&ObjectKey>) -> BTreeMap<ObjectKey, u64> {
        let among = self.changes.iter().filter(|(changed, _)| keys.contains(changed));
        // A later one replaces an earlier one.
        among.cloned().collect()
    }

    fn find(&self, key: &ObjectKey) -> Option<u64> {
        self.changes.iter().rev().find(|(changed, _)| changed == key).map(|(_, revision)| *revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::Kind;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(Kind::VirtualService, "shop", name)
    }

    fn changes(names: &[String]) -> ChangeSet {
        ChangeSet { facts: names.iter().map(|name| Fact::Object(key(name))).collect() }
    }

    #[test]
    fn the_newest_change_of_an_object_counts() {
        let mut changed = ChangedObjects::default();
        changed.note(1, &changes(&["a".into(), "b".into()]));
        changed.note(2, &changes(&["a".into()]));
        assert_eq!((changed.revision_of(&key("a")), changed.revision_of(&key("b"))), (2, 1));
        assert_eq!((changed.revision_of(&key("c")), changed.has(&key("c"))), (0, false));
        let (a, c) = (key("a"), key("c"));
        assert_eq!(changed.revisions_of(&[&a, &c].into()), [(a.clone(), 2)].into());
    }

    #[test]
    fn what_is_forgotten_is_in_force_since_the_newest_that_is_forgotten() {
        let mut changed = ChangedObjects::default();
        changed.note(1, &changes(&["a".into()]));
        for revision in 2..=10 {
            let names: Vec<String> = (0..REMEMBERED / 4).map(|n| format!("{revision}-{n}")).collect();
            changed.note(revision, &changes(&names));
        }
        assert_eq!(changed.changes.len(), REMEMBERED);
        assert_eq!(changed.revision_of(&key("a")), 6);
        assert_eq!(changed.revision_of(&key("10-0")), 10);
    }
}
