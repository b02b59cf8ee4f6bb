//! Which policies concern a workload: those of the root namespace and of its own that select it.

use crate::Cx;
use pilotfish_config::security::{AuthorizationPolicy, RequestAuthentication};
use pilotfish_config::{PolicyTargetReference, WorkloadSelector};
use pilotfish_model::{KindSpec, Labels, Namespace, Typed, label_subset};

/// The workload that policies are about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its labels, as far as selectors name them.
    pub labels: Labels,
    /// Whether it is a gateway.
    pub is_gateway: bool,
}

/// What all kinds of policies that select workloads have.
pub(super) trait Policy: KindSpec {
    fn selector(&self) -> Option<&WorkloadSelector>;
    fn targets(&self) -> Vec<&PolicyTargetReference>;
}

macro_rules! policy {
    ($type:ty) => {
        impl Policy for $type {
            fn selector(&self) -> Option<&WorkloadSelector> {
                self.selector.as_ref()
            }

            fn targets(&self) -> Vec<&PolicyTargetReference> {
                self.target_refs.iter().chain(&self.target_ref).collect()
            }
        }
    };
}

policy!(AuthorizationPolicy);
policy!(RequestAuthentication);

/// The label by which a gateway knows the Gateway object that it was made for.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

impl Subject {
    /// The policies of a kind that concern the workload: of the root namespace, then of its own, each the oldest first.
    pub(super) fn policies<T: Policy>(&self, cx: &Cx<'_>) -> Vec<Typed<T>> {
        let root: Namespace = cx.mesh().root_namespace.as_str().into();
        let mut out = self.selected::<T>(cx, &root);
        if root != self.namespace {
            out.extend(self.selected(cx, &self.namespace));
        }
        out
    }

    fn selected<T: Policy>(&self, cx: &Cx<'_>, namespace: &Namespace) -> Vec<Typed<T>> {
        let mut policies = cx.objects_in::<T>(namespace);
        policies.retain(|policy| self.concerns(&**policy));
        policies.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        policies
    }

    fn concerns<T: Policy>(&self, policy: &T) -> bool {
        let targets = policy.targets();
        if !targets.is_empty() {
            return targets.iter().any(|target| self.is_target(target));
        }
        policy.selector().is_none_or(|selector| label_subset(&selector.match_labels, &self.labels))
    }

    /// Only gateways made from the Gateway API are targets of policies.
    fn is_target(&self, target: &PolicyTargetReference) -> bool {
        let named = || self.labels.get(GATEWAY_NAME).is_some_and(|name| *name == target.name);
        self.is_gateway && target.kind == "Gateway" && target.group == "gateway.networking.k8s.io" && named()
    }
}
