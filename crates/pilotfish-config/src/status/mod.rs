//! What is written back: the `status` of objects, and how it is brought into what is stored.
//!
//! A status is wanted without times and generations. [`Status::merged`] puts it into the status that an API server has: what is
//! there and belongs to other controllers stays where it is, and a condition keeps its `lastTransitionTime` for as long as its
//! `status` is the same. A status that would stay the same is not written at all.

use crate::gateway_api::{GatewayAddress, ParentReference, RouteGroupKind};
use crate::kubernetes::LoadBalancerIngress;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The controllers whose entries in `status.parents` are ours: the name under which Istio is known, and our own.
pub const CONTROLLERS: [&str; 2] = ["istio.io/gateway-controller", "pilotfish.io/gateway-controller"];

/// Who is said to write the status of a policy at what it is for, where Istio's name is ours: as istiod does.
pub const MESH_CONTROLLER: &str = "istio.io/mesh-controller";

/// The controllers whose Gateways and routes get a status from us: where istiod runs beside us, each serves its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Controllers {
    /// Those of both names.
    #[default]
    Both,
    /// Those of the name under which Istio is known.
    Istio,
    /// Those of our own name.
    Pilotfish,
}

impl Controllers {
    /// The controllers of these names; `None` when one is neither, or there is none.
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
    /// The name under which the status of a policy at what it is for is written.
    #[must_use]
    pub fn of_mesh(self) -> &'static str {
        match self {
            Self::Both | Self::Istio => MESH_CONTROLLER,
            Self::Pilotfish => CONTROLLERS[1],
        }
    }
}

/// The status that an object is to have.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// Of a GatewayClass.
    Class(Vec<Condition>),
    /// Of a Gateway.
    Gateway {
        /// Of the Gateway as a whole.
        conditions: Vec<Condition>,
        /// Where it is reached. `None` leaves what is there: addresses of a Gateway that is away for a moment stay.
        addresses: Option<Vec<GatewayAddress>>,
        /// Of its listeners, in their order.
        listeners: Vec<ListenerStatus>,
    },
    /// Of a route.
    Route {
        /// Whose entries are ours; those of others stay as they are.
        ours: Controllers,
        /// For each parent that is ours.
        parents: Vec<ParentStatus>,
    },
    /// Of a policy.
    Policy {
        /// Whose entries are ours, with the one of the mesh; those of others stay as they are.
        ours: Controllers,
        /// For what it is for, and for each Gateway that uses it. The list of a policy has room for 16: what comes later is left out.
        ancestors: Vec<ParentStatus>,
    },
    /// Of an Ingress: where it is reached.
    Ingress(Vec<LoadBalancerIngress>),
    /// Of an object of Istio.
    Istio {
        /// What is wrong with it; an object with which nothing ever was wrong gets no condition. `None` leaves what is there.
        messages: Option<Vec<Message>>,
        /// The addresses of a ServiceEntry's hosts. `None` leaves what is there.
        addresses: Option<Vec<HostAddress>>,
    },
}

/// The longest message of a condition in characters; Kubernetes refuses a status with one of more than 32,768.
const LONGEST_MESSAGE: usize = 4096;

/// How many entries the status of a policy may have.
const MOST_ANCESTORS: usize = 16;

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What it is about: `Accepted`, `ResolvedRefs` ...
    pub r#type: &'static str,
    /// Whether it holds.
    pub status: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// The status of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// How many routes are attached.
    pub attached_routes: u32,
    /// The kinds of routes that it takes.
    pub supported_kinds: Vec<RouteGroupKind>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// The status of a route at one parent, or of a policy at one ancestor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// The parent, as the route names it.
    pub parent: ParentReference,
    /// Who writes it: one of [`CONTROLLERS`].
    pub controller: &'static str,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// The condition of Istio's kinds about what is wrong with an object itself.
const PASSED_ANALYSIS: &str = "PassedAnalysis";
/// The most messages that are written out; the others are counted.
const MOST_MESSAGES: usize = 10;

