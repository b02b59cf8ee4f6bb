//! Reading of an Envoy's `config_dump`.

use serde_json::Value;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A resource in an Envoy's dump.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub version: String,
    pub resource: Value,
    /// Reason of the refusal of the newest version.
    pub error: String,
    /// True if it waits for referenced resources and is not in use yet.
    pub is_warming: bool,
}

/// Kinds that Envoy dumps with their lists, and the field of a resource in them.
const DUMPED: [(&str, &str, &str); 4] = [
    ("clusters", "dynamic_active_clusters", "cluster"),
    ("endpoints", "dynamic_endpoint_configs", "endpoint_config"),
    ("listeners", "dynamic_listeners", "listener"),
    ("routes", "dynamic_route_configs", "route_config"),
];

/// Dynamic resources of a dump, by kind and name.
#[must_use]
pub fn held(dump: &Value) -> BTreeMap<(&'static str, String), Held> {
    let configs = || dump.get("configs").and_then(Value::as_array).into_iter().flatten();
    let entries = |list: &'static str| {
        configs().flat_map(move |config| config.get(list).and_then(Value::as_array).into_iter().flatten())
    };
    let mut all = BTreeMap::new();
    for entry in entries("dynamic_warming_clusters") {
        let (name, held) = one("clusters", "cluster", entry);
        all.insert(("clusters", name), Held { is_warming: true, ..held });
    }
    let mut by_eds = BTreeSet::new();
    for (kind, list, field) in DUMPED {
        for entry in entries(list) {
            let (name, held) = one(kind, field, entry);
            // A listener that is only draining counts as removed.
            if held.resource.is_null() && held.error.is_empty() {
                continue;
            }
            if held.resource.get("type").is_some_and(|discovery| discovery == "EDS") {
                by_eds.insert(name.clone());
            }
            // Endpoints of other clusters are part of their clusters, and are not sent.
            if kind == "endpoints" && !by_eds.contains(&name) {
                continue;
            }
            match all.entry((kind, name)) {
                Entry::Occupied(mut before) if held.resource.is_null() => before.get_mut().error = held.error,
                Entry::Occupied(mut before) => drop(before.insert(held)),
                Entry::Vacant(place) => drop(place.insert(held)),
            }
        }
    }
    all
}

/// One resource of a dump, with its name.
fn one(kind: &str, field: &str, entry: &Value) -> (String, Held) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let active = if kind == "listeners" { entry.get("active_state") } else { Some(entry) };
    let state = active.or_else(|| entry.get("warming_state"));
    let resource = state.and_then(|state| state.get(field)).cloned().unwrap_or_default();
    let name = resource.get(if kind == "endpoints" { "cluster_name" } else { "name" });
    // A refused resource may have a second entry without a name.
    let refused = || entry.pointer("/error_state/failed_configuration/name");
    let name = text(name.or_else(|| entry.get("name")).or_else(refused));
    let version = text(state.and_then(|state| state.get("version_info")));
    let error = text(entry.pointer("/error_state/details"));
    (name, Held { version, resource, error, is_warming: active.is_none() })
}
