//! Gateway API objects: negative conditions in the status that would be written.

use super::Code;
use super::finding::Report;
use crate::routing::gateway_api::{ApiStatus, StatusView};
use pilotfish_config::status::{Condition, Status};
use std::collections::BTreeSet;

/// Conditions that state the cause; the others follow from these.
const TELLING: [&str; 3] = ["Accepted", "ResolvedRefs", "Conflicted"];

/// Reports the conditions that are not as they should be.
pub(super) fn check(report: &mut Report<'_, '_>, of: &StatusView) {
    let status = report.cx.get(&ApiStatus { key: report.key().clone(), of: of.clone() });
    let Some(status) = status.as_ref() else { return };
    let mut seen = BTreeSet::new();
    for (path, condition) in conditions(status) {
        // `Conflicted` has negative polarity.
        let is_bad =
            TELLING.contains(&condition.r#type) && condition.status == (condition.r#type == "Conflicted");
        if is_bad && seen.insert((path.clone(), condition.r#type, condition.message.clone())) {
            let message = format!("{}: {}: {}", condition.r#type, condition.reason, condition.message);
            report.add(Code::NegativeConditionStatus, path, message);
        }
    }
}

fn conditions(status: &Status) -> Vec<(String, &Condition)> {
    match status {
        Status::Class { conditions, .. } => conditions.iter().map(|one| (String::new(), one)).collect(),
        Status::Gateway { conditions, listeners, .. } | Status::ListenerSet { conditions, listeners } => {
            let own = conditions.iter().map(|one| (String::new(), one));
            let of_listeners = listeners.iter().enumerate().flat_map(|(index, listener)| {
                listener.conditions.iter().map(move |one| (format!("spec.listeners[{index}]"), one))
            });
            own.chain(of_listeners).collect()
        }
        Status::Route { parents, .. } => entries("spec.parentRefs", parents),
        Status::Policy { ancestors, .. } => entries("spec.targetRefs", ancestors),
        Status::Ingress(_) | Status::Istio { .. } => Vec::new(),
    }
}

fn entries<'s>(
    list: &str,
    entries: &'s [pilotfish_config::status::ParentStatus],
) -> Vec<(String, &'s Condition)> {
    let all = entries.iter().enumerate();
    all.flat_map(|(index, entry)| entry.conditions.iter().map(move |one| (index, one)))
        .map(|(index, one)| (format!("{list}[{index}]"), one))
        .collect()
}
