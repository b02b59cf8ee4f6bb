//! Names of other resources in a resource.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Kinds and names of the resources that a resource refers to: endpoints of clusters; routes, extensions and
/// clusters of listeners; clusters of routes.
#[must_use]
pub fn references(kind: &str, resource: &Value) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    match kind {
        "clusters" => found.extend(assignment(resource).map(|name| ("endpoints", name.to_owned()))),
        "listeners" | "routes" => {
            let mut open = vec![resource];
            while let Some(value) = open.pop() {
                match value {
                    Value::Object(fields) => {
                        found.extend(of_fields(fields));
                        open.extend(fields.values());
                    }
                    Value::Array(items) => open.extend(items),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    found
}

/// Name of the load assignment of an EDS cluster.
fn assignment(cluster: &Value) -> Option<&str> {
    cluster.get("type").filter(|ty| *ty == "EDS")?;
    let name = cluster.pointer("/eds_cluster_config/service_name").and_then(Value::as_str);
    name.filter(|name| !name.is_empty()).or_else(|| cluster.get("name")?.as_str())
}

fn of_fields(fields: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let mut found = Vec::new();
    let routes = fields.get("rds").and_then(|rds| rds.get("route_config_name"));
    found.extend(text(routes).map(|name| ("routes", name)));
    if fields.contains_key("config_discovery") {
        found.extend(text(fields.get("name")).map(|name| ("extensions", name)));
    }
    found.extend(text(fields.get("cluster")).map(|name| ("clusters", name)));
    let weighted = fields.get("weighted_clusters").and_then(|weighted| weighted.get("clusters"));
    for cluster in weighted.and_then(Value::as_array).into_iter().flatten() {
        found.extend(text(cluster.get("name")).map(|name| ("clusters", name)));
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clusters_name_assignments_and_listeners_name_routes_extensions_and_clusters() {
        let found = |kind, resource: Value| {
            let found = references(kind, &resource).into_iter();
            found.map(|(kind, name)| format!("{kind} {name}")).collect::<Vec<_>>()
        };
        assert_eq!(found("clusters", json!({"name": "a", "type": "EDS"})), ["endpoints a"]);
        let named = json!({"name": "a", "type": "EDS", "eds_cluster_config": {"service_name": "b"}});
        assert_eq!(found("clusters", named), ["endpoints b"]);
        assert!(found("clusters", json!({"name": "a", "type": "STRICT_DNS"})).is_empty());
        let listener = json!({"filter_chains": [{"filters": [{"typed_config": {
            "rds": {"route_config_name": "80"},
            "http_filters": [{"name": "wasm", "config_discovery": {"config_source": {"ads": {}}}}],
        }}, {"typed_config": {"cluster": "c", "weighted_clusters": {"clusters": [{"name": "d"}]}}}]}]});
        assert_eq!(
            found("listeners", listener),
            ["clusters c", "clusters d", "extensions wasm", "routes 80"]
        );
        assert!(found("endpoints", json!({"cluster": "a"})).is_empty());
    }
}
