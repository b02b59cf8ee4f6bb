//! Listeners that are removed or lose a filter chain, or that require less of their clients than before.

use super::{authorization, is_tls, list, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Dangers in a change of a listener.
pub(super) fn dangers(name: &str, before: &Value, after: &Value) -> Vec<String> {
    if before.is_null() {
        return Vec::new();
    }
    if after.is_null() {
        return vec![format!("listener {name} goes")];
    }
    let mut found = tls(name, before, after);
    found.extend(parts(name, before, after));
    for (filter, what) in [
        ("rbac", "authorization"),
        ("jwt_authn", "JWT authentication"),
        ("ext_authz", "external authorization"),
    ] {
        if count(before, filter) > 0 && count(after, filter) == 0 {
            found.push(format!("{what} of listener {name} turns off"));
        }
    }
    found.extend(authorization::dangers(name, before, after));
    found
}

/// Kinds of connections that the filter chains of a port accept.
#[derive(Clone, Copy, Debug, Default)]
struct Takes {
    plaintext: bool,
    tls: bool,
    /// True if TLS is accepted without a client certificate.
    tls_without_certificate: bool,
}

/// Ports that require less of clients. The port is empty for the chains of all ports without their own.
fn tls(name: &str, before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (takes(before), takes(after));
    let mut found = Vec::new();
    for (port, old) in before.iter().filter(|(_, old)| old.tls) {
        // Connections to a port without own chains use those of the other ports.
        let Some(new) = after.get(port).or_else(|| after.get("")) else { continue };
        let port = if port.is_empty() { "all other ports" } else { port };
        let kind = if old.tls_without_certificate { "TLS" } else { "mutual TLS" };
        if !new.tls && new.plaintext {
            found.push(format!("{kind} turns off: listener {name} takes plaintext only on {port}"));
        } else if !old.plaintext && new.plaintext {
            found.push(format!("{kind} is not required any more: listener {name} takes plaintext on {port}"));
        }
        if !old.tls_without_certificate && new.tls_without_certificate {
            found.push(format!("listener {name} takes TLS without a client's certificate on {port}"));
        }
    }
    found
}

fn takes(listener: &Value) -> BTreeMap<String, Takes> {
    let mut all: BTreeMap<String, Takes> = BTreeMap::new();
    for chain in chains(listener) {
        let port = chain.pointer("/filter_chain_match/destination_port");
        let takes = all.entry(port.map_or_else(String::new, Value::to_string)).or_default();
        let Some(socket) = chain.get("transport_socket").filter(|socket| is_tls(socket)) else {
            // TLS passthrough is not plaintext.
            takes.plaintext |= text(chain, "/filter_chain_match/transport_protocol") != "tls";
            continue;
        };
        takes.tls = true;
        let required = socket.pointer("/typed_config/require_client_certificate");
        takes.tls_without_certificate |=
            required.and_then(Value::as_bool) == Some(false) || required.is_none();
    }
    all
}

fn chains(listener: &Value) -> impl Iterator<Item = &Value> {
    list(listener, "/filter_chains").chain(listener.get("default_filter_chain"))
}

/// Match of a filter chain: port, address range, server name. Transport requirements are not part of it.
type Part = (String, String, String);

/// Parts of a listener that lost their filter chain. A port of a workload without own chains falls back to
/// those of the other ports.
fn parts(name: &str, before: &Value, after: &Value) -> Vec<String> {
    let left = parts_of(after);
    let has_others = left.contains(&Part::default());
    let goes_on = |(_, range, name): &Part| has_others && range.is_empty() && name.is_empty();
    let gone = parts_of(before).into_iter().filter(|part| !left.contains(part) && !goes_on(part));
    gone.map(|part| format!("listener {name} has no filter chain for {} any more", words(&part))).collect()
}

fn parts_of(listener: &Value) -> BTreeSet<Part> {
    let mut all = BTreeSet::new();
    for chain in chains(listener) {
        let port = chain.pointer("/filter_chain_match/destination_port");
        let port = port.map_or_else(String::new, Value::to_string);
        let ranges = list(chain, "/filter_chain_match/prefix_ranges").map(|range| {
            let length = range.get("prefix_len").map_or_else(String::new, |length| format!("/{length}"));
            format!("{}{length}", text(range, "/address_prefix"))
        });
        let ranges = or_any(ranges.collect());
        let names = list(chain, "/filter_chain_match/server_names").filter_map(Value::as_str);
        let names = or_any(names.map(str::to_owned).collect());
        for range in &ranges {
            all.extend(names.iter().map(|name| (port.clone(), range.clone(), name.clone())));
        }
    }
    all
}

fn or_any(list: Vec<String>) -> Vec<String> {
    if list.is_empty() { vec![String::new()] } else { list }
}

fn words((port, range, name): &Part) -> String {
    let parts = [("port ", port), ("address ", range), ("TLS to ", name)];
    let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
    let parts: Vec<String> = parts.map(|(what, text)| format!("{what}{text}")).collect();
    if parts.is_empty() {
        "connections that no other filter chain takes".to_owned()
    } else {
        parts.join(", ")
    }
}

/// Number of filters with `part` at the end of their name.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chain(socket: Option<&Value>, matches: impl Into<Value>, filters: impl Into<Value>) -> Value {
        let (matches, filters): (Value, Value) = (matches.into(), filters.into());
        let mut chain = json!({"filter_chain_match": matches, "filters": filters});
        if let Some(socket) = socket {
            chain["transport_socket"] = socket.clone();
        }
        chain
    }

    fn of(chains: &[Value]) -> Value {
        json!({"filter_chains": chains})
    }

    #[test]
    fn tls_that_turns_off_or_is_not_required_any_more_is_a_danger() {
        let tls = json!({"name": "envoy.transport_sockets.tls", "typed_config": {"require_client_certificate": true}});
        let simple = json!({"name": "envoy.transport_sockets.tls", "typed_config": {}});
        let at =
            |port: u32, transport: &str| json!({"destination_port": port, "transport_protocol": transport});
        let mutual = chain(Some(&tls), at(80, "tls"), json!([]));
        let plain = chain(None, at(80, "raw_buffer"), json!([]));
        let foreign = chain(None, at(80, "tls"), json!([]));
        let others = chain(None, json!({"transport_protocol": "raw_buffer"}), json!([]));
        let strict = of(std::slice::from_ref(&mutual));
        let permissive = of(&[mutual.clone(), foreign, plain.clone()]);
        let disabled = of(&[plain]);
        let simple = of(&[chain(Some(&simple), at(80, "tls"), json!([]))]);
        let off = "mutual TLS turns off: listener x takes plaintext only on 80";
        let optional = "mutual TLS is not required any more: listener x takes plaintext on 80";
        let table: &[(&Value, &Value, &[&str])] = &[
            (&strict, &permissive, &[optional]),
            (&strict, &disabled, &[off]),
            (&permissive, &disabled, &[off]),
            (&strict, &simple, &["listener x takes TLS without a client's certificate on 80"]),
            (&permissive, &strict, &[]),
            (&disabled, &permissive, &[]),
            (&disabled, &strict, &[]),
            // The port has no chains any more, and those of all others are plaintext.
            (&permissive, &of(&[others]), &[off]),
            (&strict, &Value::Null, &["listener x goes"]),
            (&Value::Null, &strict, &[]),
        ];
        for (before, after, want) in table {
            assert_eq!(dangers("x", before, after), *want, "{before} {after}");
        }
    }

    #[test]
    fn a_part_of_a_listener_that_goes_is_a_danger() {
        let sni = |names: &[&str]| {
            chain(None, json!({"transport_protocol": "tls", "server_names": names}), json!([]))
        };
        let range = |address: &str| {
            chain(None, json!({"prefix_ranges": [{"address_prefix": address, "prefix_len": 32}]}), json!([]))
        };
        let rest = json!({"filters": []});
        let gone = |what: &str| vec![format!("listener x has no filter chain for {what} any more")];
        let table = [
            (
                of(&[sni(&["a.example.com", "b.example.com"])]),
                of(&[sni(&["a.example.com"])]),
                gone("TLS to b.example.com"),
            ),
            (
                of(&[range("10.0.0.1"), range("10.0.0.2")]),
                of(&[range("10.0.0.2")]),
                gone("address 10.0.0.1/32"),
            ),
            (
                of(&[rest.clone(), range("10.0.0.1")]),
                of(&[range("10.0.0.1")]),
                gone("connections that no other filter chain takes"),
            ),
            (of(&[range("10.0.0.1")]), of(&[range("10.0.0.1"), rest]), Vec::new()),
            (of(&[sni(&["b"]), sni(&["a"])]), of(&[sni(&["a", "b"])]), Vec::new()),
        ];
        for (before, after, want) in table {
            assert_eq!(dangers("x", &before, &after), want, "{before} {after}");
        }
    }

    #[test]
    fn filters_that_go_are_dangers() {
        let with = |name: &str| of(&[chain(None, json!({"destination_port": 80}), json!([{"name": name}]))]);
        let none = of(&[chain(None, json!({"destination_port": 80}), json!([]))]);
        for (filter, what) in [
            ("envoy.filters.network.rbac", "authorization"),
            ("envoy.filters.http.jwt_authn", "JWT authentication"),
            ("envoy.filters.http.ext_authz", "external authorization"),
        ] {
            assert_eq!(dangers("x", &with(filter), &none), [format!("{what} of listener x turns off")]);
            assert!(dangers("x", &none, &with(filter)).is_empty());
        }
    }
}
