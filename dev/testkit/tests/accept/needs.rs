//! What resources refer to: other resources, which Envoy subscribes to, and extensions, which it has or
//! lacks.

use super::Refusal;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Extension;
use pilotfish_xds::{ConnectionStatus, Names};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Which resources every resource refers to.
#[derive(Default)]
pub(crate) struct Wanted(Vec<Reference>);

struct Reference {
    /// The clusters or listeners that refer to it.
    by: ResourceType,
    of: String,
    ty: ResourceType,
    name: String,
}

impl Wanted {
    /// Whether all is subscribed that an accepted resource refers to.
    pub(super) fn check(&self, status: &ConnectionStatus, refusals: &[Refusal]) -> Result<(), String> {
        for Reference { by, of, ty, name } in &self.0 {
            if refusals.iter().any(|refusal| refusal.ty == *by && refusal.error.contains(&format!("{of}: ")))
            {
                continue;
            }
            let subscribed = status.types.get(ty).is_some_and(|ty| match &ty.names {
                Names::Wildcard => true,
                Names::Named(names) => names.iter().any(|other| **other == **name),
            });
            if !subscribed {
                return Err(format!("{ty:?} {name} of {of} is not subscribed"));
            }
        }
        Ok(())
    }
}

/// What the clusters and listeners of a dump refer to over ADS.
pub(crate) fn wanted(dump: &Value) -> Wanted {
    let mut out = Vec::new();
    for (kind, by) in [("clusters", ResourceType::Cluster), ("listeners", ResourceType::Listener)] {
        for (of, resource) in dump[kind].as_object().into_iter().flatten() {
            let mut add = |ty, name: &Value| {
                let name = name.as_str().unwrap_or(of).to_owned();
                out.push(Reference { by, of: of.clone(), ty, name });
            };
            if resource["type"] == "EDS" {
                add(ResourceType::Endpoint, &resource["eds_cluster_config"]["service_name"]);
            }
            walk(resource, &mut |fields| {
                if let Some(rds) = fields.get("rds") {
                    add(ResourceType::Route, &rds["route_config_name"]);
                }
                if fields.get("sds_config").is_some_and(|config| config.get("ads").is_some()) {
                    add(ResourceType::Secret, &fields["name"]);
                }
                if fields.contains_key("config_discovery") {
                    add(ResourceType::ExtensionConfig, &fields["name"]);
                }
            });
        }
    }
    Wanted(out)
}

fn walk<'a>(value: &'a Value, visit: &mut impl FnMut(&'a Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            visit(fields);
            fields.values().for_each(|value| walk(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|value| walk(value, visit)),
        _ => {}
    }
}

/// Whether there are filters whose configuration comes over ECDS.
pub(crate) fn has_discovered_filters(dump: &Value) -> bool {
    let mut found = false;
    walk(dump, &mut |fields| found |= fields.contains_key("config_discovery"));
    found
}

/// The types of extensions' configurations in a dump that an Envoy with these extensions does not have, each
/// under the names that it has there.
pub(crate) fn lacking(dump: &Value, extensions: &[Extension]) -> BTreeMap<String, BTreeSet<String>> {
    let known: BTreeSet<&str> =
        extensions.iter().flat_map(|extension| &extension.type_urls).map(String::as_str).collect();
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    walk(dump, &mut |fields| {
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
        for config in fields.values() {
            if let Some(url) = type_of(config)
                && !known.contains(url)
            {
                out.entry(url.to_owned()).or_default().insert(name.to_owned());
            }
        }
    });
    out
}

/// The type of a packed configuration, also of one that is packed without its type being known.
fn type_of(config: &Value) -> Option<&str> {
    let url = config.get("@type")?.as_str()?;
    let url = if url.ends_with(".TypedStruct") { config.get("type_url")?.as_str()? } else { url };
    url.rsplit('/').next()
}
