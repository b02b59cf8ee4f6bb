//! Reading of an Envoy's `config_dump`.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A resource in an Envoy's dump.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub version: String,
    pub resource: Value,
    /// Reason of the refusal of the newest version.
    pub error: String,
    /// The refused version; `null` if there is none.
    pub refused: Value,
    /// True if it waits for referenced resources and is not in use yet.
    pub is_warming: bool,
}

impl Held {
    /// The version that was sent last, also if it was refused.
    #[must_use]
    pub fn latest(&self) -> &Value {
        if self.refused.is_null() { &self.resource } else { &self.refused }
    }
}

/// Names that a proxy subscribes to, by kind.
pub type Names = BTreeMap<String, Vec<String>>;

/// Kinds with their lists in a dump, and the field of a resource in them. The last two are in saved dumps of
/// a control plane only.
const DUMPED: [(&str, &str, &str); 6] = [
    ("clusters", "dynamic_active_clusters", "cluster"),
    ("endpoints", "dynamic_endpoint_configs", "endpoint_config"),
    ("listeners", "dynamic_listeners", "listener"),
    ("routes", "dynamic_route_configs", "route_config"),
    ("extensions", "extension_configs", "extension_config"),
    ("names", "name_tables", "name_table"),
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
                Entry::Occupied(mut before) if held.resource.is_null() => {
                    let before = before.get_mut();
                    (before.error, before.refused) = (held.error, held.refused);
                }
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
    let refused = entry.pointer("/error_state/failed_configuration").cloned().unwrap_or_default();
    (name, Held { version, resource, error, refused, is_warming: active.is_none() })
}

/// Fields of a node that a control plane reads.
const NODE: [&str; 4] = ["id", "cluster", "metadata", "locality"];

/// Node in the bootstrap section of a dump, reduced to the fields that a control plane reads; `None` if there
/// is no such section.
#[must_use]
pub fn node(dump: &Value) -> Option<Value> {
    let configs = dump.get("configs")?.as_array()?;
    let node = configs.iter().find_map(|config| config.pointer("/bootstrap/node"))?.as_object()?;
    Some(reduced(node))
}

/// Names that the proxy of a saved dump subscribes to; empty for an Envoy, which subscribes by reference.
#[must_use]
pub fn subscribed(dump: &Value) -> Names {
    let configs = dump.get("configs").and_then(Value::as_array);
    let entry = configs.into_iter().flatten().find_map(|config| config.get("subscribed"));
    entry.and_then(|names| Names::deserialize(names).ok()).unwrap_or_default()
}

/// Dump of a proxy in the form of an Envoy's, with its node, subscriptions by name, and resources, each with
/// its kind and name.
#[must_use]
pub fn to_dump<'a>(
    node: &Value,
    names: &Names,
    resources: impl IntoIterator<Item = (&'static str, &'a str, Value)>,
) -> Value {
    let mut lists: [Vec<Value>; DUMPED.len()] = Default::default();
    for (kind, name, resource) in resources {
        let of_kind = DUMPED.iter().zip(&mut lists).find(|((dumped, ..), _)| *dumped == kind);
        let Some(((_, _, field), list)) = of_kind else { continue };
        let entry = json!({*field: resource});
        list.push(match kind {
            "listeners" => json!({"name": name, "active_state": entry}),
            "names" => json!({"name": name, *field: entry[*field]}),
            _ => entry,
        });
    }
    let node = node.as_object().map(reduced).unwrap_or_default();
    let mut configs = vec![json!({"bootstrap": {"node": node}})];
    if !names.is_empty() {
        configs.push(json!({ "subscribed": names }));
    }
    configs.extend(DUMPED.iter().zip(lists).map(|((_, name, _), list)| json!({*name: list})));
    json!({ "configs": configs })
}

fn reduced(node: &Map<String, Value>) -> Value {
    NODE.iter().filter_map(|name| Some(((*name).to_owned(), node.get(*name)?.clone()))).collect()
}
