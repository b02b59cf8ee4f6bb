//! Labels: small string maps, of which a large world has very many.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Labels of an object, workload or endpoint, by key. Shared, since many endpoints have equal ones.
pub type Labels = Arc<LabelMap>;

/// Immutable string map as a sorted list, since the smallest `BTreeMap` takes half a kilobyte. Strings are
/// shared with the maps that it was built from.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelMap(Box<[(Arc<str>, Arc<str>)]>);

impl LabelMap {
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.shared(key).map(|value| &**value)
    }

    /// Shared value of a key.
    #[must_use]
    pub fn shared(&self, key: &str) -> Option<&Arc<str>> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the keys in ascending order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Keys and values, in order of the keys.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.0.iter())
    }

    /// Labels whose keys match.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let wanted = self.iter().filter(|(key, _)| is_wanted(key));
        wanted.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Copies the labels with others added or replaced.
    #[must_use]
    pub fn with(&self, others: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        self.iter().map(|(key, value)| (key.clone(), value.clone())).chain(others).collect()
    }
}

/// Iterator over a [`LabelMap`], in order of the keys.
#[derive(Clone, Debug)]
pub struct Iter<'a>(std::slice::Iter<'a, (Arc<str>, Arc<str>)>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Arc<str>, &'a Arc<str>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<'a> IntoIterator for &'a LabelMap {
    type Item = (&'a Arc<str>, &'a Arc<str>);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for LabelMap {
    /// The last of several values for one key wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut list: Vec<(Arc<str>, Arc<str>)> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        if !list.is_sorted_by(|(a, _), (b, _)| a < b) {
            // Stable, so that the last of equal keys stays the last.
            list.sort_by(|(a, _), (b, _)| a.cmp(b));
            list.reverse();
            list.dedup_by(|(a, _), (b, _)| a == b);
            list.reverse();
        }
        Self(list.into())
    }
}

impl From<&BTreeMap<String, String>> for LabelMap {
    fn from(map: &BTreeMap<String, String>) -> Self {
        map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }
}

impl From<&LabelMap> for BTreeMap<String, String> {
    fn from(labels: &LabelMap) -> Self {
        labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }
}

impl fmt::Debug for LabelMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for LabelMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(key, value)| (&**key, &**value)))
    }
}

impl<'de> Deserialize<'de> for LabelMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = LabelMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelMap, A::Error> {
                let mut list: Vec<(String, String)> = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    list.push(pair);
                }
                Ok(list.into_iter().collect())
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

/// True if `labels` has every label of `selector` with the same value. An empty selector matches everything.
#[must_use]
pub fn label_subset<'a, K, V>(selector: impl IntoIterator<Item = (&'a K, &'a V)>, labels: &LabelMap) -> bool
where
    K: AsRef<str> + ?Sized + 'a,
    V: AsRef<str> + ?Sized + 'a,
{
    selector.into_iter().all(|(key, value)| labels.get(key.as_ref()) == Some(value.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_map_that_it_was_made_of() {
        let table: &[&[(&str, &str)]] = &[
            &[],
            &[("a", "1")],
            &[("b", "2"), ("a", "1"), ("c", "")],
            &[("b", "2"), ("a", "1"), ("b", "3"), ("a", "4"), ("b", "5")],
            &[("a", "1"), ("a", "2")],
        ];
        for pairs in table {
            let map: BTreeMap<&str, &str> = pairs.iter().copied().collect();
            let labels: LabelMap = pairs.iter().copied().collect();
            let listed: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (&**k, &**v)).collect();
            assert_eq!(listed, map.clone().into_iter().collect::<Vec<_>>());
            assert_eq!((labels.len(), labels.is_empty()), (map.len(), map.is_empty()));
            for key in ["", "a", "aa", "b", "c", "d"] {
                assert_eq!(labels.get(key), map.get(key).copied(), "{key} of {pairs:?}");
            }
        }
    }

    #[test]
    fn others_go_before_what_is_there() {
        let own: LabelMap = [("app", "web"), ("zone", "a")].into_iter().collect();
        let all = own.with([("zone".into(), "b".into()), ("node".into(), "n".into())]);
        assert_eq!(all, [("app", "web"), ("node", "n"), ("zone", "b")].into_iter().collect());
        assert_eq!(all.only(|key| key != "node"), [("app", "web"), ("zone", "b")].into_iter().collect());
    }

    #[test]
    fn selectors_match_what_has_all_their_labels() {
        let labels: LabelMap = [("app", "web"), ("version", "v1")].into_iter().collect();
        let table: &[(&[(&str, &str)], bool)] = &[
            (&[], true),
            (&[("app", "web")], true),
            (&[("app", "web"), ("version", "v1")], true),
            (&[("app", "other")], false),
            (&[("app", "web"), ("zone", "a")], false),
        ];
        for (selector, want) in table {
            let selector: LabelMap = selector.iter().copied().collect();
            assert_eq!(label_subset(&selector, &labels), *want, "{selector:?}");
        }
    }
}
