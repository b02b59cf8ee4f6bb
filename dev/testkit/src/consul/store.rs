//! Data of one data centre.

use super::options::ConsulOptions;
use super::request::{Answer, Query, refuse, uuid};
use super::value::{field, first, object, same, service_value, stamp, text, text_of};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Data of one data centre. Nodes, services and checks are stored in the format of responses.
pub(super) struct Store {
    pub(super) index: u64,
    pub(super) nodes: BTreeMap<String, Value>,
    /// Services by node and id.
    pub(super) services: BTreeMap<(String, String), Value>,
    /// Nodes and ids by service name.
    pub(super) names: BTreeMap<String, BTreeSet<(String, String)>>,
    pub(super) checks: BTreeMap<(String, String), Value>,
    pub(super) kv: BTreeMap<String, Pair>,
    pub(super) sessions: BTreeMap<String, Session>,
    /// [session, `LockDelay`] Keys that cannot be locked yet.
    pub(super) delayed: BTreeMap<String, Instant>,
    pub(super) ttls: BTreeMap<(String, String), Ttl>,
    /// Time since which a check is critical, and the time until its service is deregistered.
    pub(super) reapable: BTreeMap<(String, String), (Instant, Duration)>,
    pub(super) reaped: Instant,
    pub(super) nodes_index: u64,
    pub(super) services_index: u64,
    pub(super) checks_index: u64,
    pub(super) sessions_index: u64,
    pub(super) deleted_index: u64,
    /// [blocking] Index of each service.
    pub(super) by_service: BTreeMap<String, u64>,
}

#[derive(Clone, Default)]
pub(super) struct Pair {
    pub(super) created: u64,
    pub(super) modified: u64,
    pub(super) locks: u64,
    pub(super) flags: u64,
    pub(super) value: Vec<u8>,
    pub(super) session: Option<String>,
}

pub(super) struct Session {
    pub(super) value: Value,
    pub(super) ttl: Option<Duration>,
    pub(super) deadline: Option<Instant>,
    pub(super) deletes: bool,
    pub(super) delay: Duration,
}

pub(super) struct Ttl {
    pub(super) every: Duration,
    pub(super) deadline: Instant,
}

impl Store {
    pub(super) fn all(options: &ConsulOptions) -> BTreeMap<String, Self> {
        let named = |dc: &String| (dc.clone(), Self::new(dc, &options.node));
        options.datacenters.iter().map(named).collect()
    }

    /// Creates the data of a server, which has itself in its catalog: its node with `serfHealth`, and the
    /// service `consul`.
    pub(super) fn new(dc: &str, agent: &str) -> Self {
        let mut store = Self {
            index: 10,
            nodes: BTreeMap::new(),
            services: BTreeMap::new(),
            names: BTreeMap::new(),
            checks: BTreeMap::new(),
            kv: BTreeMap::new(),
            sessions: BTreeMap::new(),
            delayed: BTreeMap::new(),
            ttls: BTreeMap::new(),
            reapable: BTreeMap::new(),
            reaped: Instant::now(),
            nodes_index: 0,
            services_index: 0,
            checks_index: 0,
            sessions_index: 0,
            deleted_index: 0,
            by_service: BTreeMap::new(),
        };
        let addresses =
            json!({"lan": "127.0.0.1", "lan_ipv4": "127.0.0.1", "wan": "127.0.0.1", "wan_ipv4": "127.0.0.1"});
        store.put_node(
            agent,
            json!({
                "ID": uuid(), "Node": agent, "Address": "127.0.0.1", "Datacenter": dc,
                "TaggedAddresses": addresses, "Meta": {"consul-network-segment": ""},
            }),
        );
        let taken = store
            .put_service(agent, &json!({"ID": "consul", "Service": "consul", "Port": 8300}))
            .and_then(|()| {
                let check = json!({"Name": "Serf Health Status"});
                store.put_check(agent, "serfHealth", &check, "", "passing", "Agent alive and reachable")
            });
        taken.expect("the agent's own registration is well-formed");
        store
    }

    pub(super) fn next(&mut self) -> u64 {
        self.index += 1;
        self.index
    }

    pub(super) fn put_node(&mut self, name: &str, mut node: Value) {
        let old = self.nodes.get(name);
        if same(old, &node) {
            return;
        }
        let index = self.next();
        stamp(&mut node, self.nodes.get(name), index);
        self.nodes.insert(name.to_owned(), node);
        self.nodes_index = index;
        self.touch_node(name, index);
    }

    /// Updates the index of every service with an instance on a changed node.
    pub(super) fn touch_node(&mut self, node: &str, index: u64) {
        let own =
            self.services.range((node.to_owned(), String::new())..).take_while(|((on, _), _)| on == node);
        for (_, service) in own {
            self.by_service.insert(text(service, "Service").to_owned(), index);
        }
    }

