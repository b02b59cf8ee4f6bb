//! Reads and blocking queries.

use super::connection::{Blocked, Content};
use super::filter::Filter;
use super::options::{ConsulFault, ConsulOptions, Rights};
use super::request::{Answer, Found, Query, fault_for, random, refuse};
use super::server::{Shared, State};
use super::store::Store;
use super::value::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// [blocking] Maximum `wait`, and the default of a query without one.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(600);
pub(super) const DEFAULT_WAIT: Duration = Duration::from_secs(300);
/// [blocking] A wait is lengthened by up to this fraction.
pub(super) const JITTER_PART: u32 = 16;

/// [consistency] Consistency mode of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Consistency {
    Default,
    Consistent,
    Stale,
}

impl Consistency {
    pub(super) fn of(query: &Query) -> Answer<Self> {
        match (query.has("stale"), query.has("consistent")) {
            (true, true) => refuse(
                StatusCode::BAD_REQUEST,
                "Cannot specify ?stale with ?consistent, conflicting semantics.",
            ),
            (true, false) => Ok(Self::Stale),
            (false, true) => Ok(Self::Consistent),
            (false, false) => Ok(Self::Default),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "leader",
            Self::Consistent => "consistent",
            Self::Stale => "stale",
        }
    }
}

/// A read that may block.
pub(super) enum Read {
    Services,
    Nodes,
    Node(String),
    Instances(String),
    Health(String),
    Checks(String),
    NodeChecks(String),
    State(String),
    Key(String),
    Session(String),
    Sessions(Option<String>),
}

impl Read {
    pub(super) fn parse(parts: &[&str]) -> Option<Self> {
        let own = |name: &&str| (*name).to_owned();
        Some(match parts {
            ["catalog", "services"] => Self::Services,
            ["catalog", "nodes"] => Self::Nodes,
            ["catalog", "node", name] => Self::Node(own(name)),
            ["catalog", "service", name] => Self::Instances(own(name)),
            ["health", "service", name] => Self::Health(own(name)),
            ["health", "checks", name] => Self::Checks(own(name)),
            ["health", "node", name] => Self::NodeChecks(own(name)),
            ["health", "state", name] => Self::State(own(name)),
            ["kv", key @ ..] => Self::Key(key.join("/")),
            ["session", "info", id] => Self::Session(own(id)),
            ["session", "node", name] => Self::Sessions(Some(own(name))),
            ["session", "list"] => Self::Sessions(None),
            _ => return None,
        })
    }

    /// [blocking] Index of the requested data. A service that does not exist has no index of its own: any
    /// change of services counts.
    pub(super) fn index(&self, store: &Store, query: &Query) -> u64 {
        let index = match self {
            Self::Services => {
                store.services_index.max(if query.has("node-meta") { store.nodes_index } else { 0 })
            }
            Self::Nodes => store.nodes_index,
            Self::Node(_) => store.services_index.max(store.nodes_index),
            Self::Instances(name) | Self::Health(name) | Self::Checks(name) => {
                store.by_service.get(name).copied().unwrap_or(store.services_index)
            }
            Self::NodeChecks(_) | Self::State(_) => store.checks_index,
            Self::Key(key) if query.has("recurse") || query.has("keys") => {
                let below =
                    store.kv.range(key.clone()..).take_while(|(name, _)| name.starts_with(key.as_str()));
                below.map(|(_, pair)| pair.modified).max().unwrap_or_default().max(store.deleted_index)
            }
            Self::Key(key) => store.kv.get(key).map_or(store.deleted_index, |pair| pair.modified),
            Self::Session(_) | Self::Sessions(_) => store.sessions_index,
        };
        index.max(1)
    }

    pub(super) fn is_known(&self) -> Answer<()> {
        match self {
            // [health, list checks in state] Valid states.
            Self::State(state)
                if !["any", "unknown", "passing", "warning", "critical"].contains(&state.as_str()) =>
            {
                refuse(StatusCode::BAD_REQUEST, "invalid state")
            }
            _ => Ok(()),
        }
    }

