//! Namespaces in configuration.

use super::hosts::HostNames;
use crate::engine::{Cx, Query};
use pilotfish_config::did_you_mean;
use pilotfish_config::kubernetes::Namespace as NamespaceSpec;
use pilotfish_model::Namespace;
use std::collections::BTreeSet;

/// Query for the existing namespaces: those with a Namespace object, a service or a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Namespaces;

/// The answer to [`Namespaces`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct NamespaceNames {
    pub(super) all: BTreeSet<Namespace>,
    /// True if the names come from Namespace objects, so that the set is complete.
    is_certain: bool,
}

impl Query for Namespaces {
    type Output = NamespaceNames;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let objects = cx.objects::<NamespaceSpec>();
        let told: BTreeSet<Namespace> = objects.map(|object| Namespace::from(object.name())).collect();
        let is_certain = !told.is_empty();
        let served = cx.services().map(|(key, _)| key.namespace.clone());
        let all = told.into_iter().chain(served).chain(cx.pod_namespaces());
        NamespaceNames { all: all.collect(), is_certain }
    }
}

/// Checks a namespace that an object refers to: returns `None` if it exists, else the name that was likely
/// meant, if any. Without Namespace objects, as is usual with files, only a likely misspelling is reported.
pub(super) fn unknown(cx: &Cx<'_>, name: &str) -> Option<Option<String>> {
    let names = cx.get(&Namespaces);
    let namespace = Namespace::from(name);
    if names.all.contains(&namespace) || cx.get(&HostNames).has_namespace(&namespace) {
        return None;
    }
    let hint = did_you_mean(name, names.all.iter().map(Namespace::as_str));
    (names.is_certain || hint.is_some()).then_some(hint)
}
