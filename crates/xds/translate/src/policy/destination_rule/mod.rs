//! DestinationRules: which one a client uses for a service, and its policy for a port and a subset.
//!
//! ```text
//! objects of a namespace ─┐
//! BackendTLSPolicies ─────┴▶ DestinationRulesIn(namespace) ─▶ DestinationRulesFor { client, service } ─┐
//!                        Policy of a port, of a subset ◀── MergedDestinationRule ◀─────────────────────┘
//! ```
//!
//! Rules are looked up in the client's namespace, then among what the service's namespace exports, then among
//! what the root namespace exports. In each place the most specific host wins, and only then is checked
//! whether the client may see that rule: an exact rule that it may not see hides a visible wildcard beside
//! it.

mod merge;
mod policy;

pub(crate) use merge::{DestinationRulesIn, MergedDestinationRule};
pub(crate) use policy::{AnyConsistentHash, Policy, parts};

use crate::engine::{Cx, Query};
use crate::proxy::selectors::Selectors;
use pilotfish_config::networking::DestinationRule;
use pilotfish_model::{Hostname, Labels, Namespace, ServiceKey, label_subset};
use std::sync::Arc;

/// The rules for a service, as a client of a namespace sees them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DestinationRulesFor {
    /// The namespace of the client.
    pub client: Namespace,
    pub service: ServiceKey,
}

impl DestinationRulesFor {
    /// The question of one client and service.
    #[must_use]
    pub(crate) fn new(client: &Namespace, service: ServiceKey) -> Self {
        Self { client: client.clone(), service }
    }
}

/// The answer: several rules only where some have a workload selector or are exported differently.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DestinationRules {
    list: Vec<Arc<MergedDestinationRule>>,
    client: Namespace,
}

impl DestinationRules {
    /// The rule for traffic out of a proxy with these labels: one that selects it, else the one for all
    /// proxies.
    #[must_use]
    pub(crate) fn outbound(&self, labels: &Labels) -> Option<&Arc<MergedDestinationRule>> {
        let selects = |rule: &&Arc<MergedDestinationRule>| {
            rule.namespace == self.client
                && rule.selector.as_ref().is_some_and(|selector| label_subset(selector, labels))
        };
        self.list.iter().find(selects).or_else(|| self.inbound())
    }

    /// The rules of all clients: several only where some select workloads.
    pub(crate) fn all(&self) -> &[Arc<MergedDestinationRule>] {
        &self.list
    }

    /// The names of the subsets of all rules.
    pub(crate) fn subsets(&self) -> impl Iterator<Item = &str> {
        self.list.iter().flat_map(|rule| &rule.subsets).map(|subset| subset.name.as_str())
    }

    /// The rule for inbound traffic of a proxy: the one without a workload selector.
    #[must_use]
    pub(crate) fn inbound(&self) -> Option<&Arc<MergedDestinationRule>> {
        self.list.iter().rev().find(|rule| rule.selector.is_none())
    }
}

impl Query for DestinationRulesFor {
    type Output = DestinationRules;

    fn compute(&self, cx: &Cx<'_>) -> DestinationRules {
        let root: Namespace = cx.mesh().root_namespace.as_str().into();
        let host = &self.service.hostname;
        let own = cx.get(&DestinationRulesIn(self.client.clone()));
        let local = if self.client == root { own.root_private(host) } else { own.local(host) };
        let found = |list: &[Arc<MergedDestinationRule>]| DestinationRules {
            list: list.to_vec(),
            client: self.client.clone(),
        };
        if let Some(local) = local {
            return found(local);
        }
        for namespace in [&self.service.namespace, &root] {
            if namespace.is_empty() {
                continue;
            }
            let visible = cx.get(&DestinationRulesIn(namespace.clone())).exported(host, &self.client);
            if !visible.is_empty() {
                return found(&visible);
            }
        }
        DestinationRules::default()
    }
}

/// Returns the rule of a client with these labels for a service. Workload selectors that do not match are
/// ignored.
#[must_use]
pub(crate) fn destination_rule_for(
    cx: &Cx<'_>,
    client: &Namespace,
    service: &ServiceKey,
    labels: &Labels,
) -> Option<Arc<MergedDestinationRule>> {
    cx.get(&DestinationRulesFor::new(client, service.clone())).outbound(labels).cloned()
}

/// Returns the labels on which rules depend: those in workload selectors of the namespace that match.
#[must_use]
pub(crate) fn selected_labels(cx: &Cx<'_>, namespace: &Namespace, labels: &Labels) -> Labels {
    Arc::new(cx.get(&SelectorsIn(namespace.clone())).of(labels))
}

/// Returns true if a rule for the host has a workload selector for clients of the namespace. Such a rule
/// applies in its own namespace only.
#[must_use]
pub(crate) fn any_selects_clients(cx: &Cx<'_>, client: &Namespace, host: &Hostname) -> bool {
    !cx.get(&SelectorsIn(client.clone())).is_empty()
        && cx.get(&DestinationRulesIn(client.clone())).any_selects_clients(host)
}

/// The workload selectors of a namespace's rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SelectorsIn(pub Namespace);

impl Query for SelectorsIn {
    type Output = Selectors;

    fn compute(&self, cx: &Cx<'_>) -> Selectors {
        let mut selectors = Selectors::default();
        for rule in cx.objects_in::<DestinationRule>(&self.0) {
            selectors.extend(rule.workload_selector.as_ref().map(|selector| &selector.match_labels));
        }
        selectors
    }
}

#[cfg(test)]
mod tests;
