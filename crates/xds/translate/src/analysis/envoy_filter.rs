//! EnvoyFilters: operations without effect, or with an uncertain one.

use super::Code;
use super::finding::Report;
use super::policies::{check_selector, check_target};
use pilotfish_config::networking::{ApplyTo, EnvoyFilter, PatchOperation};

/// Checks the selector, the target references and the patches of an EnvoyFilter.
pub(super) fn check(report: &mut Report<'_, '_>, filter: &EnvoyFilter) {
    if let Some(selector) = &filter.workload_selector {
        let path = "spec.workloadSelector.labels";
        check_selector(report, path, &selector.labels, Code::NoMatchingWorkloadsFound);
    }
    for target in &filter.target_refs {
        check_target(report, target);
    }
    for (index, patch) in filter.config_patches.iter().enumerate() {
        let Some(operation) = patch.patch.as_ref().map(|patch| patch.operation) else { continue };
        let proxy = patch.r#match.as_ref().and_then(|matches| matches.proxy.as_ref());
        let has_version = proxy.is_some_and(|proxy| !proxy.proxy_version.is_empty());
        let path = format!("spec.configPatches[{index}].patch.operation");
        if let Some(message) = does_nothing(operation, patch.apply_to) {
            let code = match operation {
                PatchOperation::Replace => Code::EnvoyFilterUsesReplaceOperationIncorrectly,
                PatchOperation::Add => Code::EnvoyFilterUsesAddOperationIncorrectly,
                _ => Code::EnvoyFilterUsesRemoveOperationIncorrectly,
            };
            report.add(code, path, message);
        } else if filter.priority == 0 && is_relative(operation) {
            let code = match has_version {
                true => Code::EnvoyFilterUsesRelativeOperationWithProxyVersion,
                false => Code::EnvoyFilterUsesRelativeOperation,
            };
            let message =
                "it depends on what other patches have done; those of the same priority come by age and name";
            report.add_with_hint(code, path, message, Some("set spec.priority".to_owned()));
        }
    }
}

/// Returns the reason why an operation has no effect on such a target.
fn does_nothing(operation: PatchOperation, apply_to: ApplyTo) -> Option<&'static str> {
    match (operation, apply_to) {
        // Istio supports it for more targets than its analysis knows.
        (
            PatchOperation::Replace,
            ApplyTo::NetworkFilter | ApplyTo::HttpFilter | ApplyTo::ListenerFilter | ApplyTo::VirtualHost,
        ) => None,
        (PatchOperation::Replace, _) => {
            Some("REPLACE does nothing here: only filters and virtual hosts are replaced")
        }
        (PatchOperation::Add, ApplyTo::RouteConfiguration) => {
            Some("ADD does nothing here: a route configuration has a listener that asks for it")
        }
        (PatchOperation::Remove, ApplyTo::RouteConfiguration) => {
            Some("REMOVE does nothing here: a listener asks for the route configuration")
        }
        _ => None,
    }
}

fn is_relative(operation: PatchOperation) -> bool {
    matches!(operation, PatchOperation::InsertBefore | PatchOperation::InsertAfter | PatchOperation::Replace)
}
