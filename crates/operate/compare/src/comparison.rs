//! Comparison of two dumps: expected and actual resources of a proxy.
//!
//! The order of some lists is irrelevant to Envoy (virtual hosts, domains, localities, endpoints and such),
//! and a whole number is equal with and without a decimal point. All else is compared.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Lists in which the order of entries is irrelevant.
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
    "alt_hosts",
    "ips",
];

/// Names of resource kinds in dumps of Envoys.
pub const KINDS: [&str; 4] = ["clusters", "endpoints", "listeners", "routes"];

/// Names of all resource kinds. Extensions and name tables are known from a control plane only: an Envoy has
/// no name table, and its agent replaces the extensions that it downloads.
pub const ALL_KINDS: [&str; 6] = ["clusters", "endpoints", "listeners", "routes", "extensions", "names"];

/// Differences between two dumps, and numbers of resources.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Number of resources in either dump, by kind.
    pub total: BTreeMap<&'static str, usize>,
    /// Number of equal resources, by kind.
    pub same: BTreeMap<&'static str, usize>,
    /// Differences by kind, resource and field.
    pub differences: Vec<Difference>,
}

/// One difference within a resource, or a resource that only one dump has.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Resource kind, one of [`ALL_KINDS`].
    pub kind: &'static str,
    /// Name of the resource.
    pub resource: String,
    /// Path of the field, such as `filter_chains[0].filters[2].name`; empty for the whole resource. An entry
    /// that only the actual dump has is `[+2]`, with its index there. Lists with irrelevant order are sorted
    /// first.
    pub field: String,
    /// Expected value; `None` if it is absent.
    pub want: Option<Value>,
    /// Actual value; `None` if it is absent.
    pub got: Option<Value>,
}

impl Comparison {
    /// Compares the expected dump with the actual one.
    #[must_use]
    pub fn of(want: &Value, got: &Value) -> Self {
        let mut out = Self::default();
        let empty = Map::new();
        for kind in ALL_KINDS {
            let (want, got) = (of_kind(want, kind).unwrap_or(&empty), of_kind(got, kind).unwrap_or(&empty));
            for name in keys(want, got) {
                let found = Fields::between(want.get(name), got.get(name));
                *out.total.entry(kind).or_default() += 1;
                *out.same.entry(kind).or_default() += usize::from(found.is_empty());
                let difference =
                    |(field, want, got)| Difference { kind, resource: name.clone(), field, want, got };
                out.differences.extend(found.into_iter().map(difference));
            }
        }
        out
    }

    /// Number of equal resources, and of all.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.same.values().sum(), self.total.values().sum())
    }
}

fn of_kind<'a>(dump: &'a Value, kind: &str) -> Option<&'a Map<String, Value>> {
    dump.get(kind)?.as_object()
}

fn keys<'a>(a: &'a Map<String, Value>, b: &'a Map<String, Value>) -> BTreeSet<&'a String> {
    a.keys().chain(b.keys()).collect()
}

/// Normalised value: unordered lists sorted, fields sorted by name, and numbers rounded to six digits.
fn normal(value: &Value, key: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            Value::Object(sorted.into_iter().map(|(k, v)| (k.clone(), normal(v, k))).collect())
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| normal(item, key)).collect();
            if UNORDERED.contains(&key) {
                items.sort_by_cached_key(Value::to_string);
            }
            Value::Array(items)
        }
        Value::Number(number) => match number.as_f64() {
            // Integral floats equal integers: a recording does not distinguish them.
            Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => Value::from(float as i64),
            Some(float) => Value::from((float * 1e6).round() / 1e6),
            None => value.clone(),
        },
        _ => value.clone(),
    }
}

type Found = (String, Option<Value>, Option<Value>);

/// Collects the differing fields of two values.
#[derive(Default)]
struct Fields(Vec<Found>);

impl Fields {
    fn between(want: Option<&Value>, got: Option<&Value>) -> Vec<Found> {
        // Fast path: most values are equal without normalisation.
        if want == got {
            return Vec::new();
        }
        let normal = |value: Option<&Value>| value.map(|value| normal(value, ""));
        let mut out = Self::default();
        out.values(normal(want).as_ref(), normal(got).as_ref(), String::new(), false);
        out.0
    }

