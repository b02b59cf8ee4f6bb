//! The routes of a virtual service, and the route of a service that no virtual service serves.

use super::action::{Destinations, path_of, route_action};
use super::encoded_routes::{EncodedRoutes, RoutesEncoder};
use super::hash_policy::hash_policy;
use super::headers::Operations;
use super::view::RouteFacets;
use super::{cors, fault, matches, redirect, retry};
use crate::engine::{ByContent, Cx, Query, Shared};
use crate::envoy::metadata;
use crate::policy::destination_rule::destination_rule_for;
use crate::routing::{HttpRule, Source, VirtualServiceId, VirtualServiceIr, VirtualServiceOf};
use crate::scope::ServiceIn;
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute};
use pilotfish_model::{Hostname, Origin, ServiceKey};
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_action::{ClusterSpecifier, HashPolicy};
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{Decorator, RetryPolicy, Route, RouteAction, RouteMatch};
use std::sync::Arc;

/// The routes that a virtual service makes for one client and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RoutesOf {
    pub(super) rule: VirtualServiceId,
    pub(super) facets: RouteFacets,
    /// Gateways of the client, sorted.
    pub(super) gateways: Arc<[Arc<str>]>,
    /// The listening port; 0 for all.
    pub(super) port: u32,
    /// True if requests arrive over TLS.
    pub(super) tls: bool,
}

impl Query for RoutesOf {
    type Output = Rules;

    fn compute(&self, cx: &Cx<'_>) -> Rules {
        let rule = cx.get(&VirtualServiceOf(self.rule.clone()));
        let Some(rule) = &*rule else { return Rules::default() };
        let destinations = Destinations::new(cx, &self.facets, &self.rule.namespace, self.port);
        let making = Making { cx, query: self, rule, destinations };
        let routes = making.routes();
        let mut provenance = rule.provenance.clone();
        provenance.extend(making.destinations.provenance());
        Rules { routes, provenance }
    }

    fn share(rules: Rules, shared: &Shared) -> Rules {
        Rules { routes: rules.routes.shared(shared), ..rules }
    }
}

/// The routes that a virtual service makes for a port, and the objects that made them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rules {
    pub(super) routes: EncodedRoutes,
    pub(super) provenance: Vec<Origin>,
}

struct Making<'a, 'c> {
    cx: &'a Cx<'c>,
    query: &'a RoutesOf,
    rule: &'a VirtualServiceIr,
    destinations: Destinations<'a, 'c>,
}

impl Making<'_, '_> {
    /// Returns a route for each condition of each HTTP route, until a route matches every request or the size
    /// limit of a route configuration is exceeded: each condition repeats the whole action.
    fn routes(&self) -> EncodedRoutes {
        let mut routes = RoutesEncoder::default();
        for http in self.rule.http.iter().map(HttpRule::whole) {
            if http.r#match.is_empty() {
                if let Some(route) = self.route(&http, None) {
                    routes.add(&route);
                }
                break;
            }
            for request in &http.r#match {
                let Some(route) = self.route(&http, Some(request)) else { continue };
                if !routes.add(&route) {
                    return routes.finish();
                }
            }
        }
        routes.finish()
    }

    /// Returns `None` if the condition can never match for this client and port.
    fn route(&self, http: &HttpRoute, request: Option<&HttpMatchRequest>) -> Option<Route> {
        let RoutesOf { facets, gateways, port, tls, .. } = self.query;
        let source = Source {
            namespace: facets.scope.namespace.clone(),
            labels: facets.labels.clone(),
            gateways: gateways.clone(),
        };
        if request.is_some_and(|request| request.port != 0 && request.port != *port || !source.fits(request))
        {
            return None;
        }
        let mut route = Route {
            name: name(http, request),
            r#match: Some(matches::route_match(self.rule.dialect, request)),
            metadata: metadata::of_config(&self.rule.config_key()),
            stat_prefix: request.map_or_else(String::new, |request| request.stat_prefix.clone()),
            ..Default::default()
        };
        let operations = Operations::of(http.headers.as_ref());
        let authority = operations.authority.clone();
        operations.add_to(&mut route);
        route.action = match (&http.redirect, &http.direct_response) {
            (Some(to), _) => redirect::redirect(to, *port, *tls, self.rule.dialect, path_of(&route)),
            (None, Some(response)) => Some(redirect::direct_response(response)),
            (None, None) => {
                let retries = self.retries(http);
                route_action(&self.destinations, self.rule.dialect, http, authority, &retries, &mut route)
            }
        };
        route.decorator = Some(Decorator { operation: self.operation(&route), ..Default::default() });
        if let Some(fault) = http.fault.as_ref().and_then(fault::fault) {
            route.typed_per_filter_config.insert(fault::FILTER.to_owned(), fault);
        }
        if let Some(policy) = &http.cors_policy {
            route.typed_per_filter_config.insert(cors::FILTER.to_owned(), cors::cors(policy));
        }
        Some(route)
    }

    /// The retry settings of the route, else of the mesh.
    fn retries(&self, http: &HttpRoute) -> retry::Retries {
        match &http.retries {
            Some(retries) => retry::Retries::of(Some(retries)),
            None => retry::Retries::of(self.cx.mesh().default_http_retry_policy.as_ref()),
        }
    }

    /// Returns the operation name for traces: the only destination of the route, or else the virtual service,
    /// with the port and the path.
    fn operation(&self, route: &Route) -> String {
        let path = match route.r#match.as_ref().and_then(|m| m.path_specifier.as_ref()) {
            Some(PathSpecifier::Prefix(prefix)) => format!("{prefix}*"),
            Some(PathSpecifier::Path(path)) => path.clone(),
            Some(PathSpecifier::SafeRegex(regex)) => regex.regex.clone(),
            _ => "/*".to_owned(),
        };
        let cluster = match &route.action {
            Some(Action::Route(RouteAction {
                cluster_specifier: Some(ClusterSpecifier::Cluster(name)),
                ..
            })) => name.as_str(),
            _ => "",
        };
        let mut parts = cluster.split('|');
        match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(_), Some(port), Some(_), Some(host), None) => format!("{host}:{port}{path}"),
            _ => format!("{}:{}{path}", self.rule.id.name, self.query.port),
        }
    }
}

