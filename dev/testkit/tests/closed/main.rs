//! Never open by mistake: an object that guards something and is broken in one place never lets more through
//! than while it was whole. What a proxy lets through is found by a model of Envoy that reads the resources
//! that the proxy is sent.
//!
//! ```text
//! generated object ─▶ broken in one place ─▶ files' state ─▶ world ─▶ resources ─▶ model of Envoy ─▶ calls that come through
//! ```
//!
//! A kind more is one row: how its objects are generated, and which of the questions of `mesh` it bears upon.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod breaking;
mod call;
mod dice;
mod envoy;
mod generate;
mod jwt;
mod matchers;
mod mesh;
mod rbac;
mod upstream;

use breaking::{WAYS, broken, places};
use call::Call;
use dice::Dice;
use mesh::Mesh;
use pilotfish_config::{Effective, Limits, ProblemReport, Severity, SourceEvent};
use pilotfish_files::{FileChange, FileContent, FileRole, FileState};
use pilotfish_model::ObjectKey;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Objects of each kind, and breakages of each that are tried. `PILOTFISH_GUARDS` runs more objects.
const OBJECTS: u64 = 8;
const BREAKAGES: usize = 16;

/// One row of the table of kinds.
struct Guard {
    generate: fn(&mut Dice) -> Value,
    /// What is in the mesh besides.
    beside: &'static str,
    calls: fn() -> Vec<Call>,
    /// The calls that come through.
    admitted: fn(&Mesh, &[Call]) -> BTreeSet<String>,
    /// Only breakages below this field; all for none.
    below: Option<&'static str>,
    /// Whether more comes through without such an object, so that leaving it out would be found.
    absence_opens: bool,
}

#[test]
fn authorization_policies() {
    let guard = Guard {
        generate: generate::authorization_policy,
        beside: mesh::POLICIES,
        calls: mesh::calls,
        admitted: mesh::inbound,
        below: None,
        absence_opens: true,
    };
    never_opens(&guard);
}

#[test]
fn request_authentications() {
    let guard = Guard {
        generate: generate::request_authentication,
        beside: mesh::POLICIES,
        calls: mesh::calls,
        admitted: mesh::inbound,
        below: None,
        absence_opens: true,
    };
    never_opens(&guard);
}

#[test]
fn peer_authentications() {
    let guard = Guard {
        generate: generate::peer_authentication,
        beside: mesh::POLICIES,
        calls: mesh::calls,
        admitted: mesh::inbound,
        below: None,
        absence_opens: true,
    };
    never_opens(&guard);
}

#[test]
fn gateways() {
    let guard = Guard {
        generate: generate::gateway,
        beside: "",
        calls: mesh::gateway_calls,
        admitted: mesh::at_gateway,
        below: None,
        absence_opens: false,
    };
    never_opens(&guard);
}

/// Connections for a server whose TLS settings are broken do not come to the one for more hosts.
#[test]
fn gateways_beside_one_for_more_hosts() {
    let guard = Guard {
        generate: generate::gateway,
        beside: mesh::WIDE,
        calls: mesh::gateway_calls,
        admitted: mesh::at_gateway,
        below: Some("tls"),
        absence_opens: true,
    };
    never_opens(&guard);
}

#[test]
fn destination_rules() {
    let guard = Guard {
        generate: generate::destination_rule,
        beside: "",
        calls: Vec::new,
        admitted: mesh::upstream,
        below: Some("trafficPolicy"),
        absence_opens: true,
    };
    never_opens(&guard);
}

#[test]
fn backend_tls_policies() {
    let guard = Guard {
        generate: generate::backend_tls_policy,
        beside: mesh::ROOTS,
        calls: Vec::new,
        admitted: mesh::upstream,
        below: Some("validation"),
        absence_opens: true,
    };
    never_opens(&guard);
}

