//! Workloads by their labels, for selectors. Labels alone are kept, so Pods that replace equal ones change
//! nothing.

use super::namespaces::Namespaces;
use crate::engine::{Cx, Query};
use pilotfish_config::networking::WorkloadEntry;
use pilotfish_model::{LabelMap, Labels, Namespace, ServiceKey, label_subset};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The different labels of the workloads of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LabelsIn(pub(super) Namespace);

impl Query for LabelsIn {
    type Output = BTreeSet<Labels>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let pods = cx.pods_in(&self.0).into_iter().map(|pod| without_hashes(&pod.labels));
        let entries = cx.objects_in::<WorkloadEntry>(&self.0);
        pods.chain(entries.iter().map(|entry| Arc::new(LabelMap::from(&entry.labels)))).collect()
    }
}

/// Removes the labels that differ between Pods of one workload or change with each rollout; selectors do not
/// use them.
fn without_hashes(labels: &Labels) -> Labels {
    const ROLLOUT: [&str; 3] =
        ["pod-template-hash", "controller-revision-hash", "statefulset.kubernetes.io/pod-name"];
    if ROLLOUT.iter().any(|key| labels.contains_key(key)) {
        return Arc::new(labels.only(|key| !ROLLOUT.contains(&key)));
    }
    labels.clone()
}

/// A label selector as the argument of a query.
pub(super) type Pairs = Arc<BTreeMap<String, String>>;

/// Query for the namespaces in which a selector selects workloads, of one or of all; `None` if no workload is
/// known there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Selected {
    /// The namespace; `None` for all.
    pub(super) namespace: Option<Namespace>,
    pub(super) selector: Pairs,
}

impl Selected {
    pub(super) fn new(namespace: Option<&Namespace>, selector: &BTreeMap<String, String>) -> Self {
        Self { namespace: namespace.cloned(), selector: Arc::new(selector.clone()) }
    }
}

impl Query for Selected {
    type Output = Option<BTreeSet<Namespace>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let namespaces = match &self.namespace {
            Some(namespace) => BTreeSet::from([namespace.clone()]),
            None => cx.get(&Namespaces).all.clone(),
        };
        let mut selected = BTreeSet::new();
        let mut any = false;
        for namespace in namespaces {
            let labels = cx.get(&LabelsIn(namespace.clone()));
            any |= !labels.is_empty();
            if labels.iter().any(|labels| label_subset(&*self.selector, labels)) {
                selected.insert(namespace);
            }
        }
        any.then_some(selected)
    }
}

/// Query for the labels of a workload that two selectors of a namespace select, if there is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SelectedByBoth {
    pub(super) namespace: Namespace,
    pub(super) selectors: [Pairs; 2],
}

impl Query for SelectedByBoth {
    type Output = Option<Labels>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let all = cx.get(&LabelsIn(self.namespace.clone()));
        let both = |labels: &&Labels| self.selectors.iter().all(|selector| label_subset(&**selector, labels));
        all.iter().find(both).cloned()
    }
}

/// True if a subset selects an endpoint of a service; `None` if the service has no endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SubsetSelects {
    pub(super) service: ServiceKey,
    pub(super) labels: Pairs,
}

impl Query for SubsetSelects {
    type Output = Option<bool>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let endpoints = cx.endpoints_of(&self.service)?;
        let mut all = endpoints.iter().peekable();
        all.peek()?;
        Some(all.any(|endpoint| label_subset(&*self.labels, &endpoint.attributes.labels)))
    }
}
