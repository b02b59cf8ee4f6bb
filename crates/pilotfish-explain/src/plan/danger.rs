//! Changes that are likely to break traffic, or to open it.

use super::references::clusters_of;
use super::scene::Held;
use crate::resource::json;
use pilotfish_api::v1::Section;
use pilotfish_proto::ResourceType;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is dangerous, each in one line.
pub(super) struct Dangers;

impl Dangers {
    /// What is dangerous in one change of a resource.
    pub(super) fn of_change(section: Section, name: &str, before: &Value, after: &Value) -> Vec<String> {
        match section {
            Section::Endpoints => endpoints(name, before, after).into_iter().collect(),
            Section::Clusters => clusters(name, before, after).into_iter().collect(),
            Section::Listeners => listeners(name, before, after),
            Section::Routes => routes(name, before, after),
            Section::Secrets | Section::Extensions | Section::Names => Vec::new(),
        }
    }

    /// Routes of one proxy that lead nowhere, and did not before.
    pub(super) fn of_references(before: &Held, after: &Held) -> Vec<String> {
        let then = dangling(before, &BTreeSet::new());
        dangling(after, &then)
            .into_iter()
            .map(|(route, cluster)| format!("route {route} sends to {cluster}, which is not there"))
            .collect()
    }
}

/// The clusters that routes send to and that the proxy does not have, but for some.
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

/// `outbound|80|v1|web.shop.svc` as people say it.
fn cluster_words(name: &str) -> String {
    let parts: Vec<&str> = name.split('|').collect();
    match parts.as_slice() {
        ["outbound", port, "", host] => format!("{host}:{port}"),
        ["outbound", port, subset, host] => format!("{host}:{port} subset {subset}"),
        _ => name.to_owned(),
    }
}

fn endpoints(name: &str, before: &Value, after: &Value) -> Option<String> {
    // Where the whole assignment goes, its cluster goes.
    (!after.is_null() && usable(before) > 0 && usable(after) == 0)
        .then(|| format!("{} loses its last endpoint", cluster_words(name)))
}

/// Endpoints that Envoy may send to.
fn usable(assignment: &Value) -> usize {
    let localities = assignment.get("endpoints").and_then(Value::as_array).into_iter().flatten();
    let endpoints = localities.filter_map(|locality| locality.get("lb_endpoints")?.as_array()).flatten();
    let is_usable = |endpoint: &&Value| {
        let health = endpoint.get("health_status").and_then(Value::as_str).unwrap_or("UNKNOWN");
        matches!(health, "UNKNOWN" | "HEALTHY" | "DEGRADED")
    };
    endpoints.filter(is_usable).count()
}

fn clusters(name: &str, before: &Value, after: &Value) -> Option<String> {
    if before.is_null() {
        return None;
    }
    if after.is_null() {
        let of_subset = name.split('|').nth(2).is_some_and(|subset| !subset.is_empty());
        let is_outbound = name.starts_with("outbound|");
        return (is_outbound && !of_subset).then(|| format!("{} is not known any more", cluster_words(name)));
    }
    (has_tls(before) && !has_tls(after)).then(|| format!("TLS to {} turns off", cluster_words(name)))
}

fn has_tls(value: &Value) -> bool {
    let is_tls =
        |socket: &Value| socket.get("name").and_then(Value::as_str).is_some_and(|name| name.contains("tls"));
    let matches = value.get("transport_socket_matches").and_then(Value::as_array).into_iter().flatten();
    value.get("transport_socket").is_some_and(is_tls)
        || matches.filter_map(|entry| entry.get("transport_socket")).any(is_tls)
}

fn listeners(name: &str, before: &Value, after: &Value) -> Vec<String> {
    if before.is_null() {
        return Vec::new();
    }
    if after.is_null() {
        return vec![format!("listener {name} goes")];
    }
    let mut found = Vec::new();
    let encrypted = ports(before, true);
    let was_plain = ports(before, false);
    for port in ports(after, false).difference(&was_plain).filter(|port| encrypted.contains(*port)) {
        let port = if port.is_empty() { "all other ports" } else { port };
        found.push(format!("mutual TLS is not required any more: listener {name} takes plaintext on {port}"));
    }
    for (filter, what) in [
        ("rbac", "authorization"),
        ("jwt_authn", "JWT authentication"),
        ("ext_authz", "external authorization"),
    ] {
        if count(before, filter) > 0 && count(after, filter) == 0 {
            found.push(format!("{what} of listener {name} turns off"));
        }
    }
    found
}

/// The destination ports of the filter chains with TLS, or of those without.
fn ports(listener: &Value, with_tls: bool) -> BTreeSet<String> {
    let chains = listener.get("filter_chains").and_then(Value::as_array).into_iter().flatten();
    let chains = chains.chain(listener.get("default_filter_chain"));
    let port = |chain: &Value| {
        let port = chain.pointer("/filter_chain_match/destination_port");
        port.map_or_else(String::new, Value::to_string)
    };
    chains.filter(|chain| has_tls(chain) == with_tls).map(port).collect()
}

/// How many filters have a text in their names.
fn count(value: &Value, part: &str) -> usize {
    match value {
        Value::Object(fields) => {
            let own = fields
                .get("name")
                .and_then(Value::as_str)
                .is_some_and(|name| name.starts_with("envoy.filters.") && name.ends_with(part));
            usize::from(own) + fields.values().map(|value| count(value, part)).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(|item| count(item, part)).sum(),
        _ => 0,
    }
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

/// The routes, as their host and what they match.
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

    #[test]
    fn tls_and_policies_that_turn_off_are_dangers() {
        let tls = json!({"name": "envoy.transport_sockets.tls"});
        let of = |section, before: &Value, after: &Value| Dangers::of_change(section, "x", before, after);
        let (with, without) = (json!({"name": "x", "transport_socket": tls}), json!({"name": "x"}));
        assert_eq!(of(Section::Clusters, &with, &without), ["TLS to x turns off"]);
        assert!(of(Section::Clusters, &without, &with).is_empty());
        let chain = |socket: Option<&Value>, filters: Value| {
            let mut chain = json!({"filter_chain_match": {"destination_port": 80}, "filters": filters});
            if let Some(socket) = socket {
                chain["transport_socket"] = socket.clone();
            }
            chain
        };
        let strict =
            json!({"filter_chains": [chain(Some(&tls), json!([{"name": "envoy.filters.network.rbac"}]))]});
        let permissive = json!({"filter_chains": [chain(Some(&tls), json!([])), chain(None, json!([]))]});
        assert_eq!(
            of(Section::Listeners, &strict, &permissive),
            [
                "mutual TLS is not required any more: listener x takes plaintext on 80",
                "authorization of listener x turns off"
            ]
        );
        assert!(of(Section::Listeners, &permissive, &strict).is_empty());
        assert_eq!(of(Section::Listeners, &strict, &Value::Null), ["listener x goes"]);
    }
}
