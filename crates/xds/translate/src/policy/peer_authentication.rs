//! Mutual TLS modes of the workloads of a namespace, from PeerAuthentication.
//!
//! ```text
//! mesh policy ─▶ namespace policy ─▶ workload policy (selector) ─▶ its single ports
//! ```
//! Each level overrides the one before unless it leaves the mode unset. Of several policies of one level the
//! oldest counts. Only a workload's own namespace has workload policies: a selector in the root namespace
//! selects nothing.

use crate::engine::{Cx, Query, reference};
use pilotfish_config::security::{MutualTls, MutualTlsMode, PeerAuthentication};
use pilotfish_model::{LabelMap, Namespace, Origin, Typed, label_subset};
use std::collections::{BTreeMap, BTreeSet};

/// The mutual TLS that a workload requires of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum MtlsMode {
    Disable,
    /// Mutual TLS or plain text.
    Permissive,
    Strict,
}

impl MtlsMode {
    /// The mode as written; `None` when it is left to the level above.
    fn of(written: Option<MutualTls>) -> Option<Self> {
        match written?.mode {
            MutualTlsMode::Unset => None,
            MutualTlsMode::Disable => Some(Self::Disable),
            MutualTlsMode::Permissive => Some(Self::Permissive),
            MutualTlsMode::Strict => Some(Self::Strict),
        }
    }
}

/// The modes of one workload, by port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadMtls {
    /// For ports without a mode of their own.
    pub mode: MtlsMode,
    /// Modes by workload port.
    pub ports: BTreeMap<u32, MtlsMode>,
}

impl WorkloadMtls {
    /// The mode of a workload port.
    #[must_use]
    pub(crate) fn port(&self, port: u32) -> MtlsMode {
        self.ports.get(&port).copied().unwrap_or(self.mode)
    }
}

/// The policies that may concern workloads of one namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamespaceMtls {
    /// The mode of workloads without a policy of their own.
    pub mode: MtlsMode,
    /// The mode in a policy for the whole namespace or the whole mesh, if there is one. Clients assume this
    /// mode.
    pub stated: Option<MtlsMode>,
    /// The policies for the mesh and the namespace.
    pub provenance: Vec<Origin>,
    /// Policies with a selector, the oldest first.
    workloads: Vec<WorkloadPolicy>,
}

#[derive(Clone, Debug, PartialEq)]
struct WorkloadPolicy {
    selector: BTreeMap<String, String>,
    mode: Option<MtlsMode>,
    ports: BTreeMap<u32, Option<MtlsMode>>,
    provenance: Origin,
}

impl NamespaceMtls {
    /// The modes of a workload with these labels.
    #[must_use]
    pub(crate) fn workload(&self, labels: &LabelMap) -> WorkloadMtls {
        let Some(policy) = self.policy_of(labels) else {
            return WorkloadMtls { mode: self.mode, ports: BTreeMap::new() };
        };
        let mode = policy.mode.unwrap_or(self.mode);
        let ports = policy.ports.iter().map(|(port, written)| (*port, written.unwrap_or(mode)));
        WorkloadMtls { mode, ports: ports.collect() }
    }

    /// The mode of a workload with these labels at one of its ports.
    #[must_use]
    pub(crate) fn port(&self, labels: &LabelMap, port: u32) -> MtlsMode {
        let Some(policy) = self.policy_of(labels) else { return self.mode };
        policy.ports.get(&port).copied().flatten().or(policy.mode).unwrap_or(self.mode)
    }

    /// The policies that decide for a workload with these labels.
    #[must_use]
    pub(crate) fn provenance_of(&self, labels: &LabelMap) -> Vec<Origin> {
        let own = self.policy_of(labels).map(|policy| policy.provenance.clone());
        self.provenance.iter().cloned().chain(own).collect()
    }

    fn policy_of(&self, labels: &LabelMap) -> Option<&WorkloadPolicy> {
        self.workloads.iter().find(|policy| label_subset(&policy.selector, labels))
    }
}

/// The policies that may concern workloads of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerAuthenticationsOf(pub Namespace);

impl Query for PeerAuthenticationsOf {
    type Output = NamespaceMtls;

