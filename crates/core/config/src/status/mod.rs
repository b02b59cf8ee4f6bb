//! The `status` of objects, and its merge into the stored status.
//!
//! A [`Status`] is built without times and generations. [`Status::merged`] merges it into the status that an
//! API server has: entries of other controllers are kept, and a condition keeps its `lastTransitionTime`
//! while its `status` is unchanged. A status without changes is not written at all.

use crate::gateway_api::{GatewayAddress, ParentReference, RouteGroupKind};
use crate::kubernetes::LoadBalancerIngress;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Controller names whose entries in `status.parents` are ours: Istio's name, and our own.
pub const CONTROLLERS: [&str; 2] = ["istio.io/gateway-controller", "pilotfish.io/gateway-controller"];

/// Controller name in the status of a policy at its target, where Istio's name is ours: as in istiod.
pub const MESH_CONTROLLER: &str = "istio.io/mesh-controller";

/// Controller names of the Gateways and routes that we write the status of. Beside a running istiod, each
/// control plane has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Controllers {
    /// Istio's and our own controller name.
    #[default]
    Both,
    /// Istio's controller name only.
    Istio,
    /// Our own controller name only.
    Pilotfish,
}

impl Controllers {
    /// Returns the controllers with these names; `None` if the list is empty or has an unknown name.
    #[must_use]
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let [istio, own] = CONTROLLERS;
        let mut found = (false, false);
        for name in names {
            match name {
                _ if name == istio => found.0 = true,
                _ if name == own => found.1 = true,
                _ => return None,
            }
        }
        match found {
            (true, true) => Some(Self::Both),
            (true, false) => Some(Self::Istio),
            (false, true) => Some(Self::Pilotfish),
            (false, false) => None,
        }
    }

    /// Their names, at least one.
    #[must_use]
    pub fn names(self) -> &'static [&'static str] {
        let (istio, own) = CONTROLLERS.split_at(1);
        match self {
            Self::Both => &CONTROLLERS,
            Self::Istio => istio,
            Self::Pilotfish => own,
        }
    }
}

impl Controllers {
    /// Controller name in the status of a policy at its target.
    #[must_use]
    pub fn of_mesh(self) -> &'static str {
        match self {
            Self::Both | Self::Istio => MESH_CONTROLLER,
            Self::Pilotfish => CONTROLLERS[1],
        }
    }
}

/// Status to be written to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// Status of a GatewayClass.
    Class {
        conditions: Vec<Condition>,
        /// Names of the features of the Gateway API that its Gateways have, sorted.
        features: &'static [&'static str],
    },
    /// Status of a Gateway.
    Gateway {
        /// Conditions of the Gateway as a whole.
        conditions: Vec<Condition>,
        /// External addresses. `None` keeps the stored ones, so that a short absence of the Gateway does not
        /// remove them.
        addresses: Option<Vec<GatewayAddress>>,
        /// Status of each listener, in the order of the spec.
        listeners: Vec<ListenerStatus>,
        /// Number of accepted ListenerSets; `None` where the Gateway allows none.
        attached_sets: Option<u32>,
    },
    /// Status of a ListenerSet.
    ListenerSet {
        conditions: Vec<Condition>,
        /// Status of each listener, in the order of the spec.
        listeners: Vec<ListenerStatus>,
    },
    /// Status of a route.
    Route {
        /// The controllers whose entries are replaced; those of others are kept.
        ours: Controllers,
        /// Status for each parent that we serve.
        parents: Vec<ParentStatus>,
    },
    /// Status of a policy.
    Policy {
        /// The controllers whose entries are replaced, with [`MESH_CONTROLLER`]; those of others are kept.
        ours: Controllers,
        /// Status for its target, and for each Gateway that uses it. The API allows 16 entries; later ones
        /// are left out.
        ancestors: Vec<ParentStatus>,
    },
    /// Addresses of an Ingress.
    Ingress(Vec<LoadBalancerIngress>),
    /// Status of an object of Istio.
    Istio {
        /// Problems of the object; one that never had any gets no condition. `None` keeps the stored ones.
        messages: Option<Vec<Message>>,
        /// The addresses of a ServiceEntry's hosts. `None` keeps the stored ones.
        addresses: Option<Vec<HostAddress>>,
    },
}

