//! Data of the server, and its changes by writes.

use super::aliases;
use super::codes::{Refusal, info, refusal};
use super::element::{Element, instance_id, is_name, is_same, now, service_key, sha1, text};
use super::query::service_of;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// [rec health-ttl] Metadata key of an unhealthy instance with a check.
const LAST_HEARTBEAT: &str = "internal-lastheartbeat";
/// Age of changes that the cache of a server with the boltdb store detects.
const NOTICED: Duration = Duration::from_secs(5);

#[derive(Clone, Default)]
pub(super) struct Store {
    pub(super) aliases: BTreeMap<(String, String), Element>,
    /// Time of an instance's last write or heartbeat.
    pub(super) beats: HashMap<String, Instant>,
    pub(super) namespaces: BTreeMap<String, Element>,
    pub(super) services: BTreeMap<(String, String), Element>,
    pub(super) instances: BTreeMap<String, Element>,
    /// Ids of instances, by namespace and service.
    pub(super) ids: HashMap<(String, String), BTreeSet<String>>,
    pub(super) buckets: HashMap<String, (f64, Option<Instant>)>,
    pub(super) beats_of_unknown: HashMap<String, u32>,
    pub(super) counter: u64,
    /// The option `PolarisOptions::shows_deleted`.
    pub(super) shows_deleted: bool,
    /// Time of an instance's last change.
    pub(super) changed: HashMap<String, Instant>,
    /// Deleted instances that the cache still shows, by id; see `PolarisOptions::shows_deleted`.
    pub(super) unnoticed: BTreeMap<String, Element>,
    /// Offset of its clock, see `Polaris::advance`.
    pub(super) ahead: Duration,
}

impl Store {
    /// Current time of its clock.
    pub(super) fn clock(&self) -> Instant {
        Instant::now() + self.ahead
    }

    /// A new revision, id or token: 32 hex digits, as on a real server.
    pub(super) fn unique(&mut self) -> Value {
        self.counter += 1;
        json!(sha1(&format!("unique {}", self.counter)).chars().take(32).collect::<String>())
    }

    pub(super) fn instances_of(&self, namespace: &str, service: &str) -> impl Iterator<Item = &Element> {
        let key = (namespace.to_owned(), service.to_owned());
        let ids = self.ids.get(&key).into_iter().flatten();
        let unnoticed = self.unnoticed.values().filter(move |instance| service_of(instance) == key);
        ids.filter_map(|id| self.instances.get(id)).chain(unnoticed)
    }

    /// Instances in the cache.
    pub(super) fn shown_instances(&self) -> impl Iterator<Item = &Element> {
        self.instances.values().chain(self.unnoticed.values())
    }

    // -- Namespaces

    pub(super) fn create_namespace(&mut self, given: &Element) -> (Refusal, Element) {
        // [rec namespaces] Only the characters are validated, not the length.
        let Some(name) = text(given, "name").filter(|name| is_name(name)).map(str::to_owned) else {
            return (refusal(400_110), given.clone());
        };
        if self.namespaces.contains_key(&name) {
            return (refusal(400_201), given.clone());
        }
        let mut stored = given.clone();
        let token = self.unique();
        for (field, value) in
            [("token", token.clone()), ("ctime", now()), ("mtime", now()), ("id", json!(name))]
        {
            stored.insert(field.to_owned(), value);
        }
        self.namespaces.insert(name.clone(), stored);
        (
            refusal(200_000),
            Element::from_iter([("name".to_owned(), json!(name)), ("token".to_owned(), token)]),
        )
    }

    pub(super) fn update_namespace(&mut self, given: &Element) -> (Refusal, Element) {
        let Some(stored) = text(given, "name").and_then(|name| self.namespaces.get_mut(name)) else {
            return (refusal(400_202), given.clone());
        };
        stored.extend(given.clone());
        stored.insert("mtime".to_owned(), now());
        (refusal(200_000), given.clone())
    }

    /// [rec namespaces] Deletes a namespace: a missing one is already deleted; one with services is refused.
    pub(super) fn delete_namespace(&mut self, given: &Element) -> (Refusal, Element) {
        let name = text(given, "name").unwrap_or_default();
        if self.services.keys().any(|(namespace, _)| namespace == name) {
            return (refusal(400_203), given.clone());
        }
        self.namespaces.remove(name);
        (refusal(200_000), given.clone())
    }

    /// [rec instances-create] Creates a missing namespace or service of an instance, owned by Polaris.
    pub(super) fn ensure_namespace(&mut self, name: &str) {
        if !self.namespaces.contains_key(name) {
            let _ = self.create_namespace(&Element::from_iter([
                ("name".to_owned(), json!(name)),
                ("owners".to_owned(), json!("Polaris")),
            ]));
        }
    }

    // -- Services

