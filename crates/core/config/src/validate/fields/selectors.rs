//! Selectors of workloads, objects and namespaces.

use super::names::{each, is_dns_label, quoted};
use crate::networking;
use crate::path::Path;
use crate::problem::Checker;
use crate::{LabelSelector, LabelSelectorOperator, PolicyTargetReference, WorkloadSelector};
use pilotfish_model::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of objects that one policy can be attached to.
const MOST_TARGETS: usize = 16;

/// The three ways to write the targets of a policy.
pub(in crate::validate) struct Targets<'a> {
    pub(in crate::validate) selector: Option<&'a WorkloadSelector>,
    pub(in crate::validate) target_ref: Option<&'a PolicyTargetReference>,
    pub(in crate::validate) target_refs: &'a [PolicyTargetReference],
}

/// Checks that at most one of selector and references is set, and each of them.
pub(in crate::validate) fn targets(targets: &Targets<'_>, at: &Path<'_>, checker: &mut Checker) {
    let set = [targets.selector.is_some(), targets.target_ref.is_some(), !targets.target_refs.is_empty()];
    if set.into_iter().filter(|set| *set).count() > 1 {
        checker.error(at, "only one of selector, targetRef and targetRefs may be set");
    }
    if let Some(selector) = targets.selector {
        workload_selector(selector, &at.field("selector"), checker);
    }
    if let Some(target) = targets.target_ref {
        target_reference(target, &at.field("targetRef"), checker);
    }
    target_references(targets.target_refs, &at.field("targetRefs"), checker);
}

/// Checks references to the objects that a policy is attached to.
pub(in crate::validate) fn target_references(
    targets: &[PolicyTargetReference],
    at: &Path<'_>,
    checker: &mut Checker,
) {
    if targets.len() > MOST_TARGETS {
        checker.error(at, format!("has {} items, at most {MOST_TARGETS} are allowed", targets.len()));
    }
    each(targets, at, checker, target_reference);
}

fn target_reference(target: &PolicyTargetReference, at: &Path<'_>, checker: &mut Checker) {
    if target.name.is_empty() {
        checker.error(&at.field("name"), "must be set");
    }
    if !target.namespace.is_empty() {
        checker
            .error(&at.field("namespace"), "must not be set, a policy is for objects of its own namespace");
    }
    let known = matches!(
        (&*target.group, &*target.kind),
        ("" | "core", "Service")
            | ("networking.istio.io", "ServiceEntry")
            | ("gateway.networking.k8s.io", "Gateway" | "GatewayClass")
    );
    if !known {
        let what = format!("{}/{}", target.group, target.kind);
        let message = format!("a policy cannot be attached to {}", quoted(&what));
        let hint =
            "Service, networking.istio.io/ServiceEntry, gateway.networking.k8s.io/Gateway or GatewayClass";
        checker.error_with_hint(&at.field("kind"), message, hint.to_owned());
    }
}

/// Checks a selector of workloads, which selects every workload if it has no labels.
pub(in crate::validate) fn workload_selector(
    selector: &WorkloadSelector,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    selected_labels(&selector.match_labels, &at.field("matchLabels"), checker);
    warn_of_all(&selector.match_labels, at, checker);
}

/// Checks the older form of a selector, with `labels`.
pub(in crate::validate) fn label_selector(
    selector: &networking::LabelSelector,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    selected_labels(&selector.labels, &at.field("labels"), checker);
    warn_of_all(&selector.labels, at, checker);
}

fn warn_of_all(labels: &BTreeMap<String, String>, at: &Path<'_>, checker: &mut Checker) {
    if labels.is_empty() {
        checker.warning(at, "has no labels, so it selects every workload of the namespace");
    }
}

/// Checks labels that are compared literally.
pub(in crate::validate) fn selected_labels(
    labels: &BTreeMap<String, String>,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    for (key, value) in labels {
        if key.is_empty() {
            checker.error(at, "the key of a label is empty");
        } else if key.contains('*') || value.contains('*') {
            checker.error(&at.key(key), "wildcards are not supported in selectors");
        } else if value.len() > 63 {
            checker.error(&at.key(key), "the value of a label has at most 63 characters");
        }
    }
}

/// Checks a Kubernetes selector with expressions.
pub(in crate::validate) fn kubernetes_selector(
    selector: &LabelSelector,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    super::names::labels(&selector.match_labels, &at.field("matchLabels"), checker);
    each(&selector.match_expressions, &at.field("matchExpressions"), checker, |requirement, at, checker| {
        if !super::names::is_label_key(&requirement.key) {
            checker
                .error(&at.field("key"), format!("{} is not the key of a label", quoted(&requirement.key)));
        }
        let wants = matches!(requirement.operator, LabelSelectorOperator::In | LabelSelectorOperator::NotIn);
        match (wants, requirement.values.is_empty()) {
            (true, true) => checker.error(&at.field("values"), "must be set for In and NotIn"),
            (false, false) => checker.error(&at.field("values"), "must be empty for Exists and DoesNotExist"),
            _ => {}
        }
    });
}

/// Checks the namespaces that see an object: `.`, `*` alone, `~` alone where `nobody` is allowed, or names.
pub(in crate::validate) fn export_to(
    values: &[String],
    nobody: bool,
    meta: &ObjectMeta,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        let at = at.index(index);
        let namespace = if value == "." { meta.key.namespace.as_str() } else { value };
        if !seen.insert(namespace) {
            checker.warning(&at, format!("{} is there twice", quoted(value)));
        } else if value == "~" && !nobody {
            checker.warning(&at, "\"~\" is meant for ServiceEntries only");
        } else if matches!(value.as_str(), "*" | "~") && values.len() > 1 {
            checker.warning(&at, format!("{value:?} is meant to be alone"));
        } else if !matches!(namespace, "*" | "~") && !is_dns_label(namespace) {
            checker.error(&at, format!("{} is not a namespace, \".\" or \"*\"", quoted(value)));
        }
    }
}
