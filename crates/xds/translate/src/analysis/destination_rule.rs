//! DestinationRules: their hosts, ports and subsets.

use super::clients::{AnyWorkload, scopes};
use super::finding::{Report, listed};
use super::hosts::{self, AnyBelow, Lookup};
use super::policies::check_selector;
use super::virtual_service::check_exports;
use super::workloads::{LabelsIn, Selected, SubsetSelects};
use super::{Code, Known, mtls};
use crate::engine::{Cx, Query};
use crate::scope::ServiceIn;
use crate::services::alias;
use pilotfish_config::networking::{DestinationRule, Gateway, TrafficPolicy};
use pilotfish_model::{ExportTo, Hostname, Namespace, ObjectKey, Resolution, Service, ServiceKey, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Checks all references of a DestinationRule.
pub(super) fn check(report: &mut Report<'_, '_>, known: Known, object: &Typed<DestinationRule>) {
    check_exports(report, &object.export_to);
    if let Some(selector) = &object.workload_selector {
        let path = "spec.workloadSelector.matchLabels";
        check_selector(report, path, &selector.match_labels, Code::NoMatchingWorkloadsFound);
    }
    let full = report.cx.domain().qualify(&object.host, object.namespace());
    let Ok(host) = Hostname::parse(&full) else { return };
    check_place(report, object, &host);
    match hosts::look_up(report.cx, known, &host) {
        Lookup::Unknown => {}
        // A rule for a wildcard applies to the hosts that it covers.
        Lookup::Absent(_) if host.is_wildcard() && *report.cx.get(&AnyBelow(host.clone())) => {}
        Lookup::Absent(hint) => {
            let message = format!("no service has the host {:?}", host.as_str());
            report.add_with_hint(Code::UnknownDestinationRuleHost, "spec.host", message, hint);
        }
        Lookup::Services(services) => {
            check_ports(report, object, &services);
            check_subsets(report, object, &services);
            if !host.is_wildcard() {
                mtls::check_rule(report, object, &services);
            }
        }
    }
    if host.is_wildcard() {
        mtls::check_wildcard_rule(report, object, &host);
    }
    let overruled = report.cx.get(&OverruledBy(report.key().clone()));
    for (path, message) in overruled.iter() {
        report.add(Code::SubsetDefinedTwice, path, message.clone());
    }
}

/// Reports a rule that applies to nobody. In a namespace that is neither the service's nor the root
/// namespace, a rule applies only to clients of that namespace. A rule for an alias is not used.
fn check_place(report: &mut Report<'_, '_>, object: &Typed<DestinationRule>, host: &Hostname) {
    let services = hosts::services_of(report.cx, host);
    if services.is_empty() {
        return;
    }
    if services.iter().all(|service| service.resolution == Resolution::Alias) {
        let end = alias::end(report.cx, host).map(|end| format!("write the rule for {end}"));
        let message =
            format!("{host} is an alias, which has no clusters of its own, so the rule is not used");
        return report.add_with_hint(Code::RuleWithoutEffect, "spec.host", message, end);
    }
    let own = object.namespace();
    let is_home = services.iter().any(|service| service.namespace == *own);
    check_imports(report, object, host, is_home);
    if is_home || *own == *report.cx.mesh().root_namespace.as_str() || !*report.cx.get(&AnyWorkload) {
        return;
    }
    // A namespace with services may have proxies that no registry knows.
    if report.cx.get(&LabelsIn(own.clone())).is_empty() && !*report.cx.get(&AnyServiceIn(own.clone())) {
        let homes: BTreeSet<&Namespace> = services.iter().map(|service| &service.namespace).collect();
        let message = format!(
            "{host} is of namespace {}: here the rule is only for clients of namespace {own}, which has none",
            listed(homes)
        );
        let hint = Some("put it into the namespace of the service or of the clients".to_owned());
        report.add_with_hint(Code::RuleWithoutEffect, "spec.host", message, hint);
    }
}

/// Reports a rule for clients of its own namespace whose Sidecars do not import the host.
fn check_imports(
    report: &mut Report<'_, '_>,
    object: &Typed<DestinationRule>,
    host: &Hostname,
    is_home: bool,
) {
    let cx = report.cx;
    let own = object.namespace();
    let default = cx.mesh().default_destination_rule_export_to.clone();
    let written = if object.export_to.is_empty() { &default } else { &object.export_to };
    let export_to = ExportTo::parse(written.iter().map(String::as_str), own);
    let is_private = matches!(&export_to, ExportTo::Namespaces(all) if all.len() == 1 && all.contains(own));
    let is_root = *own == *cx.mesh().root_namespace.as_str();
    if host.is_wildcard() || is_root || is_home && !is_private || *cx.get(&AnyRouterIn(own.clone())) {
        return;
    }
    let mut sidecars = BTreeSet::new();
    for scope in scopes(cx, own) {
        let Some(scope) = scope else { return };
        if Option::is_some(&cx.get(&ServiceIn(scope.clone(), host.clone()))) {
            return;
        }
        sidecars.extend(scope.sidecar.map(|(namespace, name)| format!("{namespace}/{name}")));
    }
    let message = format!(
        "the rule is for clients of namespace {own} alone, and Sidecar {} does not import {host}",
        listed(sidecars)
    );
    let hint = Some("add the host to egress.hosts of the Sidecar".to_owned());
    report.add_with_hint(Code::RuleWithoutEffect, "spec.host", message, hint);
}

/// True if a Gateway selects workloads of a namespace, which Sidecars do not concern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyRouterIn(Namespace);

impl Query for AnyRouterIn {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let selects = |gateway: &Typed<Gateway>| {
            let selected = cx.get(&Selected::new(Some(&self.0), &gateway.selector));
            Option::as_ref(&selected).is_some_and(|selected| !selected.is_empty())
        };
        cx.objects::<Gateway>().any(|gateway| selects(&gateway))
    }
}