    /// `sorted` is true if these are lists with irrelevant order.
    fn values(&mut self, want: Option<&Value>, got: Option<&Value>, path: String, sorted: bool) {
        if want == got {
            return;
        }
        match (want, got) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                for key in keys(a, b) {
                    let here = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.values(a.get(key), b.get(key), here, UNORDERED.contains(&key.as_str()));
                }
            }
            (Some(Value::Array(a)), Some(Value::Array(b))) if sorted => self.sets(a, b, &path),
            (Some(Value::Array(a)), Some(Value::Array(b))) => self.lists(a, b, path),
            (a, b) => self.0.push((path, a.cloned(), b.cloned())),
        }
    }

    /// Compares ordered lists of one length entry by entry; of others, the part between the common prefix and
    /// suffix.
    fn lists(&mut self, want: &[Value], got: &[Value], path: String) {
        if want.len() == got.len() {
            for (at, (a, b)) in want.iter().zip(got).enumerate() {
                self.values(Some(a), Some(b), format!("{path}[{at}]"), false);
            }
            return;
        }
        let before = want.iter().zip(got).take_while(|(a, b)| a == b).count();
        let (want, got) = (want.get(before..).unwrap_or_default(), got.get(before..).unwrap_or_default());
        let after = want.iter().rev().zip(got.iter().rev()).take_while(|(a, b)| a == b).count();
        let middle = |list: &[Value]| list.get(..list.len() - after).unwrap_or_default().to_vec();
        match (middle(want), middle(got)) {
            (want, got) if got.is_empty() => self.fewer(&want, before, &path),
            (want, got) if want.is_empty() => self.more(&got, before, &path),
            (want, got) => self.0.push((path, Some(Value::Array(want)), Some(Value::Array(got)))),
        }
    }

    /// Compares unordered lists: common entries are dropped, entries with equal names are compared, and the
    /// others are in one list only.
    fn sets(&mut self, want: &[Value], got: &[Value], path: &str) {
        let (want, got) = (rest(want, got), rest(got, want));
        let mut free: Vec<Option<(usize, &Value)>> = got.into_iter().map(Some).collect();
        let rest_is_paired = want.len() == free.len();
        for (at, entry) in want {
            let name = name_of(entry);
            let of_name = |it: &Option<(usize, &Value)>| {
                it.is_some_and(|(_, it)| {
                    name.is_some() && name_of(it) == name || rest_is_paired && name.is_none()
                })
            };
            let twin = free.iter_mut().find(|it| of_name(it)).and_then(Option::take);
            self.values(Some(entry), twin.map(|(_, it)| it), format!("{path}[{at}]"), false);
        }
        for (at, entry) in free.into_iter().flatten() {
            self.values(None, Some(entry), format!("{path}[+{at}]"), false);
        }
    }

    /// Records missing entries, the first one at index `first`.
    fn fewer(&mut self, entries: &[Value], first: usize, path: &str) {
        for (at, entry) in entries.iter().enumerate() {
            self.values(Some(entry), None, format!("{path}[{}]", first + at), false);
        }
    }

    /// Records unexpected entries, the first one at index `first`.
    fn more(&mut self, entries: &[Value], first: usize, path: &str) {
        for (at, entry) in entries.iter().enumerate() {
            self.values(None, Some(entry), format!("{path}[+{}]", first + at), false);
        }
    }
}

/// Name of an entry, or address of an endpoint.
fn name_of(entry: &Value) -> Option<&Value> {
    entry.get("name").or_else(|| entry.pointer("/endpoint/address"))
}

/// Entries of a list that another lacks, with their indexes; duplicates have to be in both.
fn rest<'a>(list: &'a [Value], other: &[Value]) -> Vec<(usize, &'a Value)> {
    let mut other: Vec<&Value> = other.iter().collect();
    let lacks = |(_, entry): &(usize, &Value)| match other.iter().position(|it| it == entry) {
        Some(at) => {
            other.swap_remove(at);
            false
        }
        None => true,
    };
    list.iter().enumerate().filter(lacks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(want: &Value, got: &Value) -> Vec<String> {
        Fields::between(Some(want), Some(got)).into_iter().map(|found| found.0).collect()
    }

    #[test]
    fn sets_compare_without_order_and_lists_with_it() {
        let want = json!({"domains": ["a", "b"], "routes": [1, 2.0]});
        assert!(fields(&want, &json!({"domains": ["b", "a"], "routes": [1, 2]})).is_empty());
        assert_eq!(
            fields(&want, &json!({"domains": ["b", "a"], "routes": [2, 1]})),
            ["routes[0]", "routes[1]"]
        );
    }

    #[test]
    fn missing_and_extra_resources_count() {
        let found = Comparison::of(&json!({"clusters": {"a": {}}}), &json!({"clusters": {"b": {}}}));
        assert_eq!(found.counts(), (0, 2));
        let sides: Vec<_> = found.differences.iter().map(|it| (&*it.resource, it.got.is_some())).collect();
        assert_eq!(sides, [("a", false), ("b", true)]);
    }

    #[test]
    fn an_entry_more_is_the_only_difference_of_a_list() {
        let three = json!({"filters": ["a", "b", "c"]});
        assert_eq!(fields(&json!({"filters": ["a", "c"]}), &three), ["filters[+1]"]);
        assert_eq!(fields(&three, &json!({"filters": ["a", "b"]})), ["filters[2]"]);
        assert_eq!(fields(&three, &json!({"filters": ["a", "d", "e", "c"]})), ["filters"]);
    }

    #[test]
    fn entries_of_sets_are_compared_by_name() {
        let host = |name: &str, port: u16| json!({"name": name, "port": port});
        let want = json!({"virtual_hosts": [host("a", 1), host("b", 1), host("c", 1)]});
        let got = json!({"virtual_hosts": [host("c", 1), host("b", 2)]});
        assert_eq!(fields(&want, &got), ["virtual_hosts[0]", "virtual_hosts[1].port"]);
    }

    #[test]
    fn endpoints_are_compared_by_address() {
        let endpoint =
            |address: &str, health: &str| json!({"endpoint": {"address": address}, "health_status": health});
        let want = json!({"lb_endpoints": [endpoint("a", "HEALTHY"), endpoint("b", "HEALTHY")]});
        let got = json!({"lb_endpoints": [endpoint("b", "DRAINING"), endpoint("c", "HEALTHY")]});
        let expected = ["lb_endpoints[0]", "lb_endpoints[1].health_status", "lb_endpoints[+1]"];
        assert_eq!(fields(&want, &got), expected);
    }

    #[test]
    fn an_entry_that_stands_twice_differs_from_one_that_stands_once() {
        assert_eq!(fields(&json!({"domains": ["a", "a"]}), &json!({"domains": ["a"]})).len(), 1);
    }
}
