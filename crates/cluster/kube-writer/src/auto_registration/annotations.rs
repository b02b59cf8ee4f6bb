//! Annotations and conditions of a WorkloadEntry about its workload's connection, and their changes on
//! events. Pure: works on the object of the API server, so that unknown fields are kept.
//!
//! ```text
//!            connect                     disconnect                     grace period
//!  (nothing) ──────▶ connectedAt, controller ─────▶ disconnectedAt, controller ─────▶ deleted, or
//!                          ▲                               │                          without its health
//!                          └───────────── connect ─────────┘
//! ```
//!
//! All replicas follow these rules, without a leader. A write that conflicts with another one fails by the
//! resource version, and the rules are applied again.
//!
//! Times in annotations are from other machines' clocks, which may be wrong by hours. They only order events:
//! each new time is later than all known ones, so the order holds with any clock error. A replica with
//! outdated knowledge is corrected when the other one disconnects. The age of a mark is never taken from
//! these times, but from how long it was watched without a change
//! ([`StaleTracker`](super::stale_tracker::StaleTracker)).

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Annotation with the group that an entry was created for.
pub(super) const GROUP: &str = "istio.io/autoRegistrationGroup";

/// Annotation of entries that are used only while their workload reports healthy.
pub(super) const HEALTH_CHECKS: &str = "proxy.istio.io/health-checks-enabled";

/// Replica to which the workload is, or was last, connected.
pub(super) const CONTROLLER: &str = "istio.io/workloadController";
/// Time since which it is connected.
pub(super) const CONNECTED_AT: &str = "istio.io/connectedAt";
/// Time since which it is disconnected.
pub(super) const DISCONNECTED_AT: &str = "istio.io/disconnectedAt";
/// Condition for the workload's health.
const HEALTHY: &str = "Healthy";

/// Result of applying an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object was changed and has to be written.
    Write,
    /// Nothing to write: another replica was later, or it is already written.
    Skip,
}

/// Result of applying a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connected {
    /// The entry belongs to this replica.
    Here(Verdict),
    /// The entry belongs to another replica, as far as is known.
    Elsewhere,
}

/// Action for an entry that seems to have no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CleanUp {
    /// Delete it: it was created for a workload that is gone.
    Delete,
    /// Write its status: its health is no longer known, and the object was changed accordingly.
    ForgetHealth,
    /// Keep the entry unchanged.
    Leave,
}

/// Annotations of an entry about its workload's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionMark {
    /// Replica that wrote them.
    pub(super) controller: Arc<str>,
    connected: Option<Arc<str>>,
    disconnected: Option<Arc<str>>,
}

impl ConnectionMark {
    /// Reads the annotations; `None` without them.
    pub(super) fn of<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let text = |name: &str| get(name).map(Arc::from);
        let (connected, disconnected) = (text(CONNECTED_AT), text(DISCONNECTED_AT));
        (connected.is_some() || disconnected.is_some()).then(|| Self {
            controller: get(CONTROLLER).unwrap_or_default().into(),
            connected,
            disconnected,
        })
    }

    /// True if it is marked as disconnected.
    pub(super) fn has_left(&self) -> bool {
        self.connected.is_none()
    }

    pub(super) fn latest(&self) -> Option<Timestamp> {
        let time = |text: &Option<Arc<str>>| text.as_ref()?.parse().ok();
        time(&self.connected).max(time(&self.disconnected))
    }
}

/// Evidence that an entry is stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// This replica wrote that its workload disconnected.
    LeftHere,
    /// Its mark has been unchanged for long enough.
    ConnectionMark(ConnectionMark),
}

/// Returns `at`, or a later time if the clock is behind `known`.
pub(super) fn later(at: Timestamp, known: Option<Timestamp>) -> Timestamp {
    let after = known.map(|known| known.checked_add(SignedDuration::from_nanos(1)).unwrap_or(known));
    after.map_or(at, |after| after.max(at))
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

fn time(object: &Value, name: &str) -> Option<Timestamp> {
    annotation(object, name)?.parse().ok()
}

/// Object at a key, created if it is missing. `None` if the key has another type.
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

/// Applies the connection of the workload to `me` at that time.
pub(super) fn connect(object: &mut Value, me: &str, at: Timestamp) -> Connected {
    let (since, left) = (time(object, CONNECTED_AT), time(object, DISCONNECTED_AT));
    let is_later = since.is_some_and(|since| since > at);
    if annotation(object, CONTROLLER) == Some(me) {
        // Times of this replica may have been moved ahead of its clock.
        if left.is_none() && (is_later || since == Some(at)) {
            return Connected::Here(Verdict::Skip);
        }
    } else if is_later {
        // It has connected elsewhere since. A later disconnection from another replica proves nothing: the
        // workload may have connected here before the other one noticed.
        return Connected::Elsewhere;
    }
    let Some(annotations) = annotations(object) else { return Connected::Elsewhere };
    annotations.insert(CONTROLLER.to_owned(), json!(me));
    annotations.insert(CONNECTED_AT.to_owned(), json!(later(at, since.max(left)).to_string()));
    annotations.remove(DISCONNECTED_AT);
    Connected::Here(Verdict::Write)
}

/// Applies the end of the last connection to `me` at `at`. A mark by `me` belongs to this connection: a
/// replica writes one event of an entry at a time.
pub(super) fn disconnect(object: &mut Value, me: &str, at: Timestamp) -> Verdict {
    let (since, left) = (time(object, CONNECTED_AT), time(object, DISCONNECTED_AT));
    let is_written = annotation(object, CONNECTED_AT).is_none() && left.is_some();
    if annotation(object, CONTROLLER) != Some(me) || is_written {
        return Verdict::Skip;
    }
    let Some(annotations) = annotations(object) else { return Verdict::Skip };
    annotations.remove(CONNECTED_AT);
    annotations.insert(DISCONNECTED_AT.to_owned(), json!(later(at, since.max(left)).to_string()));
    Verdict::Write
}

/// Decides on the action for a stale entry.
pub(super) fn clean_up(object: &mut Value, me: &str, seen: &Seen) -> CleanUp {
    let mark = ConnectionMark::of(|name| annotation(object, name));
    let is_same = mark.is_some_and(|mark| match seen {
        Seen::LeftHere => mark.has_left() && &*mark.controller == me,
        Seen::ConnectionMark(seen) => mark == *seen,
    });
    if !is_same {
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

fn is_health(condition: &Value) -> bool {
    condition["type"] == HEALTHY
}

/// True if an entry made by hand has the annotation for health checks, with any value, even `false`.
pub(super) fn asks_for_health<'a>(get: impl Fn(&str) -> Option<&'a str>) -> bool {
    get(HEALTH_CHECKS).is_some()
}

fn status_of(health: &Result<(), String>) -> &'static str {
    if health.is_ok() { "True" } else { "False" }
}

/// Applies a health report at that time; `Err` with the problem.
pub(super) fn report(object: &mut Value, me: &str, at: Timestamp, health: &Result<(), String>) -> Verdict {
    if annotation(object, CONTROLLER) != Some(me) {
        return Verdict::Skip;
    }
    let stored = object.pointer("/status/conditions").and_then(Value::as_array);
    let stored = stored.and_then(|all| all.iter().find(|condition| is_health(condition)));
    let probed = stored.and_then(|condition| condition["lastProbeTime"].as_str()?.parse::<Timestamp>().ok());
    let value_of = |field: &str| stored.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    let message = health.as_ref().err().map_or("", String::as_str);
    if value_of("status") == status_of(health) && value_of("message") == message {
        return Verdict::Skip;
    }
    let at = later(at, probed);
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
