//! The annotations and conditions of a WorkloadEntry about its workload's connection, and how events change them.
//! Pure: it works on the object as the API server has it, so that nothing in it is lost.
//!
//! ```text
//!             connect                        disconnect                     grace period over
//!   (nothing) ───────▶ connectedAt, controller ────────▶ disconnectedAt, controller ────────▶ deleted, or without its health
//!                            ▲                                  │
//!                            └──────────────── connect ─────────┘
//! ```
//!
//! Several replicas follow these rules, without a leader. A write that would cross another one fails by the resource version, and
//! the rules are applied again.
//!
//! Times in annotations are other machines' clocks, which may be wrong by hours. They order events, and each is made later than all
//! that were known when it was made, so the order holds however wrong clocks are; where a replica could not know, it finds out as
//! soon as the other one disconnects. They never give the age of a mark: that is how long it was watched without a change
//! ([`StaleTracker`](super::stale_tracker::StaleTracker)).

use super::entry::{GROUP, HEALTH_CHECKS};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The replica to which the workload is, or was last, connected.
pub(super) const CONTROLLER: &str = "istio.io/workloadController";
/// Since when it is connected.
pub(super) const CONNECTED_AT: &str = "istio.io/connectedAt";
/// Since when it is not.
pub(super) const DISCONNECTED_AT: &str = "istio.io/disconnectedAt";
/// The condition for the workload's health.
const HEALTHY: &str = "Healthy";

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object was changed and has to be written.
    Write,
    /// Nothing to write: another replica was later, or it is written already.
    Skip,
}

/// The result of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connected {
    /// The entry is this replica's.
    Here(Verdict),
    /// It is, as far as can be known, another one's.
    Elsewhere,
}

/// What is to become of an entry that seems to have no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CleanUp {
    /// It was made for a workload that is gone.
    Delete,
    /// Its health is not known any more; the object was changed, and its status has to be written.
    ForgetHealth,
    /// It stays.
    Leave,
}

/// An entry's annotations about its workload's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionMark {
    /// The replica that wrote them.
    pub(super) controller: Arc<str>,
    connected: Option<Arc<str>>,
    disconnected: Option<Arc<str>>,
}

impl ConnectionMark {
    /// `None` without such annotations.
    pub(super) fn of<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let text = |name: &str| get(name).map(Arc::from);
        let (connected, disconnected) = (text(CONNECTED_AT), text(DISCONNECTED_AT));
        (connected.is_some() || disconnected.is_some()).then(|| Self {
            controller: get(CONTROLLER).unwrap_or_default().into(),
            connected,
            disconnected,
        })
    }

    /// Whether it is marked as disconnected.
    pub(super) fn has_left(&self) -> bool {
        self.connected.is_none()
    }

    /// The latest time in it.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        let time = |text: &Option<Arc<str>>| text.as_ref()?.parse().ok();
        time(&self.connected).max(time(&self.disconnected))
    }
}

/// Why an entry seemed stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// We wrote ourselves that its workload left.
    LeftHere,
    /// It has been unchanged for long enough.
    ConnectionMark(ConnectionMark),
}

/// A time that is later than a known one, also when the clock is behind.
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
pub(super) fn connect(object: &mut Value, me: &str, at: Timestamp) -> Connected {
    let (since, left) = (time(object, CONNECTED_AT), time(object, DISCONNECTED_AT));
    let is_later = since.is_some_and(|since| since > at);
    if annotation(object, CONTROLLER) == Some(me) {
        // A time of ours may have been made later than the clock that it was taken from.
        if left.is_none() && (is_later || since == Some(at)) {
            return Connected::Here(Verdict::Skip);
        }
    } else if is_later {
        // It connected elsewhere since. A later disconnection from another replica would prove nothing: it may have connected here before
        // that one noticed.
        return Connected::Elsewhere;
    }
    let Some(annotations) = annotations(object) else { return Connected::Elsewhere };
    annotations.insert(CONTROLLER.to_owned(), json!(me));
    annotations.insert(CONNECTED_AT.to_owned(), json!(later(at, since.max(left)).to_string()));
    annotations.remove(DISCONNECTED_AT);
    Connected::Here(Verdict::Write)
}

/// The last connection to `me` ended at `at`. A mark by `me` is about this connection: a replica writes one event of an
/// entry at a time.
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

/// What is to become of an entry now.
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

/// Whether an entry made by hand opts into health checks. Any value counts, also `false`.
pub(super) fn asks_for_health<'a>(get: impl Fn(&str) -> Option<&'a str>) -> bool {
    get(HEALTH_CHECKS).is_some()
}

fn status_of(health: &Result<(), String>) -> &'static str {
    if health.is_ok() { "True" } else { "False" }
}

/// The workload reported its health at that time; `Err` with what is wrong.
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
