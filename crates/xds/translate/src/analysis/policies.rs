//! Policies for workloads: their selectors, target references and providers.

use super::Code;
use super::finding::Report;
use super::gateway::pairs;
use super::namespaces;
use super::workloads::Selected;
use crate::policy::attachment::Policy;
use pilotfish_config::gateway_api::Gateway as ApiGateway;
use pilotfish_config::networking::ServiceEntry;
use pilotfish_config::security::{AuthorizationAction, AuthorizationPolicy};
use pilotfish_config::{PolicyTargetReference, did_you_mean};
use pilotfish_model::{Hostname, Namespace, ServiceKey, Typed};
use std::collections::{BTreeMap, BTreeSet};

/// Checks the target references of a policy, or its selector if it has none.
pub(super) fn check<T: Policy>(report: &mut Report<'_, '_>, policy: &Typed<T>) {
    if policy.is_attached() {
        for target in policy.targets() {
            check_target(report, target);
        }
    } else if let Some(selector) = policy.selector() {
        check_selector(
            report,
            "spec.selector.matchLabels",
            &selector.match_labels,
            Code::NoMatchingWorkloadsFound,
        );
    }
}

/// Reports a selector without workloads, in the object's namespace or, for the root namespace, in all.
pub(super) fn check_selector(
    report: &mut Report<'_, '_>,
    path: &str,
    selector: &BTreeMap<String, String>,
    code: Code,
) {
    if selector.is_empty() {
        return;
    }
    let own = report.namespace();
    let is_root = *own == *report.cx.mesh().root_namespace.as_str();
    let selected = report.cx.get(&Selected::new((!is_root).then_some(own), selector));
    if selected.as_ref().as_ref().is_some_and(BTreeSet::is_empty) {
        let place = if is_root { "in any namespace".to_owned() } else { format!("in namespace {own}") };
        report.add(code, path, format!("no workload {place} has the labels {}", pairs(selector)));
    }
}

/// Reports a target reference to an object that does not exist.
pub(super) fn check_target(report: &mut Report<'_, '_>, target: &PolicyTargetReference) {
    let namespace: Namespace = match target.namespace.as_str() {
        "" => report.namespace().clone(),
        namespace => namespace.into(),
    };
    let cx = report.cx;
    let is_there = match target.kind.as_str() {
        "Gateway" => cx.object::<ApiGateway>(&namespace, &target.name).is_some(),
        "ServiceEntry" => cx.object::<ServiceEntry>(&namespace, &target.name).is_some(),
        "Service" => {
            let host = Hostname::parse(&cx.domain().service(&target.name, &namespace));
            host.is_ok_and(|hostname| {
                cx.services_of(&ServiceKey { hostname, namespace: namespace.clone() }).is_some()
            })
        }
        _ => true,
    };
    if !is_there {
        let hint = match target.kind.as_str() {
            "Gateway" => {
                let all = cx.objects_in::<ApiGateway>(&namespace);
                did_you_mean(&target.name, all.iter().map(|gateway| gateway.name()))
            }
            _ => None,
        };
        let message = format!("there is no {} {:?} in namespace {namespace}", target.kind, target.name);
        report.absent("spec.targetRefs", message, hint);
    }
}

/// Reports a provider that the mesh-wide settings do not have.
pub(super) fn check_provider(report: &mut Report<'_, '_>, path: &str, name: &str) {
    let mesh = report.cx.mesh();
    if name.is_empty() || mesh.extension_provider(name).is_some() {
        return;
    }
    let hint = did_you_mean(name, mesh.extension_providers.iter().map(|provider| provider.name.as_str()));
    let message = format!("the mesh settings have no extensionProviders entry {name:?}");
    report.absent(path, message, hint);
}

/// Checks the provider and the namespaces of an AuthorizationPolicy.
pub(super) fn check_authorization(report: &mut Report<'_, '_>, policy: &AuthorizationPolicy) {
    if let (AuthorizationAction::Custom, Some(provider)) = (policy.action, &policy.provider) {
        check_provider(report, "spec.provider.name", &provider.name);
    }
    for (rule, written) in policy.rules.iter().enumerate() {
        for (from, source) in written.from.iter().enumerate() {
            let Some(source) = &source.source else { continue };
            let fields = [("namespaces", &source.namespaces), ("notNamespaces", &source.not_namespaces)];
            for (field, names) in fields {
                for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.contains('*')) {
                    if let Some(hint) = namespaces::unknown(report.cx, name) {
                        let path = format!("spec.rules[{rule}].from[{from}].source.{field}[{index}]");
                        report.absent(path, format!("there is no namespace {name:?}"), hint);
                    }
                }
            }
        }
    }
}
