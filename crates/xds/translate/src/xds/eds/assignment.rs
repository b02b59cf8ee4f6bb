//! The load assignment of one cluster.

use super::client_locality::ClientLocality;
use super::encode::encode;
use super::group::{Group, Host, Member};
use super::locality_lb;
use super::select::{is_sendable, is_wanted};
use super::service_rule::{Ruled, ServiceRule, for_service};
use super::split::{Routed, split};
use crate::engine::{ByContent, Cx, EncodedResource, Query, Shared};
use crate::policy::destination_rule::MergedDestinationRule;
use crate::policy::peer_authentication::{MtlsMode, PeerAuthenticationsOf};
use crate::services::client_endpoints::client_endpoints;
use crate::services::networks::NetworkGatewaysOf;
use pilotfish_config::networking::ClientTlsMode;
use pilotfish_model::{Endpoint, Locality, Origin, PortId, Resolution, Service, ServiceKey, TlsMode};
use pilotfish_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The load assignment of a cluster, for all proxies that have the same rules for the service and whose
/// locality differs in nothing that matters for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AssignmentOf {
    pub(super) name: Arc<str>,
    /// True if the cluster is chosen by SNI: it then has only endpoints with mutual TLS.
    pub(super) sni_dnat: bool,
    pub(super) service: ServiceKey,
    /// The name of the service port.
    pub(super) port: Arc<str>,
    pub(super) rule: ByContent<ServiceRule>,
    pub(super) client_locality: ByContent<ClientLocality>,
    /// Object that the service comes from.
    pub(super) provenance: Origin,
}

/// An encoded load assignment.
#[derive(Debug, PartialEq)]
pub(super) struct Assignment(pub(super) EncodedResource);

impl Query for AssignmentOf {
    type Output = Assignment;

    fn compute(&self, cx: &Cx<'_>) -> Assignment {
        let endpoints = client_endpoints(cx, &self.service);
        let of_port = |endpoint: &&Arc<Endpoint>| {
            endpoint.service_port == self.port && is_sendable(endpoint) && endpoint.is_of(&self.rule.entries)
        };
        let visible = endpoints.iter().flat_map(|all| self.rule.visible(all, &self.client_locality.cluster));
        let chosen = visible.filter(of_port);
        let Grouped { mut groups, provenance } =
            grouped(cx, chosen, &self.rule, &self.client_locality, self.sni_dnat);
        locality_lb::apply(&mut groups, &self.rule.balance, &self.client_locality, true);
        let rules = self.rule.provenance.iter().cloned();
        let provenance = provenance.into_iter().chain(rules).chain([self.provenance.clone()]);
        let provenance = provenance.chain(cx.mesh_origin()).collect();
        let message = encode(&self.name, &groups);
        Assignment(EncodedResource::of_encoded::<ClusterLoadAssignment>(
            self.name.clone(),
            message,
            provenance,
        ))
    }

    fn share(assignment: Assignment, shared: &Shared) -> Assignment {
        Assignment(shared.resource(assignment.0))
    }
}

/// The endpoints that a DNS cluster holds itself, and the objects that they are from. Empty when there are
/// none. Priorities by labels do not apply to subsets.
#[must_use]
pub(crate) fn inline_endpoints(
    cx: &Cx<'_>,
    service: &Service,
    port: u32,
    subset: &str,
    rule: Option<&MergedDestinationRule>,
    client_locality: &ClientLocality,
) -> (Vec<LocalityLbEndpoints>, Vec<Origin>) {
    let Some(port) = service.port(PortId::tcp(port)) else { return Default::default() };
    let ruled = rule.map_or_else(Ruled::default, |rule| Ruled::of(rule, subset, port.number));
    let rule = for_service(cx, service, ruled);
    let key = service.key();
    let endpoints = cx.endpoints_of(&key);
    let chosen = endpoints.iter().flat_map(|all| all.iter());
    let chosen = chosen.filter(|endpoint| endpoint.is_of_port(port) && service.has_endpoint(endpoint));
    // A proxy that takes one answer at a time can have one endpoint.
    let most = if service.resolution == Resolution::DNSRoundRobin { 1 } else { usize::MAX };
    let Grouped { mut groups, provenance } = grouped(cx, chosen.take(most), &rule, client_locality, false);
    locality_lb::apply(&mut groups, &rule.balance, client_locality, subset.is_empty());
    (groups.into_iter().map(Group::into_message).collect(), provenance.into_iter().collect())
}

/// Groups with the objects that their endpoints are from.
pub(super) struct Grouped {
    pub(super) groups: Vec<Group>,
    pub(super) provenance: BTreeSet<Origin>,
}

/// Chooses endpoints, groups them by locality, and routes them over networks.
pub(super) fn grouped<'a>(
    cx: &Cx<'_>,
    endpoints: impl Iterator<Item = &'a Arc<Endpoint>>,
    rule: &ServiceRule,
    client_locality: &ClientLocality,
    only_mtls: bool,
) -> Grouped {
    let gateways = cx.get(&NetworkGatewaysOf);
    let networks = !gateways.is_empty();
    let mut provenance = BTreeSet::new();
    let mut by_locality: BTreeMap<&Locality, (Vec<Member>, Vec<Routed>)> = BTreeMap::new();
    for endpoint in endpoints.filter(|endpoint| is_wanted(endpoint, rule, client_locality, networks)) {
        let mtls = has_mtls(cx, endpoint, rule.tls);
        let member = Member {
            labels: endpoint.attributes.labels.clone(),
            mtls,
            weight: endpoint.effective_weight(),
            host: Host::Workload(endpoint.clone()),
        };
        let (members, routes) = by_locality.entry(&endpoint.attributes.locality).or_default();
        members.push(member);
        routes.push(Routed::of(endpoint));
        if !provenance.contains(&endpoint.attributes.provenance) {
            provenance.insert(endpoint.attributes.provenance.clone());
        }
    }
    let groups = by_locality.into_iter().map(|(locality, (members, routes))| {
        let mut group = Group { locality: locality.clone(), members, ..Group::default() };
        group.refresh_weight();
        if networks {
            group = split(group, &routes, &gateways, client_locality);
        }
        if only_mtls {
            group.members.retain(|member| member.mtls);
            group.refresh_weight();
        }
        group
    });
    Grouped { groups: groups.collect(), provenance }
}

/// True if clients use mutual TLS with an endpoint: by a rule, else by the workload's requirement. False for
/// an endpoint that does not support it.
pub(super) fn has_mtls(cx: &Cx<'_>, endpoint: &Endpoint, stated: Option<ClientTlsMode>) -> bool {
    if endpoint.attributes.tls_mode != TlsMode::Istio {
        return false;
    }
    match stated {
        Some(mode) => mode == ClientTlsMode::IstioMutual,
        None => {
            let policies = cx.get(&PeerAuthenticationsOf(endpoint.attributes.namespace.clone()));
            policies.port(&endpoint.attributes.labels, endpoint.port) != MtlsMode::Disable
        }
    }
}

#[cfg(test)]
mod tests;
