//! Labels of a workload that decide which selectors match it.

use pilotfish_model::LabelMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The label selectors of some configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selectors {
    /// By their first pair, so that only selectors with a label of the workload are examined.
    by_first: BTreeMap<String, BTreeMap<String, BTreeSet<BTreeMap<String, String>>>>,
    /// Labels that matter with any value.
    keys: BTreeSet<String>,
}

impl Selectors {
    /// Adds a selector. One without labels matches every workload and is not stored.
    pub(crate) fn add(&mut self, selector: &BTreeMap<String, String>) {
        if let Some((key, value)) = selector.first_key_value() {
            let values = self.by_first.entry(key.clone()).or_default();
            values.entry(value.clone()).or_default().insert(selector.clone());
        }
    }

    /// Adds a label that matters with any value.
    pub(crate) fn add_key(&mut self, key: &str) {
        self.keys.insert(key.to_owned());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.keys.is_empty()
    }

    /// Returns the labels that occur in selectors which match a workload with these labels. Exactly the same
    /// selectors match the returned labels, so two workloads are equal by them unless a selector matches only
    /// one.
    #[must_use]
    pub(crate) fn of(&self, labels: &LabelMap) -> LabelMap {
        if self.is_empty() {
            return LabelMap::default();
        }
        let mut wanted: BTreeSet<&str> = self.keys.iter().map(String::as_str).collect();
        for (key, value) in labels {
            let selectors = self.by_first.get(&**key).and_then(|values| values.get(&**value));
            for selector in selectors.into_iter().flatten() {
                if pilotfish_model::label_subset(selector, labels) {
                    wanted.extend(selector.keys().map(String::as_str));
                }
            }
        }
        labels.only(|key| wanted.contains(key))
    }

    /// Returns the labels that the selectors of several sets use.
    #[must_use]
    pub(crate) fn of_all<'a>(sets: impl IntoIterator<Item = &'a Arc<Self>>, labels: &LabelMap) -> LabelMap {
        let pairs = |labels: LabelMap| labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
        sets.into_iter().flat_map(|set| pairs(set.of(labels))).collect()
    }
}

impl<'a> Extend<&'a BTreeMap<String, String>> for Selectors {
    fn extend<I: IntoIterator<Item = &'a BTreeMap<String, String>>>(&mut self, selectors: I) {
        selectors.into_iter().for_each(|selector| self.add(selector));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::labels;
    use pilotfish_model::label_subset;

    fn selector(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_count_only_where_a_selector_selects_by_them() {
        let all = [
            selector(&[]),
            selector(&[("app", "web")]),
            selector(&[("app", "web"), ("version", "v1")]),
            selector(&[("app", "db"), ("tier", "back")]),
        ];
        let mut selectors = Selectors::default();
        selectors.extend(&all);
        selectors.add_key("gateway");
        for (of, left) in [
            (labels(&[("app", "web"), ("hash", "1"), ("version", "v2")]), labels(&[("app", "web")])),
            (labels(&[("app", "web"), ("version", "v1")]), labels(&[("app", "web"), ("version", "v1")])),
            (labels(&[("app", "db"), ("hash", "1")]), labels(&[])),
            (labels(&[("app", "other"), ("gateway", "a")]), labels(&[("gateway", "a")])),
        ] {
            let reduced = selectors.of(&of);
            assert_eq!(reduced, *left, "{of:?}");
            for selector in &all {
                assert_eq!(
                    label_subset(selector, &reduced),
                    label_subset(selector, &of),
                    "{selector:?} of {of:?}"
                );
            }
        }
    }
}