    fn compute(&self, cx: &Cx<'_>) -> NamespaceMtls {
        let root = cx.get(&RootNamespace);
        let closed = closed(cx, [&*root, &self.0]);
        if !closed.is_empty() {
            return NamespaceMtls {
                mode: MtlsMode::Strict,
                stated: Some(MtlsMode::Strict),
                provenance: closed,
                workloads: Vec::new(),
            };
        }
        let mesh = oldest(cx, &root, whole_namespace);
        let own = if *root == self.0 { None } else { oldest(cx, &self.0, whole_namespace) };
        let mesh_mode = mesh.as_ref().map(|policy| MtlsMode::of(policy.mtls).unwrap_or(MtlsMode::Permissive));
        let own_mode = own.as_ref().and_then(|policy| MtlsMode::of(policy.mtls));
        // A namespace policy without a mode states the inherited one.
        let inherited = own.as_ref().and(mesh_mode.or(Some(MtlsMode::Permissive)));
        let selecting = if *root == self.0 { Vec::new() } else { sorted(cx, &self.0) };
        NamespaceMtls {
            mode: own_mode.or(mesh_mode).unwrap_or(MtlsMode::Permissive),
            stated: own_mode.or(inherited).or(mesh_mode),
            provenance: mesh.iter().chain(&own).map(reference).collect(),
            workloads: selecting.iter().filter_map(workload_policy).collect(),
        }
    }
}

/// Policies whose workloads or ports cannot be determined. They override all other policies.
fn closed<'a>(cx: &Cx<'_>, namespaces: impl IntoIterator<Item = &'a Namespace>) -> Vec<Origin> {
    let namespaces: BTreeSet<&Namespace> = namespaces.into_iter().collect();
    let policies = namespaces.into_iter().flat_map(|namespace| sorted(cx, namespace));
    policies.filter(|policy| policy.closed).map(|policy| reference(&policy)).collect()
}

/// Modes of the namespace's and the mesh's policies, which clients assume for a service of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StatedMtlsOf(pub Namespace);

/// The answer to [`StatedMtlsOf`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatedMtls {
    /// The mode; `None` without such a policy, which means permissive.
    pub mode: Option<MtlsMode>,
    pub provenance: Vec<Origin>,
}

impl Query for StatedMtlsOf {
    type Output = StatedMtls;

    fn compute(&self, cx: &Cx<'_>) -> StatedMtls {
        let policies = cx.get(&PeerAuthenticationsOf(self.0.clone()));
        StatedMtls { mode: policies.stated, provenance: policies.provenance.clone() }
    }
}

/// The namespace whose policies hold for the whole mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RootNamespace;

impl Query for RootNamespace {
    type Output = Namespace;

    fn compute(&self, cx: &Cx<'_>) -> Namespace {
        cx.mesh().root_namespace.as_str().into()
    }
}

/// The policies of a namespace, the oldest first.
fn sorted(cx: &Cx<'_>, namespace: &Namespace) -> Vec<Typed<PeerAuthentication>> {
    let mut policies = cx.objects_in::<PeerAuthentication>(namespace);
    policies.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
    policies
}

fn oldest(
    cx: &Cx<'_>,
    namespace: &Namespace,
    keep: impl Fn(&PeerAuthentication) -> bool,
) -> Option<Typed<PeerAuthentication>> {
    sorted(cx, namespace).into_iter().find(|policy| keep(policy))
}

fn whole_namespace(policy: &PeerAuthentication) -> bool {
    policy.selector.as_ref().is_none_or(|selector| selector.match_labels.is_empty())
}

fn workload_policy(policy: &Typed<PeerAuthentication>) -> Option<WorkloadPolicy> {
    let selector = policy.selector.as_ref().filter(|selector| !selector.match_labels.is_empty())?;
    Some(WorkloadPolicy {
        selector: selector.match_labels.clone(),
        mode: MtlsMode::of(policy.mtls),
        ports: policy.port_level_mtls.iter().map(|(port, mtls)| (*port, MtlsMode::of(Some(*mtls)))).collect(),
        provenance: reference(policy),
    })
}

#[cfg(test)]
mod tests;