    /// The value, and a flag for omissions because of missing rights.
    pub(super) fn value(&self, store: &Store, query: &Query, rights: &Rights) -> Answer<Listed> {
        let mut listed = match self {
            Self::Services => return store.list_services(query, rights),
            Self::Key(key) => return store.read_key(key, query).map(Listed::whole),
            Self::Node(name) => return Ok(store.node_services(name)),
            Self::Nodes => Listed::of(store.nodes.values().map(|node| (rights.reads_nodes(), node.clone()))),
            Self::Health(name) => Listed::of(store.instances(name).map(|(node, service)| {
                (rights.reads_service(name) && rights.reads_nodes(), store.entry(node, service))
            })),
            Self::Instances(name) => Listed::of(store.instances(name).map(|(node, service)| {
                (rights.reads_service(name) && rights.reads_nodes(), store.flat(node, service))
            })),
            Self::Checks(name) => store.list_checks(rights, |check| text(check, "ServiceName") == name),
            Self::NodeChecks(name) => store.list_checks(rights, |check| text(check, "Node") == name),
            Self::State(state) => {
                store.list_checks(rights, |check| state == "any" || text(check, "Status") == state)
            }
            Self::Session(id) => {
                Listed::of(store.sessions.get(id).map(|session| (true, session.value.clone())))
            }
            Self::Sessions(node) => Listed::of(
                store
                    .sessions
                    .values()
                    .filter(|session| node.as_ref().is_none_or(|node| text(&session.value, "Node") == node))
                    .map(|session| (true, session.value.clone())),
            ),
        };
        listed.narrow(self, query)?;
        Ok(listed)
    }
}

/// A list, and a flag for omissions because of missing rights.
pub(super) struct Listed {
    pub(super) value: Value,
    pub(super) filtered: bool,
}

impl Listed {
    pub(super) fn whole(value: Value) -> Self {
        Self { value, filtered: false }
    }

    pub(super) fn of(items: impl IntoIterator<Item = (bool, Value)>) -> Self {
        let mut filtered = false;
        let mut list = Vec::new();
        for (allowed, item) in items {
            if allowed {
                list.push(item);
            } else {
                filtered = true;
            }
        }
        Self { value: Value::Array(list), filtered }
    }

    /// [health, list service instances] Applies `tag` and `node-meta`, which may be repeated and must all
    /// match, then `passing`, then the filter.
    pub(super) fn narrow(&mut self, read: &Read, query: &Query) -> Answer<()> {
        let filter = query.get("filter").filter(|text| !text.is_empty()).map(Filter::parse).transpose()?;
        let Value::Array(items) = &mut self.value else { return Ok(()) };
        let (tags, meta, passing) = match read {
            Read::Health(_) => ("/Service/Tags", "/Node/Meta", query.has("passing")),
            Read::Instances(_) => ("/ServiceTags", "/NodeMeta", false),
            _ => ("", "/Meta", false),
        };
        items.retain(|item| {
            let has_tag = |tag: &str| {
                let tags = item.pointer(tags).and_then(Value::as_array);
                tags.is_some_and(|tags| tags.iter().any(|own| own.as_str() == Some(tag)))
            };
            query.all("tag").all(has_tag)
                && query.all("node-meta").all(|pair| has_meta(item.pointer(meta), pair))
                && (!passing || checks_of(item).all(|check| text(check, "Status") == "passing"))
                && filter.as_ref().is_none_or(|filter| filter.holds(item))
        });
        Ok(())
    }
}

pub(super) fn checks_of(entry: &Value) -> impl Iterator<Item = &Value> {
    entry.get("Checks").and_then(Value::as_array).into_iter().flatten()
}

/// [catalog, `node-meta`] True if a pair `key:value` matches.
pub(super) fn has_meta(meta: Option<&Value>, pair: &str) -> bool {
    let (key, value) = pair.split_once(':').unwrap_or((pair, ""));
    meta.and_then(|meta| meta.get(key)).and_then(Value::as_str) == Some(value)
}

