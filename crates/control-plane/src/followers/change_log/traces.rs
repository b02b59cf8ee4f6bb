//! Traces of changes, from the first event to the last acknowledgement.

use crate::history::{Change, Outcome, Resolution};
use pilotfish_otlp::{Event, Span, Trace, Value};
use std::time::SystemTime;

/// Limit on the items of a change that are named.
const NAMED: usize = 20;

/// Converts a change to a trace; `now` is its end for late and refused changes.
pub(super) fn of_change(change: &Change, outcome: &Outcome, names: Option<String>, now: SystemTime) -> Trace {
    let began = change.before_that;
    let end = match outcome {
        Outcome::InForce(after) => change.at + *after,
        Outcome::Late { .. } | Outcome::Refused { .. } => now,
        Outcome::Unwatched => change.at,
    };
    let text = |text: &str| Value::Text(text.to_owned());
    let mut root = Span::new("change", began.received, end);
    root.attributes = vec![
        ("pilotfish.revision", Value::Number(change.revision)),
        ("pilotfish.change", Value::Text(change.summary())),
        ("pilotfish.proxies", Value::Number(change.concerned.len() as u64)),
        ("pilotfish.in_force", Value::Flag(outcome.is_in_force())),
    ];
    let sources = Some(change.sources()).filter(|sources| !sources.is_empty());
    root.attributes.extend(sources.map(|sources| ("pilotfish.source", Value::Text(sources))));
    let named = change.items.iter().take(NAMED);
    root.events = named
        .map(|item| Event {
            name: "changed",
            at: began.received,
            attributes: vec![
                ("pilotfish.object", text(&item.what)),
                ("pilotfish.action", text(item.action.word())),
                ("pilotfish.source", text(&item.source)),
            ],
        })
        .collect();
    let wait = Span::new("wait", began.received, began.computing);
    let compute = Span::new("compute", began.computing, change.at);
    let mut deliver = Span::new("deliver", change.at, end);
    let failure = match outcome {
        Outcome::Late { missing, .. } => {
            Some(("have not acknowledged", ["pilotfish.missing", "pilotfish.missing.names"], *missing, None))
        }
        Outcome::Refused { by, resolution } => {
            let later = match resolution {
                Resolution::Accepted(revision) => revision.map(|by| ("pilotfish.accepted_with", by)),
                Resolution::Superseded(revision) => Some(("pilotfish.superseded_by", *revision)),
                Resolution::Left => None,
            };
            Some(("refused", ["pilotfish.refused", "pilotfish.refused.names"], by.count(), later))
        }
        Outcome::InForce(_) | Outcome::Unwatched => None,
    };
    if let Some((did, [key, key_of_names], count, later)) = failure {
        let error = format!("{count} of {} proxies {did} it", change.concerned.len());
        root.error = Some(error.clone());
        deliver.error = Some(error);
        deliver.attributes.push((key, Value::Number(count as u64)));
        deliver.attributes.extend(names.map(|names| (key_of_names, Value::Text(names))));
        deliver.attributes.extend(later.map(|(key, revision)| (key, Value::Number(revision))));
    }
    let parts = if matches!(outcome, Outcome::Unwatched) {
        vec![wait, compute]
    } else {
        vec![wait, compute, deliver]
    };
    Trace { root, parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Began;
    use parking_lot::Mutex;
    use pilotfish_xds::{ClientId, Types};
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, UNIX_EPOCH};

    fn at(milliseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(milliseconds)
    }

    fn change() -> Change {
        Change {
            revision: 7,
            at: at(30),
            before_that: Began { received: at(10), computing: at(20) },
            items: Vec::new(),
            more: 0,
            is_first: false,
            concerned: [ClientId(1), ClientId(2)].into(),
            types: [Types::ALL].into(),
            outcome: Mutex::new(None),
            lacking: Mutex::default(),
            refused_by: Mutex::default(),
            was_late: AtomicBool::new(false),
        }
    }

    #[test]
    fn parts_follow_each_other_from_the_event_to_the_last_acknowledgement() {
        let outcome = Outcome::InForce(Duration::from_millis(12));
        let trace = of_change(&change(), &outcome, None, at(9_000));
        let times = |span: &Span| (span.name, span.start, span.end);
        assert_eq!(times(&trace.root), ("change", at(10), at(42)));
        let parts: Vec<_> = trace.parts.iter().map(times).collect();
        assert_eq!(
            parts,
            [("wait", at(10), at(20)), ("compute", at(20), at(30)), ("deliver", at(30), at(42))]
        );
        assert!(trace.root.attributes.contains(&("pilotfish.revision", Value::Number(7))));
        assert!(
            trace.root.error.is_none()
                && !trace.root.attributes.iter().any(|(key, _)| *key == "pilotfish.source")
        );
    }

    #[test]
    fn what_is_late_ends_when_that_is_said_and_names_those_that_are_missing() {
        let outcome = Outcome::Late { missing: 1, clients: vec![ClientId(2)] };
        let trace = of_change(&change(), &outcome, Some("web-0.shop (pending)".into()), at(5_030));
        assert_eq!(trace.root.end, at(5_030));
        assert_eq!(trace.root.error.as_deref(), Some("1 of 2 proxies have not acknowledged it"));
        let deliver = trace.parts.last().unwrap();
        let names = ("pilotfish.missing.names", Value::Text("web-0.shop (pending)".into()));
        assert!(deliver.error.is_some() && deliver.attributes.contains(&names));
        // Nobody watched the last one: how it was delivered is not known.
        let unwatched = of_change(&change(), &Outcome::Unwatched, None, at(9_000));
        assert_eq!((unwatched.root.end, unwatched.parts.len()), (at(30), 2));
    }
}