/// True if a namespace has any service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyServiceIn(Namespace);

impl Query for AnyServiceIn {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        cx.services().any(|(key, _)| key.namespace == self.0)
    }
}

fn check_ports(report: &mut Report<'_, '_>, object: &DestinationRule, services: &[Arc<Service>]) {
    let ports: BTreeSet<u32> =
        services.iter().flat_map(|service| service.tcp_ports()).map(|port| port.number).collect();
    if ports.is_empty() {
        return;
    }
    let mut check = |at: &str, policy: &TrafficPolicy| {
        for (index, settings) in policy.port_level_settings.iter().enumerate() {
            let Some(port) = &settings.port else { continue };
            if !ports.contains(&port.number) {
                let path = format!("{at}.portLevelSettings[{index}].port.number");
                let message = format!("{} has no port {}, but {}", object.host, port.number, listed(&ports));
                report.absent(path, message, None);
            }
        }
    };
    if let Some(policy) = &object.traffic_policy {
        check("spec.trafficPolicy", policy);
    }
    for (index, subset) in object.subsets.iter().enumerate() {
        if let Some(policy) = &subset.traffic_policy {
            check(&format!("spec.subsets[{index}].trafficPolicy"), policy);
        }
    }
}

fn check_subsets(report: &mut Report<'_, '_>, object: &DestinationRule, services: &[Arc<Service>]) {
    // A service with resolution `NONE` lists no endpoints, so nothing is known about its subsets.
    let listed_ones = services.iter().filter(|service| service.resolution != Resolution::Passthrough);
    let keys: BTreeSet<ServiceKey> = listed_ones.map(|service| service.key()).collect();
    for (index, subset) in object.subsets.iter().enumerate().filter(|(_, subset)| !subset.labels.is_empty()) {
        let labels = Arc::new(subset.labels.clone());
        let selects = |key: &ServiceKey| {
            let query = SubsetSelects { service: key.clone(), labels: labels.clone() };
            *report.cx.get(&query)
        };
        let answers: Vec<bool> = keys.iter().filter_map(selects).collect();
        if !answers.is_empty() && !answers.contains(&true) {
            let pairs = listed(subset.labels.iter().map(|(key, value)| format!("{key}={value}")));
            let message = format!(
                "no endpoint of {} has the labels {pairs} of subset {:?}; requests for it get 503",
                object.host, subset.name
            );
            let path = format!("spec.subsets[{index}].labels");
            report.add(Code::DestinationRuleSubsetNotSelectPods, path, message);
        }
    }
}

/// Parts of a DestinationRule that an earlier one for the same host overrides: paths and messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OverruledBy(ObjectKey);

impl Query for OverruledBy {
    type Output = Vec<(String, String)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let all = cx.get(&OverruledIn(self.0.namespace.clone()));
        all.get(&self.0).cloned().unwrap_or_default()
    }
}

/// Overridden parts of all DestinationRules of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OverruledIn(Namespace);

/// Merge key of a DestinationRule: host, `exportTo` and workload selector.
type Place = (String, Vec<String>, Option<BTreeMap<String, String>>);

impl Query for OverruledIn {
    type Output = BTreeMap<ObjectKey, Vec<(String, String)>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut objects = cx.objects_in::<DestinationRule>(&self.0);
        objects.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        let mut by_place: BTreeMap<Place, Vec<&Typed<DestinationRule>>> = BTreeMap::new();
        for object in &objects {
            let host = cx.domain().qualify(&object.host, &self.0).into_owned();
            let selector = object.workload_selector.as_ref().map(|selector| selector.match_labels.clone());
            by_place.entry((host, audience(object), selector)).or_default().push(object);
        }
        let mut out = BTreeMap::new();
        for rules in by_place.into_values().filter(|rules| rules.len() > 1) {
            overruled(&rules, &mut out);
        }
        out
    }
}

fn audience(object: &Typed<DestinationRule>) -> Vec<String> {
    match ExportTo::parse(object.export_to.iter().map(String::as_str), object.namespace()) {
        ExportTo::Unset => Vec::new(),
        ExportTo::Public => vec!["*".to_owned()],
        ExportTo::Nobody => vec!["~".to_owned()],
        ExportTo::Namespaces(namespaces) => namespaces.iter().map(ToString::to_string).collect(),
    }
}

/// Takes rules in order of precedence: the first definition of each subset is used, and the first policy.
fn overruled(rules: &[&Typed<DestinationRule>], out: &mut BTreeMap<ObjectKey, Vec<(String, String)>>) {
    let mut subsets = BTreeMap::new();
    let mut policy: Option<&Typed<DestinationRule>> = None;
    for rule in rules {
        let mut messages = Vec::new();
        for (index, subset) in rule.subsets.iter().enumerate() {
            match subsets.get(&subset.name) {
                None => drop(subsets.insert(&subset.name, (subset, rule))),
                Some((first, _)) if *first == subset => {}
                Some((_, owner)) => {
                    let path = format!("spec.subsets[{index}]");
                    let message =
                        format!("the subset {:?} is not used: {} has one", subset.name, owner.key());
                    messages.push((path, message));
                }
            }
        }
        match (policy, &rule.traffic_policy) {
            (Some(owner), Some(own)) if owner.traffic_policy.as_ref() != Some(own) => {
                let message = format!("it is not used: {} has one for the same host", owner.key());
                messages.push(("spec.trafficPolicy".to_owned(), message));
            }
            (None, Some(_)) => policy = Some(rule),
            _ => {}
        }
        if !messages.is_empty() {
            out.insert(rule.key().clone(), messages);
        }
    }
}