pub(super) async fn get(
    shared: &Arc<Shared>,
    path: &str,
    parts: &[&str],
    query: &Query,
    rights: &Rights,
    authenticated: bool,
) -> Answer<Found> {
    let Some(read) = Read::parse(parts) else { return get_now(shared, parts, rights) };
    read.is_known()?;
    let consistency = Consistency::of(query)?;
    let asked = index_parameter(query)?;
    if asked > 0 {
        wait_for_change(shared, path, &read, query, asked).await?;
    }
    let mut state = shared.lock();
    let dc = datacenter(&state, &shared.options, query)?.to_owned();
    if !state.leader && consistency != Consistency::Stale {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No cluster leader");
    }
    let fault = fault_for(&state, path);
    let store = &state.stores[&dc];
    let index = reported(fault.as_ref(), &read, store, query);
    let mut listed = read.value(store, query, rights)?;
    if let Some(ConsulFault::Empty) = fault {
        listed.value = if listed.value.is_object() { json!({}) } else { json!([]) };
    }
    // [blocking] Each response uses the next one of injected indexes.
    for (prefix, fault) in &mut state.faults {
        if let (true, ConsulFault::Indexes(indexes)) = (path.starts_with(prefix.as_str()), fault) {
            indexes.pop_front();
        }
    }
    let mut found = if matches!((&read, query.has("raw")), (Read::Key(_), true)) {
        raw(&listed.value)
    } else {
        Found::json(&listed.value)
    };
    if listed.value.is_null() {
        // [kv] A missing key is a 404 that can be waited for.
        found = Found { status: StatusCode::NOT_FOUND, ..Found::nothing() };
    }
    let streamed =
        shared.options.streaming && asked > 0 && matches!(read, Read::Health(_)) && !query.has("near");
    let about = About { index, consistency, filtered: listed.filtered, authenticated, streamed };
    found.headers = about.headers(&state, fault.as_ref());
    Ok(found)
}

/// [kv, raw] The value without JSON.
pub(super) fn raw(value: &Value) -> Found {
    let text = value.pointer("/0/Value").and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(text).unwrap_or_default();
    Found { body: Content { bytes: Some(bytes.into()), ..Content::default() }, ..Found::nothing() }
}

/// Values for the headers of a read.
pub(super) struct About {
    pub(super) index: u64,
    pub(super) consistency: Consistency,
    pub(super) filtered: bool,
    pub(super) authenticated: bool,
    pub(super) streamed: bool,
}

impl About {
    /// [consistency] [index] Headers of every read.
    pub(super) fn headers(&self, state: &State, fault: Option<&ConsulFault>) -> Vec<(&'static str, String)> {
        let policy = if state.acl.is_some() { "deny" } else { "allow" };
        let backend = if self.streamed { "streaming" } else { "blocking-query" };
        let mut headers = vec![
            ("x-consul-index", self.index.to_string()),
            ("x-consul-default-acl-policy", policy.to_owned()),
            ("x-consul-effective-consistency", self.consistency.name().to_owned()),
            ("x-consul-query-backend", backend.to_owned()),
        ];
        if !self.streamed {
            let last_contact = match fault {
                Some(ConsulFault::LastContact(time)) if self.consistency == Consistency::Stale => *time,
                _ => 0,
            };
            headers.push(("x-consul-knownleader", state.leader.to_string()));
            headers.push(("x-consul-lastcontact", last_contact.to_string()));
        }
        // [index, results filtered by ACLs] Reported since Consul 1.11.
        let hidden = state.acl.as_ref().is_some_and(|acl| acl.hide_from_anonymous) && !self.authenticated;
        if self.filtered && !hidden {
            headers.push(("x-consul-results-filtered-by-acls", "true".to_owned()));
        }
        headers
    }
}

pub(super) fn index_parameter(query: &Query) -> Answer<u64> {
    match query.get("index") {
        None | Some("") => Ok(0),
        Some(text) => text.parse().or_else(|_| refuse(StatusCode::BAD_REQUEST, "Invalid index")),
    }
}

/// Reported index: that of the store, or the next one of a fault.
pub(super) fn reported(fault: Option<&ConsulFault>, read: &Read, store: &Store, query: &Query) -> u64 {
    match fault {
        Some(ConsulFault::Indexes(indexes)) if !indexes.is_empty() => indexes[0],
        _ => read.index(store, query),
    }
}

/// [blocking] Waits until the index exceeds the one of the query, or `wait` and its jitter are over. A lower
/// index does not end the wait: such a query returns on its timeout.
pub(super) async fn wait_for_change(
    shared: &Arc<Shared>,
    path: &str,
    read: &Read,
    query: &Query,
    asked: u64,
) -> Answer<()> {
    let wait = match query.get("wait") {
        None | Some("") => DEFAULT_WAIT,
        Some(text) => match pilotfish_duration::parse(text).ok() {
            Some(Duration::ZERO) => DEFAULT_WAIT,
            Some(wait) => wait.min(MAX_WAIT),
            None => return refuse(StatusCode::BAD_REQUEST, "Invalid wait time"),
        },
    };
    let jitter = wait / JITTER_PART;
    let part = u32::try_from(random() % 1000).unwrap_or_default();
    let deadline = Instant::now() + wait + jitter * part / 1000;
    let mut changes = shared.changes.subscribe();
    let _blocked = Blocked::new(shared);
    loop {
        changes.mark_unchanged();
        {
            let state = shared.lock();
            let dc = datacenter(&state, &shared.options, query)?;
            if reported(fault_for(&state, path).as_ref(), read, &state.stores[dc], query) > asked {
                return Ok(());
            }
        }
        match timeout_at(deadline, changes.changed()).await {
            Ok(Ok(())) => {}
            // Timeout; the sender outlives this function.
            _ => return Ok(()),
        }
    }
}

