//! The status of BackendTLSPolicies: for each target, and for each Gateway whose routes lead to one.

use super::routes::GatewaysByHost;
use crate::engine::Cx;
use crate::routing::gateway_api::backend_tls::{PolicyOutcome, PolicyOutcomeOf, TargetOutcome};
use crate::routing::gateway_api::{ACCEPTED, RESOLVED_REFS};
use pilotfish_config::gateway_api::ParentReference;
use pilotfish_config::status::{Condition, Controllers, ParentStatus, Status};
use pilotfish_model::{Namespace, ObjectKey};
use std::collections::BTreeMap;

/// Reason for a policy with unusable CA certificates.
const NO_AUTHORITY: &str = "NoValidCACertificate";

/// Targets come first, then Gateways: if the list is full, targets take precedence, as in istiod.
pub(super) fn status(cx: &Cx<'_>, key: &ObjectKey, ours: Controllers) -> Option<Status> {
    let outcome = cx.get(&PolicyOutcomeOf { namespace: key.namespace.clone(), name: key.name.clone() });
    let outcome = Option::as_ref(&outcome)?;
    let mut ancestors: Vec<ParentStatus> = Vec::new();
    for target in &outcome.targets {
        let reference = &target.reference;
        let parent = ParentReference {
            group: reference.group.clone(),
            kind: reference.kind.clone(),
            namespace: None,
            name: reference.name.clone(),
            section_name: reference.section_name.clone(),
            port: None,
        };
        ancestors.push(ParentStatus {
            parent,
            controller: ours.of_mesh(),
            conditions: conditions(outcome, target),
        });
    }
    ancestors.extend(at_gateways(cx, &key.namespace, outcome, ours));
    Some(Status::Policy { ours, ancestors })
}

/// Returns the Gateways whose routes lead to a target with the policy, each once.
fn at_gateways(
    cx: &Cx<'_>,
    own: &Namespace,
    outcome: &PolicyOutcome,
    ours: Controllers,
) -> Vec<ParentStatus> {
    let by_host = cx.get(&GatewaysByHost);
    let mut gateways = BTreeMap::new();
    for target in &outcome.targets {
        let hosts = target.result.iter().flatten();
        for gateway in hosts.filter_map(|host| by_host.get(host)).flatten() {
            gateways.entry(gateway.clone()).or_insert(target);
        }
    }
    let served = gateways.into_iter().filter(|(gateway, _)| ours.names().contains(&gateway.controller));
    served
        .map(|(gateway, target)| ParentStatus {
            parent: ParentReference {
                namespace: (gateway.namespace != *own).then(|| gateway.namespace.to_string()),
                name: gateway.name.to_string(),
                ..ParentReference::default()
            },
            controller: gateway.controller,
            conditions: conditions(outcome, target),
        })
        .collect()
}

fn conditions(outcome: &PolicyOutcome, target: &TargetOutcome) -> Vec<Condition> {
    let fault = outcome.fault.as_ref();
    let accepted = match (&target.result, fault) {
        (Err(problem), _) => Condition::bad(ACCEPTED, problem.reason, problem.message.clone()),
        (Ok(_), Some(fault)) => {
            let reason = if fault.condition == ACCEPTED { fault.reason } else { NO_AUTHORITY };
            Condition::bad(ACCEPTED, reason, format!("nothing passes: {}", fault.message))
        }
        (Ok(_), None) if outcome.unused_authorities > 0 => {
            Condition::good(ACCEPTED, "Accepted", "in force, with the first of caCertificateRefs alone")
        }
        (Ok(_), None) => Condition::good(ACCEPTED, "Accepted", "in force"),
    };
    let resolved = match fault.filter(|fault| fault.condition == RESOLVED_REFS) {
        Some(fault) => Condition::bad(RESOLVED_REFS, fault.reason, fault.message.clone()),
        None => Condition::good(RESOLVED_REFS, RESOLVED_REFS, "everything that the policy names is there"),
    };
    vec![accepted, resolved]
}