/// The route's name, with that of the condition.
fn name(http: &HttpRoute, request: Option<&HttpMatchRequest>) -> String {
    match request.map_or("", |request| &request.name) {
        "" => http.name.clone(),
        name => format!("{}.{name}", http.name),
    }
}

/// Query for the hash policy of a service without a virtual service. The route itself is not cached, because
/// there is one for every service and it is cheap to build.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HashingOf {
    pub(super) facets: ByContent<RouteFacets>,
    pub(super) host: Hostname,
    pub(super) port: u32,
}

/// The answer to [`HashingOf`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Hashing {
    policy: Vec<HashPolicy>,
    /// The objects that it comes from.
    pub(super) provenance: Vec<Origin>,
}

impl Query for HashingOf {
    type Output = Hashing;

    fn compute(&self, cx: &Cx<'_>) -> Hashing {
        let Self { facets, host, port } = self;
        let service = cx.get(&ServiceIn(facets.scope.clone(), host.clone()));
        let rule = Option::as_ref(&service).and_then(|service| {
            let key = ServiceKey { hostname: host.clone(), namespace: service.namespace.clone() };
            destination_rule_for(cx, &facets.scope.namespace, &key, &facets.labels)
        });
        let Some(rule) = rule else { return Hashing::default() };
        match rule.consistent_hash(Some(*port), "") {
            Some(hash) => Hashing {
                policy: hash_policy(hash).into_iter().collect(),
                provenance: rule.provenance.clone(),
            },
            None => Hashing::default(),
        }
    }
}

/// The retries of routes that no virtual service made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DefaultRetries;

impl Query for DefaultRetries {
    type Output = Option<RetryPolicy>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        retry::Retries::of(cx.mesh().default_http_retry_policy.as_ref()).policy(false)
    }
}

/// The one route of a service that no virtual service serves.
pub(super) fn default_route(
    host: &Hostname,
    port: u32,
    cluster: String,
    hashing: &Hashing,
    retries: Option<&RetryPolicy>,
) -> Route {
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        timeout: Some(Duration::default()),
        max_grpc_timeout: Some(Duration::default()),
        retry_policy: retries.cloned(),
        hash_policy: hashing.policy.clone(),
        ..Default::default()
    };
    Route {
        name: "default".to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
            ..Default::default()
        }),
        action: Some(Action::Route(action)),
        decorator: Some(Decorator { operation: format!("{host}:{port}/*"), ..Default::default() }),
        ..Default::default()
    }
}
