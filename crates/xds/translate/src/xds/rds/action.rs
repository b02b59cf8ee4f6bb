//! Actions of routes: clusters by weight, rewrites, mirrors, timeouts.

use super::convert::{percent, whole_percent};
use super::hash_policy::hash_policy;
use super::headers::Operations;
use super::path_prefix::{self, PathReplacement};
use super::retry::Retries;
use super::view::RouteFacets;
use crate::engine::Cx;
use crate::envoy::duration;
use crate::policy::destination_rule::{MergedDestinationRule, destination_rule_for};
use crate::proxy::ProxyKind;
use crate::routing::{RouteDialect, destination_cluster};
use crate::scope::{ServiceIn, cluster_host, own_service_seen};
use crate::services::alias;
use pilotfish_config::networking::{Destination, HttpRewrite, HttpRoute, HttpRouteDestination, Percent};
use pilotfish_model::{Hostname, Namespace, Origin, Service};
use pilotfish_proto::envoy::config::core::v3::RuntimeFractionalPercent;
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, ClusterSpecifier, HashPolicy, HostRewriteSpecifier, MaxStreamDuration,
    RequestMirrorPolicy,
};
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use pilotfish_proto::envoy::config::route::v3::weighted_cluster::cluster_weight;
use pilotfish_proto::envoy::config::route::v3::{Route, RouteAction, WeightedCluster};
use std::cell::RefCell;
use std::sync::Arc;

/// Services and hash policies for the destinations of routes.
pub(super) struct Destinations<'a, 'c> {
    cx: &'a Cx<'c>,
    facets: &'a RouteFacets,
    /// The namespace of the rule.
    namespace: &'a Namespace,
    port: u32,
    used: RefCell<Vec<Origin>>,
}

impl<'a, 'c> Destinations<'a, 'c> {
    pub(super) fn new(cx: &'a Cx<'c>, facets: &'a RouteFacets, namespace: &'a Namespace, port: u32) -> Self {
        Self { cx, facets, namespace, port, used: RefCell::default() }
    }

    /// The DestinationRules that were used.
    pub(super) fn provenance(&self) -> Vec<Origin> {
        self.used.borrow().clone()
    }

    /// Returns the host and the service of a destination's host, which may be an alias.
    fn target(&self, host: &str) -> (Arc<str>, Option<Arc<Service>>) {
        alias::behind(self.cx, host, |host| self.service(host))
    }

    /// Returns the service of a host that the client sees. For a router, the service in the rule's own
    /// namespace takes precedence.
    fn service(&self, host: &Hostname) -> Option<Arc<Service>> {
        if self.facets.scope.kind == ProxyKind::Router {
            let router = &self.facets.scope.namespace;
            if let Some(own) = own_service_seen(self.cx, router, self.namespace, host) {
                return Some(own);
            }
        }
        Option::clone(&self.cx.get(&ServiceIn(self.facets.scope.clone(), host.clone())))
    }

    /// Returns the cluster name of a destination. Gateways know every port of a service, sidecars only the
    /// listening port.
    fn cluster(&self, to: &Destination) -> String {
        let (host, service) = self.target(&to.host);
        let written = |host: &str| cluster_host(self.cx, &self.facets.scope, host);
        let knows_all_ports = self.port == 0 || self.facets.scope.kind == ProxyKind::Router;
        let service = service.as_deref().filter(|_| knows_all_ports);
        destination_cluster(to, (&host, service), self.port, written)
    }

    /// Returns the hash policy for requests to a destination, from its DestinationRule.
    fn hash(&self, to: &Destination) -> Option<HashPolicy> {
        let service = self.target(&to.host).1?;
        let key = service.key();
        let rule: Arc<MergedDestinationRule> =
            destination_rule_for(self.cx, &self.facets.scope.namespace, &key, &self.facets.labels)?;
        let hash = rule.consistent_hash(to.port.as_ref().map(|port| port.number), &to.subset)?;
        self.used.borrow_mut().extend(rule.provenance.iter().cloned());
        hash_policy(hash)
    }
}

/// Returns the action of a route that forwards requests. Header operations of a single destination become
/// those of the route.
pub(super) fn route_action(
    destinations: &Destinations<'_, '_>,
    dialect: RouteDialect,
    http: &HttpRoute,
    authority: String,
    retries: &Retries,
    route: &mut Route,
) -> Option<Action> {
    let mut action = RouteAction::default();
    set_timeout(&mut action, http, is_grpc(destinations.facets));
    if dialect == RouteDialect::GatewayApi {
        action.set_cluster_not_found_response_code(ClusterNotFoundResponseCode::InternalServerError);
    }
    let mut authority = authority;
    if let Some(rewrite) = &http.rewrite {
        set_rewrite(&mut action, rewrite, dialect, route);
        if !rewrite.authority.is_empty() {
            authority.clone_from(&rewrite.authority);
        }
    }
    action.request_mirror_policies = mirrors(destinations, http);
    match http.route.as_slice() {
        [single] => set_single(destinations, single, &mut action, &mut authority, retries, route),
        several => set_weighted(destinations, several, &mut action, retries),
    }
    if !authority.is_empty() {
        action.host_rewrite_specifier = Some(HostRewriteSpecifier::HostRewriteLiteral(authority));
        action.append_x_forwarded_host = destinations.facets.forwarded_host;
    }
    Some(Action::Route(action))
}