    pub(super) fn create_service(&mut self, given: &Element) -> (Refusal, Element) {
        let key = service_key(given);
        if let Some(known) = self.services.get(&key) {
            let mut echo = given.clone();
            echo.insert("id".to_owned(), known.get("id").cloned().unwrap_or_default());
            return (refusal(400_201), echo);
        }
        // [rec services-create] The store of the recorded server refuses an empty key.
        if given.get("metadata").and_then(Value::as_object).is_some_and(|metadata| metadata.contains_key(""))
        {
            return ((500_001, format!("{}: key required", info(500_001))), given.clone());
        }
        self.ensure_namespace(&key.0);
        let (token, id, revision) = (self.unique(), self.unique(), self.unique());
        let mut stored = given.clone();
        let set = [
            ("token", token.clone()),
            ("id", id.clone()),
            ("revision", revision),
            ("ctime", now()),
            ("mtime", now()),
        ];
        stored.extend(set.map(|(field, value)| (field.to_owned(), value)));
        self.services.insert(key.clone(), stored);
        let (namespace, name) = key;
        let made = [("name", json!(name)), ("namespace", json!(namespace)), ("token", token), ("id", id)];
        (refusal(200_000), made.map(|(field, value)| (field.to_owned(), value)).into_iter().collect())
    }

    /// [rec services-update] Updates a service: missing metadata clears it, other missing fields stay; an
    /// owner is required.
    pub(super) fn update_service(&mut self, given: &Element) -> (Refusal, Element) {
        let revision = self.unique();
        // [rec aliases] An alias refers to its service.
        let named = service_key(given);
        let source = self.aliases.get(&named).map(aliases::source);
        let key = source.clone().unwrap_or(named);
        let Some(stored) = self.services.get_mut(&key) else {
            return (refusal(400_202), given.clone());
        };
        let mut new = stored.clone();
        new.extend(given.clone());
        if source.is_some() {
            new.extend([("namespace".to_owned(), json!(key.0)), ("name".to_owned(), json!(key.1))]);
        }
        new.insert("metadata".to_owned(), given.get("metadata").cloned().unwrap_or_else(|| json!({})));
        if text(&new, "owners").unwrap_or_default().is_empty() {
            return (
                (400_103, format!("{}: Update Service missing some params", info(400_103))),
                given.clone(),
            );
        }
        if is_same(stored, &new) {
            return (refusal(200_002), given.clone());
        }
        new.insert("revision".to_owned(), revision);
        new.insert("mtime".to_owned(), now());
        *stored = new;
        (refusal(200_000), given.clone())
    }

    pub(super) fn delete_service(&mut self, given: &Element) -> (Refusal, Element) {
        let (namespace, name) = service_key(given);
        if self.instances_of(&namespace, &name).next().is_some() {
            return (refusal(400_204), given.clone());
        }
        if self.has_alias(&namespace, &name) {
            return (refusal(400_210), given.clone());
        }
        let key = (namespace, name);
        // [rec aliases] The name of an alias deletes the alias.
        if self.services.remove(&key).is_none() {
            self.aliases.remove(&key);
        }
        (refusal(200_000), given.clone())
    }

    // -- Instances

