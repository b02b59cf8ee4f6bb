//! Workloads that require or do not support mutual TLS, compared with the clusters of their clients.
//!
//! Only endpoints whose proxy terminates mutual TLS are examined. Clients of the service's own namespace
//! represent all.

use super::Code;
use super::finding::{Report, listed};
use crate::engine::{Cx, Query};
use crate::policy::destination_rule::{DestinationRulesFor, Policy};
use crate::policy::peer_authentication::{MtlsMode, PeerAuthenticationsOf};
use pilotfish_config::networking::{ClientTlsMode, DestinationRule, TrafficPolicy};
use pilotfish_config::security::PeerAuthentication;
use pilotfish_model::{
    Endpoint, Hostname, LabelMap, Namespace, Origin, Port, Service, ServiceKey, TlsMode, Typed, label_subset,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Query for the services of a namespace to which clients send plaintext although an endpoint requires mutual
/// TLS, by the policy that requires it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlaintextToStrict(Namespace);

impl Query for PlaintextToStrict {
    type Output = BTreeMap<Origin, BTreeSet<String>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let policies = cx.get(&PeerAuthenticationsOf(self.0.clone()));
        let mut found = BTreeMap::<_, BTreeSet<String>>::new();
        let is_automatic = cx.mesh().enable_auto_mtls != Some(false);
        if is_automatic && policies.stated != Some(MtlsMode::Disable) {
            return found;
        }
        let own = cx.services().filter(|(key, _)| key.namespace == self.0);
        for (key, service) in own.flat_map(|(key, services)| services.iter().map(move |one| (key, one))) {
            let rules = cx.get(&DestinationRulesFor::new(&self.0, key.clone()));
            let rule = rules.inbound().cloned();
            each_endpoint(cx, service, |port, endpoint| {
                let policy = rule.as_deref().map_or_else(Policy::default, |rule| rule.policy(port.number));
                let labels = &endpoint.attributes.labels;
                if policy.tls.is_none()
                    && policies.port(labels, endpoint.port) == MtlsMode::Strict
                    && let Some(origin) = policies.provenance_of(labels).pop()
                {
                    found.entry(origin).or_default().insert(format!("{}:{}", service.hostname, port.number));
                }
            });
        }
        found
    }
}

/// Calls `f` for the endpoints of a service whose proxy terminates mutual TLS, with their ports.
fn each_endpoint(cx: &Cx<'_>, service: &Service, mut f: impl FnMut(&Port, &Endpoint)) {
    let key = service.key();
    let Some(endpoints) = cx.endpoints_of(&key).filter(|_| !service.mesh_external) else { return };
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.attributes.tls_mode == TlsMode::Istio) {
        let ports = service.tcp_ports().filter(|port| endpoint.is_of_port(port));
        ports.for_each(|port| f(port, endpoint));
    }
}

/// Reports clients that send plaintext to workloads for which the policy requires mutual TLS.
pub(super) fn check_policy(report: &mut Report<'_, '_>, policy: &Typed<PeerAuthentication>) {
    let query = PlaintextToStrict(report.namespace().clone());
    let all = report.cx.get(&query);
    let own = crate::engine::reference(policy);
    let Some(services) = all.get(&own) else { return };
    let reason = match report.cx.mesh().enable_auto_mtls {
        Some(false) => "enableAutoMtls is false",
        _ => "the policy of the mesh or namespace is DISABLE",
    };
    let message = format!(
        "the workloads require mutual TLS, but clients of {} send plaintext, as {reason}: connections are \
         refused",
        listed(services)
    );
    let hint = "set mode ISTIO_MUTUAL in a DestinationRule of the service, or PERMISSIVE for the namespace";
    report.add_with_hint(Code::MutualTlsDisagrees, "spec", message, Some(hint.to_owned()));
}

/// The services below a wildcard host for which a rule is the one that counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DecidedBy {
    rule: Origin,
    host: Hostname,
    /// The namespace of the clients; `None` for those of the services' own namespaces.
    client: Option<Namespace>,
}