/// A route without a timeout gets none, instead of Envoy's default.
fn set_timeout(action: &mut RouteAction, http: &HttpRoute, grpc: bool) {
    let timeout = duration(http.timeout.unwrap_or_default());
    action.timeout = Some(timeout);
    if grpc {
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: Some(timeout), ..Default::default() });
    } else {
        action.max_grpc_timeout = Some(timeout);
    }
}

fn set_rewrite(action: &mut RouteAction, rewrite: &HttpRewrite, dialect: RouteDialect, route: &Route) {
    match &rewrite.uri_regex_rewrite {
        Some(rewrite) => {
            action.regex_rewrite = Some(path_prefix::regex(rewrite.r#match.clone(), rewrite.rewrite.clone()));
        }
        None if dialect == RouteDialect::GatewayApi && !rewrite.uri.is_empty() => {
            match PathReplacement::new(path_of(route), &rewrite.uri) {
                PathReplacement::Prefix(prefix) => action.prefix_rewrite = prefix,
                PathReplacement::Regex(regex) => action.regex_rewrite = Some(regex),
            }
        }
        None => action.prefix_rewrite.clone_from(&rewrite.uri),
    }
}

/// The condition on the path of a route.
pub(super) fn path_of(route: &Route) -> Option<&PathSpecifier> {
    route.r#match.as_ref()?.path_specifier.as_ref()
}

fn set_single(
    destinations: &Destinations<'_, '_>,
    single: &HttpRouteDestination,
    action: &mut RouteAction,
    authority: &mut String,
    retries: &Retries,
    route: &mut Route,
) {
    let to = single.destination.clone().unwrap_or_default();
    action.cluster_specifier = Some(ClusterSpecifier::Cluster(destinations.cluster(&to)));
    action.hash_policy = destinations.hash(&to).into_iter().collect();
    // Requests with the same hash key go to the same endpoint, including retries.
    action.retry_policy = retries.policy(!action.hash_policy.is_empty());
    let operations = Operations::of(single.headers.as_ref());
    if authority.is_empty() {
        authority.clone_from(&operations.authority);
    }
    operations.add_to(route);
}

fn set_weighted(
    destinations: &Destinations<'_, '_>,
    several: &[HttpRouteDestination],
    action: &mut RouteAction,
    retries: &Retries,
) {
    let mut clusters = Vec::with_capacity(several.len());
    for part in several.iter().filter(|part| part.weight != 0) {
        let to = part.destination.clone().unwrap_or_default();
        action.hash_policy.extend(destinations.hash(&to));
        let operations = Operations::of(part.headers.as_ref());
        let host = (!operations.authority.is_empty())
            .then(|| cluster_weight::HostRewriteSpecifier::HostRewriteLiteral(operations.authority.clone()));
        clusters.push(ClusterWeight {
            name: destinations.cluster(&to),
            weight: Some(u32::try_from(part.weight).unwrap_or(0)),
            request_headers_to_add: operations.request_add,
            request_headers_to_remove: operations.request_remove,
            response_headers_to_add: operations.response_add,
            response_headers_to_remove: operations.response_remove,
            host_rewrite_specifier: host,
            ..Default::default()
        });
    }
    action.cluster_specifier =
        Some(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..Default::default() }));
    action.retry_policy = retries.policy(false);
}

/// Returns the mirrors with a share above zero.
fn mirrors(destinations: &Destinations<'_, '_>, http: &HttpRoute) -> Vec<RequestMirrorPolicy> {
    let policy = |to: &Destination, share: RuntimeFractionalPercent| RequestMirrorPolicy {
        cluster: destinations.cluster(to),
        runtime_fraction: Some(share),
        trace_sampled: Some(false),
        disable_shadow_host_suffix_append: true,
        ..Default::default()
    };
    let share = match (http.mirror_percentage, http.mirror_percent) {
        (None, Some(share)) => (share > 0).then(|| runtime(whole_percent(share))),
        (share, _) => share_of(share),
    };
    let first = http.mirror.as_ref().and_then(|to| Some(policy(to, share?)));
    let more = http
        .mirrors
        .iter()
        .filter_map(|mirror| Some(policy(mirror.destination.as_ref()?, share_of(mirror.percentage)?)));
    first.into_iter().chain(more).collect()
}

/// Returns the share of mirrored requests: all by default, `None` for zero.
fn share_of(share: Option<Percent>) -> Option<RuntimeFractionalPercent> {
    match share {
        None => Some(runtime(whole_percent(100))),
        Some(share) if share.value > 0.0 => Some(runtime(percent(share))),
        Some(_) => None,
    }
}

fn runtime(share: pilotfish_proto::envoy::r#type::v3::FractionalPercent) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent { default_value: Some(share), ..Default::default() }
}

pub(super) fn is_grpc(facets: &RouteFacets) -> bool {
    facets.scope.kind == ProxyKind::Grpc
}