    /// [agent/service] [catalog] Stores a service with defaults for missing fields.
    pub(super) fn put_service(&mut self, node: &str, payload: &Value) -> Answer<()> {
        let name = first(&[text_of(payload, "Service"), text_of(payload, "Name")]).to_owned();
        if name.is_empty() {
            return refuse(StatusCode::BAD_REQUEST, "Missing service name");
        }
        let id = first(&[text_of(payload, "ID"), &name]).to_owned();
        let mut service = service_value(payload, &id, &name);
        let key = (node.to_owned(), id);
        if same(self.services.get(&key), &service) {
            return Ok(());
        }
        let index = self.next();
        let old = self.services.get(&key).cloned();
        stamp(&mut service, old.as_ref(), index);
        if let Some(old) = old.filter(|old| text(old, "Service") != name) {
            self.forget_name(text(&old, "Service"), &key);
        }
        self.names.entry(name.clone()).or_default().insert(key.clone());
        self.services.insert(key, service);
        self.services_index = index;
        self.by_service.insert(name, index);
        Ok(())
    }

    pub(super) fn forget_name(&mut self, name: &str, key: &(String, String)) {
        let Some(keys) = self.names.get_mut(name) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.names.remove(name);
            self.by_service.remove(name);
        } else {
            self.by_service.insert(name.to_owned(), self.index);
        }
    }

    pub(super) fn remove_service(&mut self, node: &str, id: &str) -> bool {
        let key = (node.to_owned(), id.to_owned());
        let Some(service) = self.services.remove(&key) else { return false };
        self.services_index = self.next();
        let checks: Vec<_> = self
            .checks
            .iter()
            .filter(|((on, _), check)| on == node && text(check, "ServiceID") == id)
            .map(|((_, check), _)| check.clone())
            .collect();
        for check in checks {
            self.remove_check(node, &check);
        }
        self.forget_name(text(&service, "Service"), &key);
        true
    }

    pub(super) fn remove_node(&mut self, node: &str) {
        let of = |keys: Vec<(String, String)>| {
            keys.into_iter().filter(|(on, _)| on == node).map(|(_, id)| id).collect()
        };
        let services: Vec<String> = of(self.services.keys().cloned().collect());
        let checks: Vec<String> = of(self.checks.keys().cloned().collect());
        for id in services {
            self.remove_service(node, &id);
        }
        for id in checks {
            self.remove_check(node, &id);
        }
        if self.nodes.remove(node).is_some() {
            self.nodes_index = self.next();
        }
    }

    /// [catalog, `Check`] Stores a check: of a service with the id of one on the node, or else of the node.
    pub(super) fn put_check(
        &mut self,
        node: &str,
        id: &str,
        payload: &Value,
        service: &str,
        status: &str,
        output: &str,
    ) -> Answer<()> {
        if !["passing", "warning", "critical"].contains(&status) {
            return refuse(StatusCode::BAD_REQUEST, format!("Invalid check status: {status:?}"));
        }
        let of = self.services.get(&(node.to_owned(), service.to_owned()));
        let mut check = json!({
            "Node": node, "CheckID": id, "Name": first(&[text_of(payload, "Name"), id]), "Status": status,
            "Notes": text_of(payload, "Notes"), "Output": output, "ServiceID": service,
            "ServiceName": of.map_or("", |service| text(service, "Service")),
            "ServiceTags": of.map_or_else(|| json!([]), |service| service["Tags"].clone()),
            "Type": text_of(payload, "Type"), "Interval": text_of(payload, "Interval"), "Timeout": text_of(payload, "Timeout"),
            "ExposedPort": 0, "Definition": object(payload, "Definition"),
        });
        let key = (node.to_owned(), id.to_owned());
        if same(self.checks.get(&key), &check) {
            return Ok(());
        }
        let index = self.next();
        stamp(&mut check, self.checks.get(&key), index);
        self.touch_check(node, &check, index);
        self.checks.insert(key, check);
        Ok(())
    }

    pub(super) fn touch_check(&mut self, node: &str, check: &Value, index: u64) {
        self.checks_index = index;
        match text(check, "ServiceName") {
            "" => self.touch_node(node, index),
            name => {
                self.by_service.insert(name.to_owned(), index);
            }
        }
    }

    pub(super) fn remove_check(&mut self, node: &str, id: &str) {
        let key = (node.to_owned(), id.to_owned());
        self.ttls.remove(&key);
        self.reapable.remove(&key);
        if let Some(check) = self.checks.remove(&key) {
            let index = self.next();
            self.touch_check(node, &check, index);
        }
    }

    pub(super) fn set_status(&mut self, node: &str, id: &str, status: &str, output: &str) {
        let key = (node.to_owned(), id.to_owned());
        let Some(mut check) = self.checks.get(&key).cloned() else { return };
        if let Some((since, _)) = self.reapable.get_mut(&key)
            && (text(&check, "Status") != "critical" || status != "critical")
        {
            *since = Instant::now();
        }
        check["Status"] = json!(status);
        check["Output"] = json!(output);
        if same(self.checks.get(&key), &check) {
            return;
        }
        let index = self.next();
        check["ModifyIndex"] = json!(index);
        self.touch_check(node, &check, index);
        self.checks.insert(key, check);
    }

    /// [agent/service, register] Registers a service of the agent's own node, with its checks.
    pub(super) fn agent_register(
        &mut self,
        options: &ConsulOptions,
        payload: &Value,
        replace: bool,
    ) -> Answer<()> {
        let node = options.node.clone();
        let id = first(&[text_of(payload, "ID"), text_of(payload, "Name")]).to_owned();
        self.put_service(&node, payload)?;
        if replace {
            let old: Vec<_> = self
                .checks
                .iter()
                .filter(|(_, check)| text(check, "Node") == node && text(check, "ServiceID") == id)
                .map(|((_, check), _)| check.clone())
                .collect();
            for check in old {
                self.remove_check(&node, &check);
            }
        }
        let one = field(payload, "Check").filter(|check| !check.is_null());
        let more = field(payload, "Checks").and_then(Value::as_array).into_iter().flatten();
        for (number, check) in one.into_iter().chain(more).enumerate() {
            self.agent_check(options, check, &id, number)?;
        }
        Ok(())
    }

    /// [agent/check, register] Registers a check, which is critical until its first result unless a status is
    /// given.
    pub(super) fn agent_check(
        &mut self,
        options: &ConsulOptions,
        payload: &Value,
        service: &str,
        number: usize,
    ) -> Answer<()> {
        let node = options.node.as_str();
        let suffix = if number == 0 { String::new() } else { format!(":{}", number + 1) };
        let default = if service.is_empty() { String::new() } else { format!("service:{service}{suffix}") };
        let own = first(&[text_of(payload, "CheckID"), text_of(payload, "ID")]);
        let id = first(&[own, &default, text_of(payload, "Name")]).to_owned();
        let ttl = text_of(payload, "TTL");
        let kinds = [
            "HTTP",
            "TCP",
            "GRPC",
            "Args",
            "H2PING",
            "UDP",
            "AliasService",
            "AliasNode",
            "DockerContainerID",
        ];
        let kind = kinds.iter().find(|kind| field(payload, kind).is_some());
        if ttl.is_empty() && kind.is_none() {
            return refuse(StatusCode::BAD_REQUEST, "Invalid check: TTL must be > 0 for TTL checks");
        }
        let status = first(&[text_of(payload, "Status"), "critical"]);
        let mut typed = payload.clone();
        typed["Type"] = json!(kind.map_or("ttl".to_owned(), |kind| kind.to_ascii_lowercase()));
        self.put_check(node, &id, &typed, service, status, "")?;
        let key = (node.to_owned(), id);
        if !ttl.is_empty() {
            let Ok(every) = pilotfish_duration::parse(ttl) else {
                return refuse(StatusCode::BAD_REQUEST, "Invalid TTL");
            };
            self.ttls.insert(key.clone(), Ttl { every, deadline: Instant::now() + every });
        }
        if let Ok(after) = pilotfish_duration::parse(text_of(payload, "DeregisterCriticalServiceAfter")) {
            self.reapable.insert(key, (Instant::now(), after.max(options.reap_minimum)));
        }
        Ok(())
    }

    /// [agent/check, TTL check pass, warn, fail, update]
    pub(super) fn update_ttl(
        &mut self,
        node: &str,
        verb: &str,
        id: &str,
        query: &Query,
        payload: &Value,
    ) -> Answer<()> {
        let status = match verb {
            "pass" => "passing",
            "warn" => "warning",
            "fail" => "critical",
            _ => text_of(payload, "Status"),
        };
        if !["passing", "warning", "critical"].contains(&status) {
            return refuse(StatusCode::BAD_REQUEST, format!("Invalid check status: {status:?}"));
        }
        let Some(ttl) = self.ttls.get_mut(&(node.to_owned(), id.to_owned())) else {
            return refuse(
                StatusCode::NOT_FOUND,
                format!("Unknown check ID {id:?}. Ensure that the check ID is passed, not the check name."),
            );
        };
        ttl.deadline = Instant::now() + ttl.every;
        let output = first(&[query.get("note").unwrap_or_default(), text_of(payload, "Output")]).to_owned();
        self.set_status(node, id, status, &output);
        Ok(())
    }

    pub(super) fn maintenance(
        &mut self,
        node: &str,
        check: &str,
        service: &str,
        query: &Query,
    ) -> Answer<()> {
        match query.get("enable") {
            // [agent/service, maintenance] A boolean in Go's format.
            Some("true" | "True" | "TRUE" | "t" | "T" | "1") => {
                let reason = query.get("reason").filter(|reason| !reason.is_empty());
                let payload = json!({"Name": "Maintenance Mode", "Notes": reason.unwrap_or("Maintenance mode is enabled"), "Type": "maintenance"});
                self.put_check(node, check, &payload, service, "critical", "")
            }
            Some("false" | "False" | "FALSE" | "f" | "F" | "0") => {
                self.remove_check(node, check);
                Ok(())
            }
            _ => refuse(StatusCode::BAD_REQUEST, "Missing value for enable"),
        }
    }

    pub(super) fn reap(&mut self, now: Instant) -> bool {
        let due: Vec<_> = self
            .reapable
            .iter()
            .filter(|(key, (since, after))| {
                *since + *after <= now
                    && self.checks.get(*key).is_some_and(|check| text(check, "Status") == "critical")
            })
            .filter_map(|(key, _)| Some((key.0.clone(), text(self.checks.get(key)?, "ServiceID").to_owned())))
            .collect();
        for (node, service) in &due {
            self.remove_service(node, service);
        }
        !due.is_empty()
    }

    /// [session, create] Applies defaults, and the limits of the TTL.
    pub(super) fn create_session(&mut self, agent: &str, payload: &Value) -> Answer<String> {
        let ttl = text_of(payload, "TTL");
        let seconds = pilotfish_duration::parse(ttl).ok().filter(|_| !ttl.is_empty());
        if !ttl.is_empty() && !seconds.is_some_and(|ttl| (10..=86400).contains(&ttl.as_secs())) {
            return refuse(
                StatusCode::BAD_REQUEST,
                format!("Invalid Session TTL {ttl:?}, must be between [10s=24h0m0s]"),
            );
        }
        let node = first(&[text_of(payload, "Node"), agent]);
        if !self.nodes.contains_key(node) {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "Missing node registration");
        }
        let delay =
            pilotfish_duration::parse(text_of(payload, "LockDelay")).unwrap_or(Duration::from_secs(15));
        let behavior = first(&[text_of(payload, "Behavior"), "release"]);
        let checks = field(payload, "NodeChecks").or_else(|| field(payload, "Checks"));
        let checks =
            checks.filter(|checks| checks.is_array()).cloned().unwrap_or_else(|| json!(["serfHealth"]));
        let id = uuid();
        let index = self.next();
        self.sessions_index = index;
        let value = json!({
            "ID": id, "Name": text_of(payload, "Name"), "Node": node,
            "LockDelay": u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), "Behavior": behavior, "TTL": ttl,
            "Checks": checks, "NodeChecks": checks, "ServiceChecks": null, "CreateIndex": index, "ModifyIndex": index,
        });
        let deadline = seconds.map(|ttl| Instant::now() + ttl);
        let session = Session { deletes: behavior == "delete", value, ttl: seconds, deadline, delay };
        self.sessions.insert(id.clone(), session);
        Ok(id)
    }

    /// [session, `Behavior`, `LockDelay`] Releases or deletes its keys, which cannot be locked for a while.
    pub(super) fn destroy_session(&mut self, id: &str) {
        let Some(session) = self.sessions.remove(id) else { return };
        let index = self.next();
        self.sessions_index = index;
        let held: Vec<String> = self
            .kv
            .iter()
            .filter(|(_, pair)| pair.session.as_deref() == Some(id))
            .map(|(key, _)| key.clone())
            .collect();
        for key in held {
            self.delayed.insert(key.clone(), Instant::now() + session.delay);
            if session.deletes {
                self.kv.remove(&key);
                self.deleted_index = index;
            } else if let Some(pair) = self.kv.get_mut(&key) {
                pair.session = None;
                pair.modified = index;
            }
        }
    }
}

impl Pair {
    pub(super) fn value(&self, key: &str) -> Value {
        let mut value = json!({
            "LockIndex": self.locks, "Key": key, "Flags": self.flags, "Value": STANDARD.encode(&self.value),
            "CreateIndex": self.created, "ModifyIndex": self.modified,
        });
        if let Some(session) = &self.session {
            value["Session"] = json!(session);
        }
        value
    }
}
