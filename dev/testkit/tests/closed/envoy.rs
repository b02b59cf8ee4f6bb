//! A model of how an Envoy decides over a connection, read from the resources that it is sent: filter chain,
//! TLS, filters, route.

use crate::call::{Call, Request, Tls};
use crate::jwt;
use crate::matchers::{Metadata, items, range, string, text};
use crate::rbac::Subject;
use serde_json::{Value, json};

/// The JWT filter, under whose name others find claims.
const JWT: &str = "envoy.filters.http.jwt_authn";
/// A cluster without endpoints.
const BLACK_HOLE: &str = "BlackHoleCluster";

/// The resources of one proxy.
pub(crate) struct Envoy<'a>(pub(crate) &'a Value);

impl Envoy<'_> {
    /// Whether a connection to a listener comes through, and the request on it, if there is one.
    pub(crate) fn admits(&self, listener: &str, call: &Call) -> bool {
        let listener = &self.0["listeners"][listener];
        let Some(chain) = chain(listener, call) else { return false };
        if !handshake(&chain["transport_socket"], call.tls.as_ref()) {
            return false;
        }
        let mut metadata = Metadata::new();
        items(chain, "filters").all(|filter| self.network_filter(filter, call, &mut metadata))
    }

    fn network_filter(&self, filter: &Value, call: &Call, metadata: &mut Metadata) -> bool {
        let config = &filter["typed_config"];
        match text(filter, "name").as_str() {
            "envoy.filters.network.rbac" => rbac(&text(filter, "name"), config, call, metadata),
            "envoy.filters.network.ext_authz" => !is_enabled(config, metadata),
            "envoy.filters.network.tcp_proxy" => self.leads_on(&config["cluster"]),
            "envoy.filters.network.http_connection_manager" => {
                call.http.as_ref().is_some_and(|request| self.request(config, call, request))
            }
            "istio.metadata_exchange" => true,
            other => panic!("no filter {other} is known"),
        }
    }

    fn request(&self, manager: &Value, call: &Call, request: &Request) -> bool {
        let mut metadata = Metadata::new();
        let mut filters = items(manager, "http_filters");
        filters.all(|filter| http_filter(filter, call, request, &mut metadata))
            && self.routed(manager, request)
    }

    fn routed(&self, manager: &Value, request: &Request) -> bool {
        let inline = &manager["route_config"];
        let routes = match manager["rds"]["route_config_name"].as_str() {
            Some(name) => &self.0["routes"][name],
            None => inline,
        };
        let Some(host) = virtual_host(routes, request.host) else { return false };
        if host.get("require_tls").is_some() {
            return false;
        }
        let route = items(host, "routes").find(|route| matches(&route["match"], request));
        route.is_some_and(|route| self.leads_on(&route["route"]["cluster"]))
    }

    /// Whether there is a cluster, other than the one without endpoints. Clusters of inbound traffic are
    /// taken to be there.
    fn leads_on(&self, cluster: &Value) -> bool {
        let Some(name) = cluster.as_str() else { return false };
        name != BLACK_HOLE && (name.starts_with("inbound|") || self.0["clusters"].get(name).is_some())
    }
}

fn http_filter(filter: &Value, call: &Call, request: &Request, metadata: &mut Metadata) -> bool {
    let config = &filter["typed_config"];
    match text(filter, "name").as_str() {
        name @ "envoy.filters.http.rbac" => rbac(name, config, call, metadata),
        "envoy.filters.http.ext_authz" => !is_enabled(config, metadata),
        JWT => match jwt::verify(config, request) {
            Some(Some(claims)) => {
                metadata.insert(JWT.to_owned(), json!({ "payload": claims }));
                true
            }
            Some(None) => true,
            None => false,
        },
        _ => true,
    }
}

/// An RBAC filter, which leaves the name of the matched rule for the external authorization behind it.
fn rbac(name: &str, config: &Value, call: &Call, metadata: &mut Metadata) -> bool {
    let subject = Subject { call, metadata };
    let (passes, matched) = (subject.passes(&config["rules"]), subject.matched(&config["shadow_rules"]));
    if let Some(matched) = matched {
        let key = format!("{}shadow_effective_policy_id", text(config, "shadow_rules_stat_prefix"));
        metadata.insert(name.to_owned(), json!({ key: matched }));
    }
    passes
}

/// Whether the external authorization is asked. The model's authorizer denies whatever it is asked about.
fn is_enabled(config: &Value, metadata: &Metadata) -> bool {
    crate::matchers::metadata(&config["filter_enabled_metadata"], metadata)
}

