//! Outcome of a policy, for its status.

use super::{AttachedPoliciesIn, is_ignored, target, trust};
use crate::engine::{Cx, Query};
use crate::routing::gateway_api::backends::Problem;
use crate::routing::gateway_api::listeners::Fault;
use pilotfish_config::gateway_api::{BackendTlsPolicy, PolicyTargetReference};
use pilotfish_model::{Hostname, Namespace};
use std::sync::Arc;

/// Query for the outcome of one policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::routing::gateway_api) struct PolicyOutcomeOf {
    pub(in crate::routing::gateway_api) namespace: Namespace,
    pub(in crate::routing::gateway_api) name: Arc<str>,
}

/// The answer to [`PolicyOutcomeOf`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::routing::gateway_api) struct PolicyOutcome {
    /// Reason for unusable authorities; `None` if they can be used.
    pub(in crate::routing::gateway_api) fault: Option<Fault>,
    /// Number of unused references to authorities: all but the first.
    pub(in crate::routing::gateway_api) unused_authorities: usize,
    /// For each target whether the policy is in force there.
    pub(in crate::routing::gateway_api) targets: Vec<TargetOutcome>,
}

/// Outcome of a policy at one target.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::routing::gateway_api) struct TargetOutcome {
    pub(in crate::routing::gateway_api) reference: PolicyTargetReference,
    /// Its hosts, if it is in force there.
    pub(in crate::routing::gateway_api) result: Result<Vec<Hostname>, Problem>,
}

impl Query for PolicyOutcomeOf {
    type Output = Option<PolicyOutcome>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let policy = cx.object::<BackendTlsPolicy>(&self.namespace, &self.name)?;
        if is_ignored(policy.meta()) {
            return None;
        }
        let targets = policy
            .spec
            .target_refs
            .iter()
            .map(|reference| TargetOutcome { reference: reference.clone(), result: self.at(cx, reference) });
        Some(PolicyOutcome {
            fault: trust::credential(cx, &policy).err(),
            unused_authorities: policy.spec.validation.ca_certificate_refs.len().saturating_sub(1),
            targets: targets.collect(),
        })
    }
}

impl PolicyOutcomeOf {
    /// The hosts of a target where the policy is in force.
    fn at(&self, cx: &Cx<'_>, reference: &PolicyTargetReference) -> Result<Vec<Hostname>, Problem> {
        let (target, port) = target::resolve(cx, &self.namespace, reference)?;
        let attached = cx.get(&AttachedPoliciesIn(self.namespace.clone()));
        let winner = attached.get(&target.id).and_then(|attached| attached.winner(port));
        match winner {
            Some(winner) if winner.policy != self.name => {
                let message = format!("the policy {} is older and for the same target", winner.policy);
                Err(Problem::new("Conflicted", message))
            }
            _ => Ok(target.hosts.iter().filter_map(|host| Hostname::parse(host).ok()).collect()),
        }
    }
}