/// Maximum length of a condition's message, in characters. Kubernetes refuses a status with one of more than
/// 32,768.
const LONGEST_MESSAGE: usize = 4096;

/// Maximum number of entries in the status of a policy.
const MOST_ANCESTORS: usize = 16;

/// A condition without time and generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The type: `Accepted`, `ResolvedRefs` ...
    pub r#type: &'static str,
    /// True if the condition holds.
    pub status: bool,
    /// The reason, as one word in CamelCase.
    pub reason: &'static str,
    /// The message for users.
    pub message: String,
}

/// The status of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    pub name: String,
    /// Number of attached routes.
    pub attached_routes: u32,
    /// The kinds of routes that may attach.
    pub supported_kinds: Vec<RouteGroupKind>,
    pub conditions: Vec<Condition>,
}

/// The status of a route at one parent, or of a policy at one ancestor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// The parent, as the route names it.
    pub parent: ParentReference,
    /// The controller that writes the entry: one of [`CONTROLLERS`].
    pub controller: &'static str,
    pub conditions: Vec<Condition>,
}

/// Type of the condition for problems of an object itself, on Istio's kinds.
const PASSED_ANALYSIS: &str = "PassedAnalysis";
/// Maximum number of messages that are written out; further ones are counted.
const MOST_MESSAGES: usize = 10;

/// A problem of an object of Istio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// True for an error, false for a warning.
    pub error: bool,
    /// Description of the problem.
    pub text: String,
}

/// An address that was allocated to a host of a ServiceEntry.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct HostAddress {
    /// The host, as the entry has it.
    pub host: String,
    /// The address, as it is written.
    pub value: String,
}

impl HostAddress {
    /// Reads the addresses from the stored status of a ServiceEntry. Values of another form are skipped.
    #[must_use]
    pub fn stored(status: &Value) -> Vec<Self> {
        let read = |value: &Value| serde_json::from_value(value.clone()).ok();
        list(&status["addresses"]).iter().filter_map(read).collect()
    }
}

impl Condition {
    /// A condition with status true.
    #[must_use]
    pub fn good(r#type: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { r#type, status: true, reason, message: message.into() }
    }

    /// A condition with status false.
    #[must_use]
    pub fn bad(r#type: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { r#type, status: false, reason, message: message.into() }
    }

    /// True if the stored condition is equal, apart from its transition time.
    fn is(&self, stored: &Value, generation: i64) -> bool {
        stored["status"] == self.word()
            && stored["reason"] == self.reason
            && stored["message"] == self.text()
            && stored["observedGeneration"].as_i64().unwrap_or(0) == generation
    }

    /// The message, cut to [`LONGEST_MESSAGE`].
    fn text(&self) -> &str {
        match self.message.char_indices().nth(LONGEST_MESSAGE) {
            Some((end, _)) => self.message.get(..end).unwrap_or_default(),
            None => &self.message,
        }
    }

    fn word(&self) -> &'static str {
        if self.status { "True" } else { "False" }
    }
}