/// Whether the handshake comes to an end: a socket without TLS has none, and TLS to it is no protocol that it
/// knows.
fn handshake(socket: &Value, tls: Option<&Tls>) -> bool {
    let Some(tls) = tls else { return socket.is_null() };
    if socket.is_null() {
        return false;
    }
    let config = &socket["typed_config"];
    let required = config["require_client_certificate"].as_bool().unwrap_or(false);
    let context = &config["common_tls_context"]["combined_validation_context"]["default_validation_context"];
    let names: Vec<&Value> = items(context, "match_subject_alt_names").collect();
    match &tls.certificate {
        None => !required,
        Some(name) => names.is_empty() || names.iter().any(|matcher| string(matcher, name)),
    }
}

/// The filter chain of a connection: condition after condition, those that name it before those that do not,
/// and no way back.
fn chain<'a>(listener: &'a Value, call: &Call) -> Option<&'a Value> {
    let mut chains: Vec<&Value> = items(listener, "filter_chains").collect();
    let of = |chain: &Value, field: &str| chain["filter_chain_match"][field].clone();
    narrow(&mut chains, |chain| match of(chain, "destination_port").as_u64() {
        Some(port) => (port == u64::from(call.port)).then_some(1),
        None => Some(0),
    });
    narrow(&mut chains, |chain| {
        let ranges = of(chain, "prefix_ranges");
        let ranges = ranges.as_array().map_or(&[][..], Vec::as_slice);
        let fits = ranges.iter().filter(|one| range(one, call.destination));
        let longest = fits.map(|one| one["prefix_len"].as_u64().unwrap_or(0) + 1).max();
        if ranges.is_empty() { Some(0) } else { longest }
    });
    let name = call.tls.as_ref().map_or("", |tls| tls.server_name.as_str());
    narrow(&mut chains, |chain| best_name(&of(chain, "server_names"), name));
    let transport = if call.tls.is_some() { "tls" } else { "raw_buffer" };
    narrow(&mut chains, |chain| match of(chain, "transport_protocol").as_str() {
        Some(written) => (written == transport).then_some(1),
        None => Some(0),
    });
    narrow(&mut chains, |chain| {
        let protocols = of(chain, "application_protocols");
        let Some(protocols) = protocols.as_array() else { return Some(0) };
        protocols.iter().any(|one| application_protocols(call).iter().any(|own| one == own)).then_some(1)
    });
    assert!(chains.len() <= 1, "Envoy refuses chains with equal conditions: {chains:?}");
    chains.pop().or_else(|| listener.get("default_filter_chain"))
}

/// Keeps the chains with the highest rank.
fn narrow(chains: &mut Vec<&Value>, rank: impl Fn(&Value) -> Option<u64>) {
    let best = chains.iter().filter_map(|chain| rank(chain)).max();
    chains.retain(|chain| best.is_some() && rank(chain) == best);
}

/// The rank of the best of several names, with `*.` in front for all below.
fn best_name(written: &Value, name: &str) -> Option<u64> {
    let Some(written) = written.as_array() else { return Some(0) };
    let rank = |pattern: &str| match pattern.strip_prefix('*') {
        Some(end) if name.ends_with(end) => Some(pattern.len()),
        None if pattern == name => Some(1_000),
        _ => None,
    };
    let best = written.iter().filter_map(Value::as_str).filter_map(rank).max();
    best.map(|rank| u64::try_from(rank).expect("a small number"))
}

fn application_protocols(call: &Call) -> &[&'static str] {
    match (&call.tls, &call.http) {
        (Some(tls), _) => &tls.protocols,
        (None, Some(_)) => &["http/1.1"],
        (None, None) => &[],
    }
}

/// The virtual host of a host: by its name, by the longest wildcard, or the one for all.
fn virtual_host<'a>(routes: &'a Value, host: &str) -> Option<&'a Value> {
    let name = host.split(':').next().unwrap_or_default();
    let rank = |pattern: &str| match pattern.strip_prefix('*') {
        _ if pattern == "*" => Some(1),
        _ if pattern == host || pattern == name => Some(1_000),
        Some(end) if name.ends_with(end) => Some(pattern.len()),
        _ => None,
    };
    let best = |host: &Value| items(host, "domains").filter_map(Value::as_str).filter_map(rank).max();
    items(routes, "virtual_hosts").filter(|host| best(host).is_some()).max_by_key(|host| best(host))
}

fn matches(written: &Value, request: &Request) -> bool {
    match (written["prefix"].as_str(), written["path"].as_str()) {
        (Some(prefix), _) => request.path.starts_with(prefix),
        (_, Some(path)) => request.path == path,
        _ => panic!("a match of a route that is not known: {written}"),
    }
}