fn never_opens(guard: &Guard) {
    let objects = std::env::var("PILOTFISH_GUARDS").ok().and_then(|n| n.parse().ok()).unwrap_or(OBJECTS);
    let mut mesh = Mesh::with(guard.beside);
    let calls = (guard.calls)();
    let (mut tried, mut would_open) = (0, 0);
    for seed in 1..=objects {
        let mut dice = Dice::new(seed);
        let object = (guard.generate)(&mut dice);
        let key = put(&mut mesh, &object);
        let whole = (guard.admitted)(&mesh, &calls);
        mesh.replace(&key, Vec::new());
        let without = (guard.admitted)(&mesh, &calls);
        would_open += usize::from(!without.is_subset(&whole));
        for (place, way, broken) in breakages(&object, guard.below, &mut dice) {
            let events = match refused(&broken) {
                Some(events) => {
                    keeps_last_good(&object, &broken);
                    events
                }
                // Another value in place of the whole structure is no field of a newer version.
                None if matches!(way, 1 | 7) => continue,
                None => match with_unknown(&broken) {
                    Some(events) => events,
                    None => continue,
                },
            };
            mesh.replace(&key, events);
            let admitted = (guard.admitted)(&mesh, &calls);
            let opened: Vec<&String> = admitted.difference(&whole).collect();
            assert!(
                opened.is_empty(),
                "seed {seed}, {place:?} in way {way} lets {opened:?} through\n{object}\n{broken}"
            );
            tried += 1;
        }
        mesh.replace(&key, Vec::new());
    }
    assert!(tried > 0, "nothing was broken");
    assert_eq!(would_open > 0, guard.absence_opens, "objects whose absence opens: {would_open}");
}

/// Some of the ways to break an object, mostly of its spec.
fn breakages(object: &Value, below: Option<&str>, dice: &mut Dice) -> Vec<(breaking::Place, usize, Value)> {
    let is_meant = |place: &breaking::Place| match below {
        Some(field) => place.iter().any(|step| step == field),
        None => {
            place[0] == "spec"
                || place.iter().any(|step| step == "creationTimestamp" || step == "annotations")
        }
    };
    let places: Vec<_> = places(object).into_iter().filter(is_meant).collect();
    let tries = (0..BREAKAGES).map(|_| (dice.pick(&places), dice.roll(WAYS)));
    let tries: Vec<_> = tries.collect();
    tries
        .into_iter()
        .filter_map(|(place, way)| Some((place.clone(), way, broken(object, &place, way)?)))
        .collect()
}

/// Puts an object in force that nothing is wrong with.
fn put(mesh: &mut Mesh, object: &Value) -> ObjectKey {
    let mut state = FileState::default();
    let events = state.apply(vec![file(object)]);
    let errors = reports(&state);
    assert!(errors.is_empty(), "{errors:?}\n{object}");
    let key = state.objects().keys().next().expect("an object").clone();
    mesh.replace(&key, events);
    key
}

/// What a start with only the broken object brings into force; `None` when nothing is wrong with it.
fn refused(object: &Value) -> Option<Vec<SourceEvent>> {
    let mut state = FileState::new(Limits::default());
    let events = state.apply(vec![file(object)]);
    let reports = reports(&state);
    for (effective, text) in &reports {
        let said = match effective {
            Effective::Closed => text.contains("; until it is mended, "),
            Effective::Dropped => text.ends_with(" is not applied") && events.is_empty(),
            Effective::LastGood | Effective::Written => false,
        };
        assert!(said, "{effective:?}: {text}");
    }
    (!reports.is_empty()).then_some(events)
}

/// What a start with an object brings into force in which only something is unknown.
fn with_unknown(object: &Value) -> Option<Vec<SourceEvent>> {
    let mut state = FileState::new(Limits::default());
    let events = state.apply(vec![file(object)]);
    let is_unknown = |report: &ProblemReport| report.message.contains("unknown to this version");
    state.problems().reports.iter().any(is_unknown).then_some(events)
}

/// With a last good version, nothing changes at all.
fn keeps_last_good(object: &Value, broken: &Value) {
    let mut state = FileState::new(Limits::default());
    state.apply(vec![file(object)]);
    let events = state.apply(vec![file(broken)]);
    assert!(events.is_empty(), "{events:?}");
    assert!(reports(&state).iter().all(|(effective, _)| *effective == Effective::LastGood));
}

fn reports(state: &FileState) -> Vec<(Effective, String)> {
    let errors = state.problems().reports.into_iter().filter(|report| report.severity == Severity::Error);
    errors.map(|report| (report.effective, report.to_string())).collect()
}

fn file(object: &Value) -> FileChange {
    let content = FileContent::Bytes(object.to_string().into_bytes());
    FileChange {
        path: Path::new("guard.yaml").into(),
        name: "guard.yaml".into(),
        role: FileRole::Objects,
        content,
    }
}
