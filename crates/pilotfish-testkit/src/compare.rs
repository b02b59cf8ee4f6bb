//! Comparison of two dumps, with the rules of `oracle/xdsdiff.py`: the order of some lists does not matter.

use serde_json::Value;
use std::collections::BTreeMap;

/// Lists in which the order of entries has no meaning.
const UNORDERED: &[&str] = &[
    "domains",
    "virtual_hosts",
    "lb_endpoints",
    "endpoints",
    "prefix_ranges",
    "server_names",
    "application_protocols",
    "match_typed_subject_alt_names",
    "match_subject_alt_names",
    "response_headers_to_remove",
    "request_headers_to_remove",
    "additional_addresses",
];

/// Resource kinds as dumps name them.
pub const KINDS: [&str; 4] = ["clusters", "endpoints", "listeners", "routes"];

/// How much of one or more dumps is equal, and what differs how often.
#[derive(Default)]
pub struct Report {
    /// Equal resources by kind.
    pub same: BTreeMap<&'static str, usize>,
    /// All resources by kind.
    pub total: BTreeMap<&'static str, usize>,
    /// Resources that should be there and are not.
    pub missing: Vec<String>,
    /// Resources that should not be there.
    pub extra: Vec<String>,
    /// Differing fields: how often, and the first example.
    pub paths: BTreeMap<String, (usize, Example)>,
}

/// One difference.
pub struct Example {
    /// Case, proxy and resource.
    pub place: String,
    /// The recorded value; `None` for absent.
    pub want: Option<Value>,
    /// The value found; `None` for absent.
    pub got: Option<Value>,
}

impl Report {
    /// Compares what was recorded with what was found.
    pub fn add(&mut self, label: &str, want: &Value, got: &Value) {
        for kind in KINDS {
            let map = |value: &Value| value.get(kind).and_then(Value::as_object).cloned().unwrap_or_default();
            let (want, got) = (map(want), map(got));
            let names: std::collections::BTreeSet<&String> = want.keys().chain(got.keys()).collect();
            for name in names {
                *self.total.entry(kind).or_default() += 1;
                let place = format!("{label}:{name}");
                match (want.get(name), got.get(name)) {
                    (Some(a), Some(b)) => self.resource(kind, &place, a, b),
                    (Some(_), None) => self.missing.push(format!("{kind} {place}")),
                    _ => self.extra.push(format!("{kind} {place}")),
                }
            }
        }
    }

    fn resource(&mut self, kind: &'static str, place: &str, want: &Value, got: &Value) {
        let (want, got) = (normal(want, ""), normal(got, ""));
        if want == got {
            *self.same.entry(kind).or_default() += 1;
            return;
        }
        let mut found = Vec::new();
        differences(Some(&want), Some(&got), String::new(), &mut found);
        for (path, want, got) in found {
            let example = || Example { place: place.to_owned(), want, got };
            let entry = self.paths.entry(format!("{kind}: {path}"));
            entry.and_modify(|(count, _)| *count += 1).or_insert_with(|| (1, example()));
        }
    }

    /// Equal resources and all resources.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.same.values().sum(), self.total.values().sum())
    }

    /// Whether everything is equal.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let (same, total) = self.counts();
        same == total
    }

    /// The differing fields, most frequent first.
    #[must_use]
    pub fn ranked(&self) -> Vec<(&String, usize, &Example)> {
        let mut rows: Vec<_> =
            self.paths.iter().map(|(path, (count, example))| (path, *count, example)).collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        rows
    }
}

/// The value with unordered lists sorted and numbers rounded to six digits.
fn normal(value: &Value, key: &str) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(k, v)| (k.clone(), normal(v, k))).collect())
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| normal(item, key)).collect();
            if UNORDERED.contains(&key) {
                items.sort_by_key(Value::to_string);
            }
            Value::Array(items)
        }
        Value::Number(number) => match number.as_f64() {
            // Whole floats and integers are one: a recording does not keep them apart.
            Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => Value::from(float as i64),
            Some(float) => Value::from((float * 1e6).round() / 1e6),
            None => value.clone(),
        },
        _ => value.clone(),
    }
}

type Found = (String, Option<Value>, Option<Value>);

fn differences(want: Option<&Value>, got: Option<&Value>, path: String, out: &mut Vec<Found>) {
    match (want, got) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let here = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differences(a.get(key), b.get(key), here, out);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
            for (a, b) in a.iter().zip(b) {
                differences(Some(a), Some(b), format!("{path}[]"), out);
            }
        }
        (a, b) if a != b => out.push((path, a.cloned(), b.cloned())),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sets_compare_without_order_and_lists_with_it() {
        let mut report = Report::default();
        let want = json!({"routes": {"80": {"domains": ["a", "b"], "routes": [1, 2]}}});
        report.add("x", &want, &json!({"routes": {"80": {"domains": ["b", "a"], "routes": [1, 2]}}}));
        assert!(report.is_whole());
        report.add("x", &want, &json!({"routes": {"80": {"domains": ["b", "a"], "routes": [2, 1]}}}));
        assert_eq!(report.counts(), (1, 2));
        assert_eq!(report.ranked()[0].0, "routes: routes[]");
    }

    #[test]
    fn missing_and_extra_resources_count() {
        let mut report = Report::default();
        report.add("x", &json!({"clusters": {"a": {}}}), &json!({"clusters": {"b": {}}}));
        assert_eq!((report.missing.len(), report.extra.len(), report.counts()), (1, 1, (0, 2)));
    }
}
