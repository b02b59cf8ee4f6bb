//! Labels and metadata as a sorted slice in one allocation.

use std::sync::Arc;

/// A map of texts, sorted by key, in one allocation of exact size. Equal texts of many instances are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMap(Box<[(Arc<str>, Arc<str>)]>);

impl TextMap {
    /// Returns the entries, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>)> + Clone {
        self.0.iter().map(|(key, value)| (key, value))
    }

    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all texts mutably, for interning.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (Arc<str>, Arc<str>)> {
        self.0.iter_mut()
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for TextMap {
    /// The last value of a repeated key wins.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        let mut entries: Vec<(Arc<str>, Arc<str>)> = entries.collect();
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        entries.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                std::mem::swap(&mut later.1, &mut kept.1);
            }
            is_same
        });
        Self(entries.into_boxed_slice())
    }
}

impl<const N: usize> From<[(Arc<str>, Arc<str>); N]> for TextMap {
    fn from(entries: [(Arc<str>, Arc<str>); N]) -> Self {
        entries.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn text_map_equals_a_tree(entries in proptest::collection::vec(("[a-d]{0,2}", "[x-z]?"), 0..12)) {
            let map: TextMap = entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let tree: BTreeMap<String, String> = entries.into_iter().collect();
            let found: Vec<_> = map.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            prop_assert_eq!(found, tree.clone().into_iter().collect::<Vec<_>>());
            for (key, value) in &tree {
                prop_assert_eq!(map.get(key).map(|found| &**found), Some(value.as_str()));
            }
            prop_assert_eq!((map.len(), map.is_empty(), map.get("e")), (tree.len(), tree.is_empty(), None));
        }
    }
}