    /// [rec instances-create, instances-update] Creates or replaces an instance: missing fields are reset,
    /// except for `isolate`.
    pub(super) fn create_instance(&mut self, given: &Element) -> (Refusal, Element) {
        let id = instance_id(given);
        let known = self.instances.get(&id);
        let isolate = known.and_then(|known| known.get("isolate").cloned()).unwrap_or(json!(false));
        let ctime = known.and_then(|known| known.get("ctime").cloned()).unwrap_or_else(now);
        let (namespace, service) =
            (text(given, "namespace").unwrap_or_default(), text(given, "service").unwrap_or_default());
        // [rec aliases] The response does not name the instance.
        if self.aliases.contains_key(&(namespace.to_owned(), service.to_owned())) {
            return ((400_000, format!("{}: service is alias", info(400_000))), Element::new());
        }
        self.ensure_namespace(namespace);
        if !self.services.contains_key(&(namespace.to_owned(), service.to_owned())) {
            let made = [("name", service), ("namespace", namespace), ("owners", "Polaris")];
            let _ = self.create_service(
                &made.map(|(name, value)| (name.to_owned(), json!(value))).into_iter().collect(),
            );
        }
        let mut stored = given.clone();
        stored.insert("id".to_owned(), json!(id));
        let defaults =
            [("weight", json!(100)), ("healthy", json!(true)), ("isolate", isolate), ("ctime", ctime)];
        for (field, value) in defaults {
            stored.entry(field.to_owned()).or_insert(value);
        }
        // [rec instances-create] Without a check, its switch is not stored.
        set_health_check(&mut stored, given);
        if !stored.contains_key("healthCheck") {
            stored.remove("enableHealthCheck");
        }
        stored.insert("mtime".to_owned(), now());
        stored.insert("revision".to_owned(), self.unique());
        let beat = self.clock();
        self.beats.insert(id.clone(), beat);
        self.changed.insert(id.clone(), beat);
        self.unnoticed.remove(&id);
        self.ids.entry(service_of(&stored)).or_default().insert(id.clone());
        self.instances.insert(id.clone(), stored);
        let fields = ["service", "namespace", "vpc_id", "host", "port"];
        let mut echo: Element = fields
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), given.get(*field)?.clone())))
            .collect();
        echo.insert("id".to_owned(), json!(id));
        (refusal(200_000), echo)
    }

    pub(super) fn update_instance(&mut self, given: &Element) -> (Refusal, Element) {
        let id = instance_id(given);
        let mut echo = given.clone();
        echo.insert("id".to_owned(), json!(id));
        if given.contains_key("healthCheck") {
            set_health_check(&mut echo, given);
            echo.remove("enableHealthCheck");
        }
        let (revision, clock) = (self.unique(), self.clock());
        let Some(stored) = self.instances.get_mut(&id) else { return (refusal(400_303), echo) };
        let mut new = stored.clone();
        new.extend(given.clone());
        set_health_check(&mut new, given);
        let checks = |of: &Element| of.get("enableHealthCheck").and_then(Value::as_bool).unwrap_or_default();
        // [rec instances-update] Only this makes an instance unhealthy: enabling its check.
        if checks(&new) && !checks(stored) {
            new.insert("healthy".to_owned(), json!(false));
        }
        if is_same(stored, &new) {
            return (refusal(200_002), echo);
        }
        new.insert("revision".to_owned(), revision);
        new.insert("mtime".to_owned(), now());
        *stored = new;
        self.changed.insert(id, clock);
        (refusal(200_000), echo)
    }

    /// [rec instances-delete] A missing one is already deleted.
    pub(super) fn delete_instance(&mut self, given: &Element) -> (Refusal, Element) {
        let id = instance_id(given);
        if let Some(removed) = self.instances.remove(&id) {
            if let Some(ids) = self.ids.get_mut(&service_of(&removed)) {
                ids.remove(&id);
            }
            let age = self.changed.remove(&id).map(|at| self.clock().saturating_duration_since(at));
            if self.shows_deleted && age.is_some_and(|age| age >= NOTICED) {
                self.unnoticed.insert(id.clone(), removed);
            }
        }
        let mut echo = given.clone();
        echo.insert("id".to_owned(), json!(id));
        (refusal(200_000), echo)
    }

    /// [rec health-ttl] Marks instances as unhealthy after three TTLs without a heartbeat, and as healthy
    /// again on heartbeats.
    pub(super) fn check_heartbeats(&mut self) {
        let now = self.clock();
        for (id, instance) in &mut self.instances {
            let ttl = instance.get("healthCheck").and_then(|check| check.pointer("/heartbeat/ttl"));
            let Some(ttl) = ttl.and_then(Value::as_u64) else { continue };
            let since = self.beats.get(id).map(|beat| now.duration_since(*beat));
            let is_beating = since.is_some_and(|since| since < Duration::from_secs(3 * ttl));
            if instance.insert("healthy".to_owned(), json!(is_beating)) != Some(json!(is_beating)) {
                self.counter += 1;
                let revision = sha1(&format!("unique {}", self.counter));
                instance.insert("revision".to_owned(), json!(revision.get(..32)));
                let metadata = instance.entry("metadata").or_insert_with(|| json!({}));
                if let Value::Object(metadata) = metadata {
                    // Time of the last heartbeat, in seconds since 1970; it is not compared.
                    if is_beating {
                        metadata.remove(LAST_HEARTBEAT);
                    } else {
                        metadata.insert(LAST_HEARTBEAT.to_owned(), json!("0"));
                    }
                }
            }
        }
    }

    /// [rec ratelimit] Takes a token from the bucket of an instance; false if it is empty.
    pub(super) fn take_token(&mut self, id: &str, (most, rate): (u32, u32)) -> bool {
        let now = self.clock();
        let (tokens, at) = self.buckets.entry(id.to_owned()).or_insert((f64::from(most), None));
        if let Some(at) = at.replace(now) {
            *tokens = (*tokens + now.duration_since(at).as_secs_f64() * f64::from(rate)).min(f64::from(most));
        }
        let has = *tokens >= 1.0;
        *tokens -= f64::from(u8::from(has));
        has
    }
}

/// [rec instances-update, health-ttl] A given check is enabled, always with type HEARTBEAT;
/// `enableHealthCheck: false` disables it.
pub(super) fn set_health_check(stored: &mut Element, given: &Element) {
    if given.get("enableHealthCheck") == Some(&json!(false)) {
        stored.remove("healthCheck");
        return;
    }
    let Some(check) = given.get("healthCheck").filter(|check| check.is_object()) else { return };
    // [doc] From 1 to 60 seconds, or else 5.
    let ttl = check
        .pointer("/heartbeat/ttl")
        .and_then(Value::as_u64)
        .filter(|ttl| (1..=60).contains(ttl))
        .unwrap_or(5);
    stored.insert("healthCheck".to_owned(), json!({"type": "HEARTBEAT", "heartbeat": {"ttl": ttl}}));
    stored.insert("enableHealthCheck".to_owned(), json!(true));
}