pub(super) fn datacenter<'a>(state: &State, options: &'a ConsulOptions, query: &'a Query) -> Answer<&'a str> {
    let dc = query
        .get("dc")
        .filter(|dc| !dc.is_empty())
        .or_else(|| options.datacenters.first().map(String::as_str));
    match dc {
        Some(dc) if state.stores.contains_key(dc) => Ok(dc),
        // [kv] "No path to datacenter" for an unknown data centre.
        _ => refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter"),
    }
}

/// Reads that do not block.
pub(super) fn get_now(shared: &Shared, parts: &[&str], rights: &Rights) -> Answer<Found> {
    let state = shared.lock();
    let options = &shared.options;
    let store = own_store(&state, options);
    let agent = &options.node;
    let value = match parts {
        // [status] Raft address of the leader; empty without a leader.
        ["status", "leader"] => json!(if state.leader { "127.0.0.1:8300" } else { "" }),
        ["status", "peers"] => json!(["127.0.0.1:8300"]),
        // [catalog, list datacenters] Works without a leader.
        ["catalog", "datacenters"] => json!(options.datacenters),
        ["agent", "self"] if !rights.reads_nodes() => {
            return refuse(StatusCode::FORBIDDEN, "Permission denied");
        }
        ["agent", "self"] => json!({
            "Config": {"Datacenter": options.datacenters[0], "NodeName": agent, "Server": true, "Version": "1.20.0"},
            "Member": {"Name": agent, "Addr": "127.0.0.1", "Status": 1},
            "Meta": {},
        }),
        ["agent", "members"] => {
            json!([{"Name": agent, "Addr": "127.0.0.1", "Port": 8301, "Status": 1, "Tags": {}}])
        }
        ["agent", "services"] => {
            let own = store.services.iter().filter(|((node, id), _)| node == agent && id != "consul");
            Value::Object(own.map(|((_, id), service)| (id.clone(), service.clone())).collect())
        }
        ["agent", "checks"] => {
            let own = store.checks.iter().filter(|((node, id), _)| node == agent && id != "serfHealth");
            Value::Object(own.map(|((_, id), check)| (id.clone(), check.clone())).collect())
        }
        ["agent", "service", id] => match store.services.get(&(agent.clone(), (*id).to_owned())) {
            Some(service) => service.clone(),
            None => return refuse(StatusCode::NOT_FOUND, format!("unknown service ID: {id}")),
        },
        ["agent", "health", "service", "name", name] => return agent_health(store, agent, name),
        _ => return refuse(StatusCode::NOT_FOUND, "404 page not found"),
    };
    Ok(Found::json(&value))
}

/// [agent/service, local service health] 200 passing, 429 warning, 503 critical, 404 unknown.
pub(super) fn agent_health(store: &Store, agent: &str, name: &str) -> Answer<Found> {
    let own: Vec<_> = store.instances(name).filter(|(node, _)| *node == agent).collect();
    let mut worst = "passing";
    let mut list = Vec::new();
    for (node, service) in &own {
        let entry = store.entry(node, service);
        let mut status = "passing";
        for check in checks_of(&entry) {
            match text(check, "Status") {
                "critical" => status = "critical",
                "warning" if status == "passing" => status = "warning",
                _ => {}
            }
        }
        if status == "critical" || worst == "passing" {
            worst = status;
        }
        list.push(json!({"AggregatedStatus": status, "Service": service, "Checks": entry["Checks"]}));
    }
    let body = Value::Array(list);
    match (own.is_empty(), worst) {
        (true, _) => refuse(StatusCode::NOT_FOUND, "[]"),
        (_, "warning") => refuse(StatusCode::TOO_MANY_REQUESTS, body.to_string()),
        (_, "critical") => refuse(StatusCode::SERVICE_UNAVAILABLE, body.to_string()),
        _ => Ok(Found::json(&body)),
    }
}

pub(super) fn own_store<'a>(state: &'a State, options: &ConsulOptions) -> &'a Store {
    &state.stores[&options.datacenters[0]]
}