/// Something that is wrong with an object of Istio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it is an error, rather than a warning.
    pub error: bool,
    /// What is wrong.
    pub text: String,
}

/// An address that a host of a ServiceEntry was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct HostAddress {
    /// The host, as the entry has it.
    pub host: String,
    /// The address, as it is written.
    pub value: String,
}

impl HostAddress {
    /// The addresses in the stored status of a ServiceEntry. What is no such list has none.
    #[must_use]
    pub fn stored(status: &Value) -> Vec<Self> {
        let read = |value: &Value| serde_json::from_value(value.clone()).ok();
        list(&status["addresses"]).iter().filter_map(read).collect()
    }
}

impl Condition {
    /// A condition that holds as it should.
    #[must_use]
    pub fn good(r#type: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { r#type, status: true, reason, message: message.into() }
    }

    /// A condition that does not hold.
    #[must_use]
    pub fn bad(r#type: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { r#type, status: false, reason, message: message.into() }
    }

    /// Whether a stored condition is the same.
    fn is(&self, stored: &Value, generation: i64) -> bool {
        stored["status"] == self.word()
            && stored["reason"] == self.reason
            && stored["message"] == self.text()
            && stored["observedGeneration"].as_i64().unwrap_or(0) == generation
    }

    /// The message, cut to its greatest length.
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
    /// The status to store in place of `stored`; `None` when that is the same already. `now` is the time as RFC 3339.
    #[must_use]
    pub fn merged(&self, stored: &Value, generation: i64, now: &str) -> Option<Value> {
        let mut status = stored.as_object().cloned().unwrap_or_default();
        let times = Times { generation, now };
        match self {
            Self::Class(wanted) => {
                put(&mut status, "conditions", times.conditions(&stored["conditions"], wanted))
            }
            Self::Gateway { conditions, addresses, listeners } => {
                put(&mut status, "conditions", times.conditions(&stored["conditions"], conditions));
                if let Some(addresses) = addresses {
                    put(&mut status, "addresses", addresses.iter().map(address).collect());
                }
                let of = |listener: &ListenerStatus| times.listener(&stored["listeners"], listener);
                put(&mut status, "listeners", listeners.iter().map(of).collect());
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

/// The patch (RFC 7396) that makes `new` of `old`.
#[must_use]
pub fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else { return new.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let other = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
    let changed =
        other.map(|(key, value)| (key.clone(), merge_patch(before.get(key).unwrap_or(&Value::Null), value)));
    Value::Object(gone.chain(changed).collect())
}

/// Without lists and objects that hold nothing at the top: an API server may leave them out.
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

/// The addresses of a load balancer; what is stored beside an address (ports, modes) stays.
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

/// What only the moment of writing knows.
#[derive(Clone, Copy)]
struct Times<'a> {
    generation: i64,
    now: &'a str,
}

impl Times<'_> {
    /// The conditions, each in the place that it has.
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

    fn listener(self, stored: &Value, wanted: &ListenerStatus) -> Value {
        let before = list(stored).iter().find(|listener| listener["name"] == wanted.name.as_str());
        let kind = |kind: &RouteGroupKind| json!({"group": kind.group, "kind": kind.kind});
        let conditions = before.map_or(&Value::Null, |before| &before["conditions"]);
        // Whatever else the listener has was written by another controller.
        let mut listener = before.and_then(Value::as_object).cloned().unwrap_or_default();
        put(&mut listener, "name", json!(wanted.name));
        put(&mut listener, "attachedRoutes", json!(wanted.attached_routes));
        put(&mut listener, "supportedKinds", wanted.supported_kinds.iter().map(kind).collect());
        put(&mut listener, "conditions", self.conditions(conditions, &wanted.conditions));
        Value::Object(listener)
    }

    /// Our entries at their places, those of other controllers untouched: neither may move because of the other.
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