impl Query for DecidedBy {
    type Output = Vec<Arc<Service>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let below = cx.services().filter(|(key, _)| key.hostname.is_subset_of(&self.host));
        let is_decided = |key: &ServiceKey| {
            let client = self.client.as_ref().unwrap_or(&key.namespace);
            let rules = cx.get(&DestinationRulesFor::new(client, key.clone()));
            rules.all().iter().any(|rule| rule.provenance.contains(&self.rule))
        };
        below.filter(|(key, _)| is_decided(key)).flat_map(|(_, services)| services.iter().cloned()).collect()
    }
}

/// The same as [`check_rule`] for a rule of a wildcard host.
pub(super) fn check_wildcard_rule(
    report: &mut Report<'_, '_>,
    object: &Typed<DestinationRule>,
    host: &Hostname,
) {
    let subsets = object.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
    if !object.traffic_policy.iter().chain(subsets).any(has_tls) {
        return;
    }
    let own = object.namespace();
    let is_root = *own == *report.cx.mesh().root_namespace.as_str();
    let rule = crate::engine::reference(object);
    let query = DecidedBy { rule, host: host.clone(), client: (!is_root).then(|| own.clone()) };
    let services = report.cx.get(&query);
    check_rule(report, object, &services);
}

fn has_tls(policy: &TrafficPolicy) -> bool {
    policy.tls.is_some() || policy.port_level_settings.iter().any(|port| port.tls.is_some())
}

/// Reports TLS modes of a DestinationRule with which endpoints refuse connections.
pub(super) fn check_rule(
    report: &mut Report<'_, '_>,
    object: &Typed<DestinationRule>,
    services: &[Arc<Service>],
) {
    let nothing = BTreeMap::new();
    let whole =
        object.traffic_policy.iter().map(|policy| ("spec.trafficPolicy".to_owned(), &nothing, policy));
    let subsets = object.subsets.iter().enumerate().filter_map(|(index, subset)| {
        let policy = subset.traffic_policy.as_ref()?;
        Some((format!("spec.subsets[{index}].trafficPolicy"), &subset.labels, policy))
    });
    for (path, labels, policy) in whole.chain(subsets) {
        let refused = services.iter().find_map(|service| refused(report.cx, service, labels, policy));
        if let Some(message) = refused {
            report.add(Code::MutualTlsDisagrees, format!("{path}.tls.mode"), message);
        }
    }
}

/// Returns the reason why an endpoint with these labels refuses connections under a policy.
fn refused(
    cx: &Cx<'_>,
    service: &Service,
    wanted: &BTreeMap<String, String>,
    policy: &TrafficPolicy,
) -> Option<String> {
    let mut found = None;
    if !has_tls(policy) {
        return found;
    }
    each_endpoint(cx, service, |port, endpoint| {
        let labels: &LabelMap = &endpoint.attributes.labels;
        let Some(tls) = Policy::of(policy, port.number).tls.filter(|tls| !tls.closed) else { return };
        if found.is_some() || !label_subset(wanted, labels) {
            return;
        }
        let namespace = match endpoint.attributes.namespace.is_empty() {
            true => &service.namespace,
            false => &endpoint.attributes.namespace,
        };
        let policies = cx.get(&PeerAuthenticationsOf(namespace.clone()));
        let required = policies.port(labels, endpoint.port);
        let by = policies.provenance_of(labels).pop().map(|by| format!(" by {by}")).unwrap_or_default();
        let is_mutual = matches!(tls.mode, ClientTlsMode::IstioMutual | ClientTlsMode::Mutual);
        let (host, number) = (&service.hostname, port.number);
        found = match (required, is_mutual) {
            (MtlsMode::Strict, false) => Some(format!(
                "workloads of {host} require mutual TLS on port {number}{by}: they refuse these connections"
            )),
            (MtlsMode::Disable, true) if tls.mode == ClientTlsMode::IstioMutual => Some(format!(
                "workloads of {host} take plaintext only on port {number}{by}: they do not understand mutual \
                 TLS"
            )),
            _ => None,
        };
    });
    found
}
