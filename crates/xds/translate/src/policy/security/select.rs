//! Selection of the policies of a workload: those of the root namespace and of its own namespace that match
//! it.

use crate::engine::Cx;
use crate::policy::attachment::{Policy, concerns};
use pilotfish_model::{Labels, Namespace, Typed};

/// The workload to which policies apply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub namespace: Namespace,
    /// The labels that selectors use.
    pub labels: Labels,
    pub is_gateway: bool,
}

impl Subject {
    /// The policies of a kind that concern the workload: of the root namespace, then of its own, each the
    /// oldest first.
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
        policies.retain(|policy| concerns(policy, &self.namespace, &self.labels));
        policies.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        policies
    }
}
