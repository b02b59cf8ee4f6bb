//! Subscriptions of Envoy that follow from its resources: load assignments of clusters, routes of listeners.

use pilotfish_proto::Any;
use pilotfish_proto::envoy::config::cluster::v3::Cluster;
use pilotfish_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use prost::Message;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Names of the load assignments of clusters.
pub(super) fn endpoints_of<'a>(bodies: impl Iterator<Item = &'a [u8]>) -> BTreeSet<Arc<str>> {
    let cluster = |body: &[u8]| Cluster::decode(&*Any::decode(body).ok()?.value).ok();
    bodies.filter_map(cluster).filter_map(assignment_of).collect()
}

fn assignment_of(cluster: Cluster) -> Option<Arc<str>> {
    let eds = ClusterDiscoveryType::Type(DiscoveryType::Eds as i32);
    if cluster.cluster_discovery_type != Some(eds) {
        return None;
    }
    let named = cluster.eds_cluster_config.map(|config| config.service_name).filter(|name| !name.is_empty());
    Some(named.unwrap_or(cluster.name).into())
}

/// Names of the route configurations of listeners.
pub(super) fn routes_of<'a>(bodies: impl Iterator<Item = &'a [u8]>) -> BTreeSet<Arc<str>> {
    let mut names = BTreeSet::new();
    for body in bodies {
        collect(&crate::resource::json(body), "route_config_name", &mut names);
    }
    names
}

/// Collects the string values of all fields with that name.
fn collect(value: &Value, field: &str, out: &mut BTreeSet<Arc<str>>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == field => drop(out.insert(text.as_str().into())),
                    other => collect(other, field, out),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, field, out)),
        _ => {}
    }
}

/// Names of the clusters that routes of a configuration refer to.
pub(super) fn clusters_of(route: &Value) -> BTreeSet<Arc<str>> {
    let mut names = BTreeSet::new();
    collect(route, "cluster", &mut names);
    if let Some(hosts) = route.get("virtual_hosts").and_then(Value::as_array) {
        let routes = hosts.iter().filter_map(|host| host.get("routes")?.as_array()).flatten();
        for route in routes {
            let weighted = route.pointer("/route/weighted_clusters/clusters").and_then(Value::as_array);
            let weighted = weighted.into_iter().flatten();
            names.extend(weighted.filter_map(|cluster| cluster.get("name")?.as_str()).map(Arc::from));
        }
    }
    names
}
