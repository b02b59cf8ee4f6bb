//! Changes that are likely to break traffic, or to open it.

mod authorization;
mod cluster;
mod listener;

use super::references::clusters_of;
use super::scene::Held;
use crate::resource::json;
use pilotfish_api::v1::Section;
use pilotfish_proto::ResourceType;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Dangers of a change, each as one line.
pub(super) struct Dangers;

impl Dangers {
    /// Dangers in one change of a resource.
    pub(super) fn of_change(section: Section, name: &str, before: &Value, after: &Value) -> Vec<String> {
        match section {
            Section::Endpoints => endpoints(name, before, after).into_iter().collect(),
            Section::Clusters => cluster::dangers(name, before, after),
            Section::Listeners => listener::dangers(name, before, after),
            Section::Routes => routes(name, before, after),
            Section::Secrets | Section::Extensions | Section::Names => Vec::new(),
        }
    }

    /// Routes of one proxy that newly refer to a missing cluster.
    pub(super) fn of_references(before: &Held, after: &Held) -> Vec<String> {
        let then = dangling(before, &BTreeSet::new());
        dangling(after, &then)
            .into_iter()
            .map(|(route, cluster)| format!("route {route} sends to {cluster}, which is not there"))
            .collect()
    }
}

/// Clusters that routes refer to and that the proxy does not have, except for those in `but`.
fn dangling(held: &Held, but: &BTreeSet<(Arc<str>, Arc<str>)>) -> BTreeSet<(Arc<str>, Arc<str>)> {
    let (Some(routes), Some(clusters)) =
        (held.of.get(&ResourceType::Route), held.of.get(&ResourceType::Cluster))
    else {
        return BTreeSet::new();
    };
    let missing = routes.iter().flat_map(|(name, route)| {
        let wanted = clusters_of(&json(&route.body));
        let wanted =
            wanted.into_iter().filter(|cluster| !cluster.is_empty() && !clusters.contains_key(cluster));
        wanted.map(|cluster| (name.clone(), cluster)).collect::<Vec<_>>()
    });
    missing.filter(|missing| !but.contains(missing)).collect()
}

/// Readable form of a cluster name such as `outbound|80|v1|web.shop.svc`.
fn cluster_words(name: &str) -> String {
    let parts: Vec<&str> = name.split('|').collect();
    match parts.as_slice() {
        ["outbound", port, "", host] => format!("{host}:{port}"),
        ["outbound", port, subset, host] => format!("{host}:{port} subset {subset}"),
        _ => name.to_owned(),
    }
}

fn endpoints(name: &str, before: &Value, after: &Value) -> Option<String> {
    // If the whole assignment is removed, so is its cluster.
    (!after.is_null() && usable(before) > 0 && usable(after) == 0)
        .then(|| format!("{} loses its last endpoint", cluster_words(name)))
}

/// Number of endpoints that Envoy may send to.
fn usable(assignment: &Value) -> usize {
    let localities = assignment.get("endpoints").and_then(Value::as_array).into_iter().flatten();
    let endpoints = localities.filter_map(|locality| locality.get("lb_endpoints")?.as_array()).flatten();
    let is_usable = |endpoint: &&Value| {
        let health = endpoint.get("health_status").and_then(Value::as_str).unwrap_or("UNKNOWN");
        matches!(health, "UNKNOWN" | "HEALTHY" | "DEGRADED")
    };
    endpoints.filter(is_usable).count()
}

fn routes(name: &str, before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (rules(before), rules(after));
    let hosts: BTreeSet<&String> = after.iter().map(|(host, _)| host).collect();
    let mut gone: BTreeSet<String> = BTreeSet::new();
    for (host, rule) in &before {
        if !hosts.contains(host) {
            gone.insert(format!("routes {name} have nothing for {host} any more"));
        } else if !after.contains(&(host.clone(), rule.clone())) {
            gone.insert(format!("a route of {host} on {name} disappears: {rule}"));
        }
    }
    gone.into_iter().collect()
}

/// Routes by host and match.
fn rules(routes: &Value) -> BTreeSet<(String, String)> {
    let hosts = routes.get("virtual_hosts").and_then(Value::as_array).into_iter().flatten();
    hosts
        .flat_map(|host| {
            let name = host.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let routes = host.get("routes").and_then(Value::as_array).into_iter().flatten();
            routes.map(move |route| (name.clone(), route.get("match").unwrap_or(&Value::Null).to_string()))
        })
        .collect()
}

/// Elements of a list in a resource; empty if it is missing.
fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// A string in a resource; empty if it is missing.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_tls(socket: &Value) -> bool {
    text(socket, "/name").contains("tls")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn assignment(health: &[&str]) -> Value {
        let endpoints: Vec<Value> = health.iter().map(|health| json!({"health_status": health})).collect();
        json!({"endpoints": [{"lb_endpoints": endpoints}]})
    }

    #[test]
    fn a_host_that_loses_its_last_endpoint_is_a_danger() {
        let name = "outbound|80||web.shop";
        let of = |before: &[&str], after: &[&str]| {
            Dangers::of_change(Section::Endpoints, name, &assignment(before), &assignment(after))
        };
        assert_eq!(of(&["HEALTHY"], &["UNHEALTHY"]), ["web.shop:80 loses its last endpoint"]);
        assert_eq!(of(&["HEALTHY"], &[]), ["web.shop:80 loses its last endpoint"]);
        assert!(of(&["HEALTHY", "HEALTHY"], &["HEALTHY"]).is_empty());
        assert!(of(&[], &[]).is_empty());
    }

    #[test]
    fn a_route_that_disappears_is_a_danger_and_one_that_sends_elsewhere_is_not() {
        let route = |prefix: &str, cluster: &str| json!({"virtual_hosts": [{"name": "web:80", "routes": [{"match": {"prefix": prefix}, "route": {"cluster": cluster}}]}]});
        let of = |before: &Value, after: &Value| Dangers::of_change(Section::Routes, "80", before, after);
        assert!(of(&route("/", "a"), &route("/", "b")).is_empty());
        assert_eq!(
            of(&route("/a", "a"), &route("/b", "a")),
            ["a route of web:80 on 80 disappears: {\"prefix\":\"/a\"}"]
        );
        assert_eq!(of(&route("/", "a"), &Value::Null), ["routes 80 have nothing for web:80 any more"]);
        assert!(of(&Value::Null, &route("/", "a")).is_empty());
    }
}
