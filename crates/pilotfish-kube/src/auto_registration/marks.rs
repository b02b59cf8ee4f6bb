//! What annotations and conditions of a WorkloadEntry say of the connection of its workload, and what an event changes of that.
//! Pure: it works on the object as the API server has it, so that nothing in it is lost.
//!
//! ```text
//!             connect                        disconnect                     grace period over
//!   (nothing) ───────▶ connectedAt, controller ────────▶ disconnectedAt, controller ────────▶ deleted, or without its health
//!                            ▲                                  │
//!                            └──────────────── connect ─────────┘
//! ```
//!
//! Several replicas follow these rules, without a leader: the times tell who was last. A write that would cross another one
//! fails by the resource version, and the rules are asked again.

use super::entry::{GROUP, HEALTH_CHECKS};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

/// The replica to which the workload is, or was last, connected.
pub(super) const CONTROLLER: &str = "istio.io/workloadController";
/// Since when it is connected.
pub(super) const CONNECTED_AT: &str = "istio.io/connectedAt";
/// Since when it is not.
pub(super) const DISCONNECTED_AT: &str = "istio.io/disconnectedAt";
/// The condition that says whether the workload is healthy.
const HEALTHY: &str = "Healthy";

/// What comes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object was changed and has to be written.
    Write,
    /// Nothing: somebody else was later, or it is said already.
    Skip,
}

/// What is to become of an entry that nobody seems to be connected for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CleanUp {
    /// It was made for a workload that is gone.
    Delete,
    /// Its health is not known any more; the object was changed, and its status has to be written.
    ForgetHealth,
    /// It stays.
    Leave,
}

/// How long connections may seem to last, and how long a lost one is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    pub(super) grace: SignedDuration,
    /// Connections are marked anew more often than this; a mark that is older is a dead replica's.
    pub(super) oldest: SignedDuration,
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

fn time(object: &Value, name: &str) -> Option<Timestamp> {
    annotation(object, name)?.parse().ok()
}

/// The object at a key, made where it is missing. `None` when something else is there.
fn child<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let child = object.as_object_mut()?.entry(key).or_insert_with(|| json!({}));
    if child.is_null() {
        *child = json!({});
    }
    child.as_object_mut()
}

fn annotations(object: &mut Value) -> Option<&mut Map<String, Value>> {
    child(object, "metadata")?;
    child(object.get_mut("metadata")?, "annotations")
}

/// The workload connected to `me` at that time.
pub(super) fn connect(object: &mut Value, me: &str, at: Timestamp) -> Verdict {
    // It connected elsewhere since. That it left another replica since says nothing: it may well have come here before that one
    // saw it leave.
    if time(object, CONNECTED_AT).is_some_and(|since| since > at) {
        return Verdict::Skip;
    }
    if annotation(object, CONTROLLER) == Some(me) && time(object, CONNECTED_AT) == Some(at) {
        return Verdict::Skip;
    }
    let Some(annotations) = annotations(object) else { return Verdict::Skip };
    annotations.insert(CONTROLLER.to_owned(), json!(me));
    annotations.insert(CONNECTED_AT.to_owned(), json!(at.to_string()));
    annotations.remove(DISCONNECTED_AT);
    Verdict::Write
}

/// The last connection to `me`, which began at `connected`, ended at `at`.
pub(super) fn disconnect(object: &mut Value, me: &str, connected: Timestamp, at: Timestamp) -> Verdict {
    let since = time(object, CONNECTED_AT);
    // A later connection is somebody else's business, or one of ours that is not told yet.
    if since.is_some_and(|since| since > connected || since > at)
        || annotation(object, CONTROLLER) != Some(me)
    {
        return Verdict::Skip;
    }
    if time(object, DISCONNECTED_AT).is_some_and(|already| already >= at) {
        return Verdict::Skip;
    }
    let Some(annotations) = annotations(object) else { return Verdict::Skip };
    annotations.remove(CONNECTED_AT);
    annotations.insert(DISCONNECTED_AT.to_owned(), json!(at.to_string()));
    Verdict::Write
}

/// Whether nobody has been connected for too long.
pub(super) fn is_abandoned<'a>(get: impl Fn(&str) -> Option<&'a str>, now: Timestamp, ages: Ages) -> bool {
    let age = |name: &str| {
        let time: Timestamp = get(name)?.parse().ok()?;
        Some(now.duration_since(time))
    };
    match (age(CONNECTED_AT), age(DISCONNECTED_AT)) {
        (Some(age), _) => age > ages.oldest,
        (None, Some(age)) => age >= ages.grace,
        (None, None) => false,
    }
}

/// What is to become of an entry now.
pub(super) fn clean_up(object: &mut Value, now: Timestamp, ages: Ages) -> CleanUp {
    if !is_abandoned(|name| annotation(object, name), now, ages) {
        return CleanUp::Leave;
    }
    if annotation(object, GROUP).is_some_and(|group| !group.is_empty()) {
        return CleanUp::Delete;
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    let Some(conditions) = conditions.filter(|all| all.iter().any(is_health)) else { return CleanUp::Leave };
    conditions.retain(|condition| !is_health(condition));
    CleanUp::ForgetHealth
}

/// Whether the marks say that nobody is connected.
pub(super) fn says_left<'a>(get: impl Fn(&str) -> Option<&'a str>) -> bool {
    get(DISCONNECTED_AT).is_some() && get(CONNECTED_AT).is_none()
}

fn is_health(condition: &Value) -> bool {
    condition["type"] == HEALTHY
}

/// Whether an entry that somebody made asks that its health counts. Any value asks for it, also `false`.
pub(super) fn asks_for_health<'a>(get: impl Fn(&str) -> Option<&'a str>) -> bool {
    get(HEALTH_CHECKS).is_some()
}

fn status_of(health: &Result<(), String>) -> &'static str {
    if health.is_ok() { "True" } else { "False" }
}

/// The workload said at that time how it is; `Err` with what is wrong.
pub(super) fn report(object: &mut Value, me: &str, at: Timestamp, health: &Result<(), String>) -> Verdict {
    if annotation(object, CONTROLLER) != Some(me) {
        return Verdict::Skip;
    }
    let stored = object.pointer("/status/conditions").and_then(Value::as_array);
    let stored = stored.and_then(|all| all.iter().find(|condition| is_health(condition)));
    let probed = stored.and_then(|condition| condition["lastProbeTime"].as_str()?.parse::<Timestamp>().ok());
    if probed.is_some_and(|probed| probed > at) {
        return Verdict::Skip;
    }
    let says = |field: &str| stored.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    let message = health.as_ref().err().map_or("", String::as_str);
    if says("status") == status_of(health) && says("message") == message {
        return Verdict::Skip;
    }
    let mut condition = json!({
        "type": HEALTHY,
        "status": status_of(health),
        "lastProbeTime": at.to_string(),
        "lastTransitionTime": at.to_string(),
    });
    if let Err(message) = health {
        condition["message"] = json!(message);
    }
    let Some(status) = child(object, "status") else { return Verdict::Skip };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return Verdict::Skip };
    match conditions.iter_mut().find(|condition| is_health(condition)) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    Verdict::Write
}
