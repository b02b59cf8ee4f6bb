//! Rules of HTTPRoute and GRPCRoute as routes of a VirtualService, one for each match.

use super::attachment::Attachment;
use super::backends::{BackendView, Malformed, Problem, Referrer, destination, weights};
use super::filters;
use super::redirects::{self, Loop};
use crate::engine::Cx;
use pilotfish_config::StringMatch;
use pilotfish_config::gateway_api::{
    GrpcRoute, GrpcRouteRule, HttpBackendRef, HttpRoute as Route, HttpRouteRule, MatchType, ParentReference,
    RouteFilter, ValueMatch,
};
use pilotfish_config::networking::{HttpDirectResponse, HttpMatchRequest, HttpRoute, HttpRouteDestination};
use pilotfish_model::{KindSpec, Typed};
use std::collections::{BTreeMap, BTreeSet};

/// A kind of route whose rules are for requests.
pub(super) trait RequestRoute: KindSpec {
    type Rule: RequestRule;

    /// Parents that the route names (`parentRefs`).
    fn parents(&self) -> &[ParentReference];
    fn hostnames(&self) -> &[String];
    fn rules(&self) -> &[Self::Rule];
}

/// A rule of such a route.
pub(super) trait RequestRule {
    fn parts(&self) -> RuleParts<'_>;

    /// Its matches; none for all requests.
    fn requests(&self) -> Result<Vec<HttpMatchRequest>, Malformed>;

    /// Sets retries and timeouts, where the kind has them.
    fn limit(&self, _route: &mut HttpRoute) {}
}

/// Parts that rules of every kind have.
pub(super) struct RuleParts<'a> {
    pub(super) name: Option<&'a String>,
    pub(super) filters: &'a [RouteFilter],
    pub(super) backends: &'a [HttpBackendRef],
}

macro_rules! request_route {
    ($route:ty, $rule:ty) => {
        impl RequestRoute for $route {
            type Rule = $rule;

            fn parents(&self) -> &[ParentReference] {
                &self.spec.parent_refs
            }

            fn hostnames(&self) -> &[String] {
                &self.spec.hostnames
            }

            fn rules(&self) -> &[$rule] {
                &self.spec.rules
            }
        }
    };
}

request_route!(Route, HttpRouteRule);
request_route!(GrpcRoute, GrpcRouteRule);

/// The routes of an object. One rule that cannot be read costs the whole object: what is left would not be
/// what was meant. A redirect that leads back to itself wherever the route is attached is refused.
pub(super) fn routes<T: RequestRoute>(
    cx: &Cx<'_>,
    object: &Typed<T>,
    referrer: Referrer<'_>,
    attachments: &[Attachment],
) -> Result<Vec<HttpRoute>, Malformed> {
    let mut out = Vec::new();
    for (position, rule) in object.rules().iter().enumerate() {
        let parts = rule.parts();
        let mut route = HttpRoute { name: route_name(object, parts.name, position), ..HttpRoute::default() };
        filters::apply(cx, parts.filters, referrer, &mut route)?;
        rule.limit(&mut route);
        set_backends(cx, parts.backends, referrer, &mut route)?;
        let requests = rule.requests()?;
        let found = redirects::find(cx, &route, &requests, object.hostnames(), attachments);
        if found == Some(Loop::Everywhere) {
            let message = format!("rules[{position}]: the redirect leads back to itself");
            return Err(Malformed(Problem::filter(message)));
        }
        out.extend(one_per_match(route, requests));
    }
    Ok(out)
}

/// Returns the listeners at which redirects of a route lead back to themselves, by the position of the rule.
/// There are others at which they do not.
pub(super) fn partial_loops<T: RequestRoute>(
    cx: &Cx<'_>,
    object: &Typed<T>,
    attachments: &[Attachment],
) -> Vec<(usize, BTreeSet<String>)> {
    let referrer = Referrer { kind: T::KIND, namespace: object.namespace(), needs_grant: true };
    let mut out = Vec::new();
    for (position, rule) in object.rules().iter().enumerate() {
        let parts = rule.parts();
        if parts.filters.iter().all(|filter| filter.request_redirect.is_none()) {
            continue;
        }
        let mut route = HttpRoute::default();
        let Ok(()) = filters::apply(cx, parts.filters, referrer, &mut route) else { continue };
        let Ok(requests) = rule.requests() else { continue };
        if let Some(Loop::At(places)) =
            redirects::find(cx, &route, &requests, object.hostnames(), attachments)
        {
            out.push((position, places));
        }
    }
    out
}

/// A route for each match of its rule; without any, the one route for all requests.
fn one_per_match(route: HttpRoute, matches: Vec<HttpMatchRequest>) -> Vec<HttpRoute> {
    if matches.is_empty() {
        return vec![route];
    }
    matches.into_iter().map(|request| HttpRoute { r#match: vec![request], ..route.clone() }).collect()
}

/// The name of a route: of its rule, else after the object and the position of the rule in it.
fn route_name<T: KindSpec>(object: &Typed<T>, rule: Option<&String>, position: usize) -> String {
    match rule {
        Some(name) => name.clone(),
        None => format!("{}.{}.{position}", object.namespace(), object.name()),
    }
}

/// Sets the destinations of a route. Without a backend that has a weight, and without a redirect, it responds
/// with 500.
fn set_backends(
    cx: &Cx<'_>,
    backends: &[HttpBackendRef],
    referrer: Referrer<'_>,
    route: &mut HttpRoute,
) -> Result<(), Malformed> {
    let used: Vec<&HttpBackendRef> = backends.iter().filter(|backend| backend.weight > 0).collect();
    if used.is_empty() {
        if route.redirect.is_none() {
            route.direct_response = Some(HttpDirectResponse { status: 500, body: None });
        }
        return Ok(());
    }
    let weights = weights(&used.iter().map(|backend| backend.weight).collect::<Vec<_>>());
    for (backend, weight) in used.into_iter().zip(weights) {
        let mut headers = None;
        for filter in &backend.filters {
            if !filters::apply_headers(filter, &mut headers) {
                let message = format!("filters of type {:?} are not served for a backend", filter.r#type);
                return Err(Malformed(Problem::filter(message)));
            }
        }
        let destination = Some(destination(cx, &BackendView::from(backend), referrer)?);
        route.route.push(HttpRouteDestination { destination, weight, headers });
    }
    Ok(())
}

/// Conditions on named values; of several with one name the first counts.
pub(super) fn values(list: &[ValueMatch]) -> BTreeMap<String, StringMatch> {
    let mut out = BTreeMap::new();
    for value in list {
        let text = match value.r#type {
            MatchType::Exact => StringMatch::Exact(value.value.clone()),
            MatchType::RegularExpression => StringMatch::Regex(value.value.clone()),
        };
        out.entry(value.name.clone()).or_insert(text);
    }
    out
}