impl Status {
    /// Returns the status to store in place of `stored`; `None` if it is unchanged. `now` is the time as RFC
    /// 3339.
    #[must_use]
    pub fn merged(&self, stored: &Value, generation: i64, now: &str) -> Option<Value> {
        let mut status = stored.as_object().cloned().unwrap_or_default();
        let times = Times { generation, now };
        match self {
            Self::Class { conditions, features } => {
                put(&mut status, "conditions", times.conditions(&stored["conditions"], conditions));
                let features = features.iter().map(|name| json!({"name": name})).collect();
                put(&mut status, "supportedFeatures", features);
            }
            Self::Gateway { conditions, addresses, listeners, attached_sets } => {
                times.put_listeners(&mut status, stored, conditions, listeners);
                if let Some(addresses) = addresses {
                    put(&mut status, "addresses", addresses.iter().map(address).collect());
                }
                let field = "attachedListenerSets";
                match attached_sets {
                    Some(count) => put(&mut status, field, json!(count)),
                    None => drop(status.remove(field)),
                }
            }
            Self::ListenerSet { conditions, listeners } => {
                times.put_listeners(&mut status, stored, conditions, listeners);
            }
            Self::Route { ours, parents } => {
                let parents = times.parents("parentRef", &stored["parents"], ours.names(), parents);
                put(&mut status, "parents", Value::Array(parents));
            }
            Self::Policy { ours, ancestors } => {
                let names: Vec<&str> = ours.names().iter().copied().chain([ours.of_mesh()]).collect();
                let mut list = times.parents("ancestorRef", &stored["ancestors"], &names, ancestors);
                list.truncate(MOST_ANCESTORS);
                put(&mut status, "ancestors", Value::Array(list));
            }
            Self::Ingress(points) => {
                let list = ingress(&stored["loadBalancer"]["ingress"], points);
                put(
                    &mut status,
                    "loadBalancer",
                    if list.is_empty() { json!({}) } else { json!({"ingress": list}) },
                );
            }
            Self::Istio { messages, addresses } => {
                if let Some(messages) = messages {
                    let had =
                        list(&stored["conditions"]).iter().any(|stored| stored["type"] == PASSED_ANALYSIS);
                    if had || !messages.is_empty() {
                        let conditions = times.conditions(&stored["conditions"], &[analysis(messages)]);
                        put(&mut status, "conditions", conditions);
                    }
                }
                if let Some(addresses) = addresses
                    && sorted(&HostAddress::stored(stored)) != sorted(addresses)
                {
                    put(&mut status, "addresses", addresses.iter().map(host_address).collect());
                }
            }
        }
        let new = Value::Object(status);
        (plain(stored) != plain(&new)).then_some(new)
    }
}

/// Returns the merge patch (RFC 7396) from `old` to `new`.
#[must_use]
pub fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else { return new.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let other = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
    let changed =
        other.map(|(key, value)| (key.clone(), merge_patch(before.get(key).unwrap_or(&Value::Null), value)));
    Value::Object(gone.chain(changed).collect())
}

