//! Sidecars and Telemetries, of which a workload uses only one.

use super::finding::{Report, listed};
use super::gateway::pairs;
use super::hosts::services_of;
use super::policies::{check_provider, check_selector};
use super::workloads::{Pairs, SelectedByBoth};
use super::{Code, Completeness, Known, namespaces};
use crate::engine::{Cx, Query};
use pilotfish_config::networking::Sidecar;
use pilotfish_config::telemetry::{ProviderRef, Telemetry};
use pilotfish_model::{Hostname, Kind, Namespace, ObjectKey, Typed};
use std::sync::Arc;

/// Checks all references of a Sidecar.
pub(super) fn check_sidecar(report: &mut Report<'_, '_>, known: Known, object: &Typed<Sidecar>) {
    if let Some(selector) = &object.workload_selector {
        let path = "spec.workloadSelector.labels";
        check_selector(report, path, &selector.labels, Code::ReferencedResourceNotFound);
    }
    check_rivals(
        report,
        Code::MultipleSidecarsWithoutWorkloadSelectors,
        Code::ConflictingSidecarWorkloadSelectors,
    );
    for (index, listener) in object.egress.iter().enumerate() {
        for (at, entry) in listener.hosts.iter().enumerate() {
            let path = format!("spec.egress[{index}].hosts[{at}]");
            check_import(report, known, &path, entry);
        }
    }
}

/// `namespace/host` of an egress listener.
fn check_import(report: &mut Report<'_, '_>, known: Known, path: &str, entry: &str) {
    let Some((namespace, host)) = entry.split_once('/') else { return };
    if matches!(namespace, "*" | "." | "~") || namespace.starts_with('~') {
        return;
    }
    if let Some(hint) = namespaces::unknown(report.cx, namespace) {
        return report.absent(path, format!("there is no namespace {namespace:?}"), hint);
    }
    let Ok(host) = Hostname::parse(host) else { return };
    if host.is_wildcard() || known.services == Completeness::Partly {
        return;
    }
    let services = services_of(report.cx, &host);
    let homes: Vec<&Namespace> = services.iter().map(|service| &service.namespace).collect();
    // VirtualServices are imported by host, too, so that a host without a service may be intended.
    if !homes.is_empty() && !homes.iter().any(|home| home.as_str() == namespace) {
        let message = format!("{host} is not of namespace {namespace}, but of {}", listed(&homes));
        report.absent(path, message, None);
    }
}

/// Checks all references of a Telemetry.
pub(super) fn check_telemetry(report: &mut Report<'_, '_>, object: &Typed<Telemetry>) {
    check_rivals(
        report,
        Code::MultipleTelemetriesWithoutWorkloadSelectors,
        Code::ConflictingTelemetryWorkloadSelectors,
    );
    let mesh = report.cx.mesh();
    let defaults = &mesh.default_providers;
    for (index, tracing) in object.tracing.iter().enumerate() {
        let path = format!("spec.tracing[{index}]");
        check_providers(report, &path, &tracing.providers, !defaults.tracing.is_empty());
    }
    for (index, metrics) in object.metrics.iter().enumerate() {
        let path = format!("spec.metrics[{index}]");
        check_providers(report, &path, &metrics.providers, true);
    }
    for (index, logging) in object.access_logging.iter().enumerate() {
        let path = format!("spec.accessLogging[{index}]");
        let is_off = logging.disabled == Some(true);
        check_providers(report, &path, &logging.providers, is_off || !defaults.access_logging.is_empty());
    }
}

fn check_providers(report: &mut Report<'_, '_>, path: &str, providers: &[ProviderRef], has_default: bool) {
    for (index, provider) in providers.iter().enumerate() {
        check_provider(report, &format!("{path}.providers[{index}].name"), &provider.name);
    }
    if providers.is_empty() && !has_default {
        let message =
            "it names no provider, and the mesh settings have no defaultProviders for it: nothing happens";
        report.add(Code::InvalidTelemetryProvider, path, message);
    }
}

/// Reports other objects for the same workloads.
fn check_rivals(report: &mut Report<'_, '_>, whole: Code, selecting: Code) {
    let rivals = report.cx.get(&RivalsOf(report.key().clone()));
    for (rival, selector, is_before) in rivals.iter() {
        let which = if *is_before { "the other counts" } else { "this one counts" };
        match selector {
            None => {
                let message = format!("{rival} is for the whole namespace, too: {which}");
                report.add(whole, "", message);
            }
            Some(selector) => {
                let message =
                    format!("{rival} selects workloads of this one, too ({}): {which}", pairs(selector));
                report.add(selecting, "", message);
            }
        }
    }
}

/// Query for the Sidecars or Telemetries that share workloads with one: with their selectors, and true if
/// they take precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RivalsOf(ObjectKey);

impl Query for RivalsOf {
    type Output = Vec<(ObjectKey, Option<Pairs>, bool)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let all = cx.get(&SelectorsIn(self.0.kind, self.0.namespace.clone()));
        let Some(at) = all.iter().position(|(key, _)| *key == self.0) else { return Vec::new() };
        let Some((_, own)) = all.get(at) else { return Vec::new() };
        let meets = |other: &Option<Pairs>| match (own, other) {
            (None, None) => true,
            (Some(own), Some(other)) => {
                let selectors = [own.clone(), other.clone()];
                let query = SelectedByBoth { namespace: self.0.namespace.clone(), selectors };
                cx.get(&query).is_some()
            }
            // An object for all workloads and one for some are meant to be combined.
            _ => false,
        };
        let others = all.iter().enumerate().filter(|(other, (_, selector))| *other != at && meets(selector));
        others.map(|(other, (key, selector))| (key.clone(), selector.clone(), other < at)).collect()
    }
}

/// The Sidecars or Telemetries of a namespace with their selectors, in order of precedence. Policies with
/// target references are not included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SelectorsIn(Kind, Namespace);

/// The order of precedence: age, name, namespace.
type Order = (i64, String, String);

impl Query for SelectorsIn {
    type Output = Vec<(ObjectKey, Option<Pairs>)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut found: Vec<(Order, ObjectKey, Option<Pairs>)> = Vec::new();
        let order =
            |(created, name, namespace): (i64, &str, &str)| (created, name.to_owned(), namespace.to_owned());
        match self.0 {
            Kind::Sidecar => {
                for object in cx.objects_in::<Sidecar>(&self.1) {
                    let selector = object.workload_selector.as_ref();
                    let selector = selector.map(|selector| Arc::new(selector.labels.clone()));
                    found.push((order(object.meta().precedence()), object.key().clone(), selector));
                }
            }
            _ => {
                let objects = cx.objects_in::<Telemetry>(&self.1);
                for object in
                    objects.iter().filter(|one| one.target_refs.is_empty() && one.target_ref.is_none())
                {
                    let selector =
                        object.selector.as_ref().filter(|selector| !selector.match_labels.is_empty());
                    let selector = selector.map(|selector| Arc::new(selector.match_labels.clone()));
                    found.push((order(object.meta().precedence()), object.key().clone(), selector));
                }
            }
        }
        found.sort();
        found.into_iter().map(|(_, key, selector)| (key, selector)).collect()
    }
}
