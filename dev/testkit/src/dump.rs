//! All resources of a proxy as JSON, in the order of subscriptions.

use anyhow::{Context, Result};
use pilotfish_proto::{Any, ResourceType, to_json};
use pilotfish_translate::{Client, Snapshot, ViewId};
use prost::Message;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Clusters, endpoints, listeners and routes of a client. `listeners` are the names that a proxyless client
/// subscribes to.
///
/// # Errors
/// When a resource does not decode, which would be a defect of the translation.
pub fn dump(snapshot: &Snapshot<'_>, client: &Client, listeners: Option<&[String]>) -> Result<Value> {
    dump_also(snapshot, client, listeners, &Value::Null)
}

/// Variant of [`dump`] that also reads the resources that `other`, another dump, has by name, so that
/// endpoints and routes can be compared before the clusters and listeners that refer to them are complete.
///
/// # Errors
/// When a resource does not decode, which would be a defect of the translation.
pub fn dump_also(
    snapshot: &Snapshot<'_>,
    client: &Client,
    listeners: Option<&[String]>,
    other: &Value,
) -> Result<Value> {
    let view = |ty| snapshot.view(client, ty);
    let also = |kind| {
        let names = other.get(kind).and_then(Value::as_object);
        names.into_iter().flat_map(Map::keys).cloned().collect::<Vec<_>>()
    };
    let get = |ty, names: Names| match view(ty) {
        Some(id) => collect(snapshot, id, &names),
        None => Ok(Map::new()),
    };
    let (clusters, listeners) = match listeners {
        None => (Some(get(ResourceType::Cluster, Names::All)?), get(ResourceType::Listener, Names::All)?),
        Some(names) => (None, get(ResourceType::Listener, Names::These(names.iter().cloned().collect()))?),
    };
    let named = route_names(&listeners).into_iter().chain(also("routes"));
    let routes = get(ResourceType::Route, Names::These(named.collect()))?;
    let clusters = match clusters {
        Some(clusters) => clusters,
        None => {
            let mut names = cluster_names(&listeners);
            names.extend(cluster_names(&routes));
            names.extend(also("clusters"));
            get(ResourceType::Cluster, Names::These(names))?
        }
    };
    let named = assignment_names(&clusters).into_iter().chain(also("endpoints"));
    let endpoints = get(ResourceType::Endpoint, Names::These(named.collect()))?;
    Ok(
        serde_json::json!({"clusters": clusters, "endpoints": endpoints, "listeners": listeners, "routes": routes}),
    )
}

enum Names {
    All,
    These(BTreeSet<String>),
}

fn collect(snapshot: &Snapshot<'_>, view: ViewId, names: &Names) -> Result<Map<String, Value>> {
    let names: Vec<Arc<str>> = match names {
        Names::All => snapshot.names(view).to_vec(),
        Names::These(names) => names.iter().map(|name| name.as_str().into()).collect(),
    };
    let mut out = Map::new();
    for name in names {
        if let Some(resource) = snapshot.get(view, &name) {
            let packed = Any::decode(resource.body)?;
            let mut json =
                to_json(&packed.type_url, &packed.value).with_context(|| format!("resource {name}"))?;
            if let Value::Object(fields) = &mut json {
                fields.remove("@type");
            }
            without_unrecorded(&mut json);
            out.insert(name.to_string(), json);
        }
    }
    Ok(out)
}

/// Fields that istiod sends and the tool that made the recordings does not know.
const UNRECORDED: [&str; 2] = ["budget_interval", "no_context_propagation"];

/// Takes out of a message what recordings cannot have.
fn without_unrecorded(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !UNRECORDED.contains(&name.as_str()));
            fields.values_mut().for_each(without_unrecorded);
        }
        Value::Array(items) => items.iter_mut().for_each(without_unrecorded),
        _ => {}
    }
}

/// Calls `visit` for every object below the values.
fn walk<'a>(values: impl Iterator<Item = &'a Value>, visit: &mut impl FnMut(&'a Map<String, Value>)) {
    let mut open: Vec<&Value> = values.collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                visit(fields);
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}

fn route_names(listeners: &Map<String, Value>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    walk(listeners.values(), &mut |fields| {
        let name = fields.get("rds").and_then(|rds| rds.get("route_config_name")).and_then(Value::as_str);
        names.extend(name.map(str::to_owned));
    });
    names
}

fn cluster_names(resources: &Map<String, Value>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    walk(resources.values(), &mut |fields| {
        names.extend(fields.get("cluster").and_then(Value::as_str).map(str::to_owned));
        let weighted =
            fields.get("weighted_clusters").and_then(|w| w.get("clusters")).and_then(Value::as_array);
        let weighted = weighted.into_iter().flatten().filter_map(|c| c.get("name")).filter_map(Value::as_str);
        names.extend(weighted.map(str::to_owned));
    });
    names
}

fn assignment_names(clusters: &Map<String, Value>) -> BTreeSet<String> {
    let eds = clusters.iter().filter(|(_, cluster)| cluster.get("type").is_some_and(|ty| ty == "EDS"));
    eds.map(|(name, cluster)| {
        let service =
            cluster.get("eds_cluster_config").and_then(|c| c.get("service_name")).and_then(Value::as_str);
        service.unwrap_or(name).to_owned()
    })
    .collect()
}