/// Removes empty lists and objects at the top level, which an API server may leave out.
fn plain(status: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let kept = status.as_object().into_iter().flatten().filter(|(_, value)| !is_empty(value));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn put(status: &mut Map<String, Value>, name: &str, value: Value) {
    status.insert(name.to_owned(), value);
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn sorted(addresses: &[HostAddress]) -> Vec<&HostAddress> {
    let mut sorted: Vec<_> = addresses.iter().collect();
    sorted.sort();
    sorted
}

fn host_address(address: &HostAddress) -> Value {
    json!({"host": address.host, "value": address.value})
}

fn address(address: &GatewayAddress) -> Value {
    json!({"type": address.r#type, "value": address.value})
}

fn analysis(messages: &[Message]) -> Condition {
    if messages.is_empty() {
        return Condition::good(PASSED_ANALYSIS, "NoProblems", "nothing is wrong with the object");
    }
    let is_refused = messages.iter().any(|message| message.error);
    let mut text: Vec<String> =
        messages.iter().take(MOST_MESSAGES).map(|message| message.text.clone()).collect();
    if messages.len() > MOST_MESSAGES {
        text.push(format!("and {} more", messages.len() - MOST_MESSAGES));
    }
    let reason = if is_refused { "Refused" } else { "Warnings" };
    Condition::bad(PASSED_ANALYSIS, reason, text.join("; "))
}

/// Addresses of a load balancer. Stored fields beside an address (ports, modes) are kept.
fn ingress(stored: &Value, wanted: &[LoadBalancerIngress]) -> Vec<Value> {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let same = |value: &&Value, point: &LoadBalancerIngress| {
        text(value, "ip") == point.ip && text(value, "hostname") == point.hostname
    };
    let of = |point: &LoadBalancerIngress| match list(stored).iter().find(|value| same(value, point)) {
        Some(value) => value.clone(),
        None if point.ip.is_empty() => json!({"hostname": point.hostname}),
        None => json!({"ip": point.ip}),
    };
    wanted.iter().map(of).collect()
}

/// Values known only at the time of writing.
#[derive(Clone, Copy)]
struct Times<'a> {
    generation: i64,
    now: &'a str,
}

impl Times<'_> {
    /// Conditions, each at its stored position.
    fn conditions(self, stored: &Value, wanted: &[Condition]) -> Value {
        let mut out = list(stored).to_vec();
        for condition in wanted {
            let found = out.iter_mut().find(|stored| stored["type"] == condition.r#type);
            match found {
                Some(stored) if condition.is(stored, self.generation) => {}
                Some(stored) => *stored = self.condition(condition, Some(stored)),
                None => out.push(self.condition(condition, None)),
            }
        }
        Value::Array(out)
    }

    fn condition(self, condition: &Condition, before: Option<&Value>) -> Value {
        let same = before.filter(|before| before["status"] == condition.word());
        let since = same.and_then(|before| before["lastTransitionTime"].as_str()).unwrap_or(self.now);
        json!({
            "type": condition.r#type,
            "status": condition.word(),
            "reason": condition.reason,
            "message": condition.text(),
            "observedGeneration": self.generation,
            "lastTransitionTime": since,
        })
    }

    /// Replaces the conditions and listeners of a Gateway or ListenerSet.
    fn put_listeners(
        self,
        status: &mut Map<String, Value>,
        stored: &Value,
        conditions: &[Condition],
        listeners: &[ListenerStatus],
    ) {
        put(status, "conditions", self.conditions(&stored["conditions"], conditions));
        let of = |listener: &ListenerStatus| self.listener(&stored["listeners"], listener);
        put(status, "listeners", listeners.iter().map(of).collect());
    }

    fn listener(self, stored: &Value, wanted: &ListenerStatus) -> Value {
        let before = list(stored).iter().find(|listener| listener["name"] == wanted.name.as_str());
        let kind = |kind: &RouteGroupKind| json!({"group": kind.group, "kind": kind.kind});
        let conditions = before.map_or(&Value::Null, |before| &before["conditions"]);
        // Further fields of the listener were written by another controller, and are kept.
        let mut listener = before.and_then(Value::as_object).cloned().unwrap_or_default();
        put(&mut listener, "name", json!(wanted.name));
        put(&mut listener, "attachedRoutes", json!(wanted.attached_routes));
        put(&mut listener, "supportedKinds", wanted.supported_kinds.iter().map(kind).collect());
        put(&mut listener, "conditions", self.conditions(conditions, &wanted.conditions));
        Value::Object(listener)
    }

    /// Replaces our entries in place and keeps those of other controllers: neither may move because of the
    /// other.
    fn parents(self, field: &str, stored: &Value, ours: &[&str], wanted: &[ParentStatus]) -> Vec<Value> {
        let mut open: Vec<&ParentStatus> = wanted.iter().collect();
        let mut out = Vec::new();
        for entry in list(stored) {
            if !ours.iter().any(|ours| entry["controllerName"] == **ours) {
                out.push(entry.clone());
                continue;
            }
            let parent = serde_json::from_value::<ParentReference>(entry[field].clone()).ok();
            let position = open.iter().position(|wanted| {
                Some(&wanted.parent) == parent.as_ref() && entry["controllerName"] == wanted.controller
            });
            if let Some(position) = position {
                let wanted = open.remove(position);
                let conditions = self.conditions(&entry["conditions"], &wanted.conditions);
                let mut entry = entry.clone();
                entry["conditions"] = conditions;
                out.push(entry);
            }
        }
        out.extend(open.into_iter().map(|wanted| {
            json!({
                field: reference(&wanted.parent),
                "controllerName": wanted.controller,
                "conditions": self.conditions(&Value::Null, &wanted.conditions),
            })
        }));
        out
    }
}

fn reference(parent: &ParentReference) -> Value {
    let mut out = json!({"group": parent.group, "kind": parent.kind, "name": parent.name});
    if let Some(namespace) = &parent.namespace {
        out["namespace"] = json!(namespace);
    }
    if let Some(section) = &parent.section_name {
        out["sectionName"] = json!(section);
    }
    if let Some(port) = parent.port {
        out["port"] = json!(port);
    }
    out
}

#[cfg(test)]
mod tests;
