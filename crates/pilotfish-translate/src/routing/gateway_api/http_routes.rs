//! HTTPRoute: its rules as routes of a VirtualService, one for each match.

use super::backends::{BackendView, Malformed, Problem, Referrer, destination, weights};
use super::filters;
use crate::engine::Cx;
use pilotfish_config::StringMatch;
use pilotfish_config::gateway_api::{
    HttpBackendRef, HttpPathMatch, HttpRoute as Route, HttpRouteMatch, HttpRouteRetry, HttpRouteRule,
    MatchType, PathMatchType, ValueMatch,
};
use pilotfish_config::networking::{
    HttpDirectResponse, HttpMatchRequest, HttpRetry, HttpRoute, HttpRouteDestination,
};
use pilotfish_model::Typed;
use std::collections::BTreeMap;

/// The routes of an HTTPRoute. One rule that cannot be read costs the whole HTTPRoute: what is left would not be what was meant.
pub(super) fn routes(
    cx: &Cx<'_>,
    object: &Typed<Route>,
    referrer: Referrer<'_>,
) -> Result<Vec<HttpRoute>, Malformed> {
    let mut out = Vec::new();
    for (position, rule) in object.spec.rules.iter().enumerate() {
        let route = route(cx, object, rule, position, referrer)?;
        out.extend(one_per_match(&route, rule.matches.iter().map(request)));
    }
    Ok(out)
}

/// A route for each match of its rule; without any, the one route for all requests.
pub(super) fn one_per_match(
    route: &HttpRoute,
    matches: impl Iterator<Item = HttpMatchRequest>,
) -> Vec<HttpRoute> {
    let mut routes: Vec<HttpRoute> =
        matches.map(|request| HttpRoute { r#match: vec![request], ..route.clone() }).collect();
    if routes.is_empty() {
        routes.push(route.clone());
    }
    routes
}

/// The name of a route: of its rule, else after the object and the position of the rule in it.
pub(super) fn route_name<T>(object: &Typed<T>, rule: Option<&String>, position: usize) -> String {
    match rule {
        Some(name) => name.clone(),
        None => format!("{}.{}.{position}", object.namespace(), object.name()),
    }
}

/// The route of a rule, without its matches.
fn route(
    cx: &Cx<'_>,
    object: &Typed<Route>,
    rule: &HttpRouteRule,
    position: usize,
    referrer: Referrer<'_>,
) -> Result<HttpRoute, Malformed> {
    let name = route_name(object, rule.name.as_ref(), position);
    let mut route = HttpRoute { name, ..HttpRoute::default() };
    filters::apply(cx, &rule.filters, referrer, &mut route)?;
    route.retries = rule.retry.as_ref().map(retries);
    if let Some(timeouts) = &rule.timeouts {
        route.timeout = timeouts.request;
        match (&mut route.retries, timeouts.backend_request) {
            (Some(retries), Some(limit)) => retries.per_try_timeout = Some(limit),
            (None, Some(limit)) => route.timeout = Some(limit),
            (_, None) => {}
        }
    }
    set_backends(cx, &rule.backend_refs, referrer, &mut route)?;
    Ok(route)
}

/// Where the route leads; without any backend that has a weight, and without a redirect, it answers with 500.
pub(super) fn set_backends(
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

/// Connection errors are retried in any case, then the codes that are listed.
fn retries(retry: &HttpRouteRetry) -> HttpRetry {
    let attempts = retry.attempts.unwrap_or(2);
    let codes = retry.codes.iter().map(ToString::to_string);
    let errors = ["connect-failure", "refused-stream", "unavailable", "cancelled"].map(str::to_owned);
    HttpRetry {
        attempts,
        retry_on: if attempts == 0 {
            String::new()
        } else {
            errors.into_iter().chain(codes).collect::<Vec<_>>().join(",")
        },
        backoff: retry.backoff,
        ..HttpRetry::default()
    }
}

fn request(condition: &HttpRouteMatch) -> HttpMatchRequest {
    HttpMatchRequest {
        uri: Some(path(&condition.path)),
        headers: values(&condition.headers),
        query_params: values(&condition.query_params),
        method: condition.method.clone().map(StringMatch::Exact),
        ..HttpMatchRequest::default()
    }
}

fn path(path: &HttpPathMatch) -> StringMatch {
    let value = &path.value;
    match path.r#type {
        PathMatchType::Exact => StringMatch::Exact(value.clone()),
        PathMatchType::RegularExpression => StringMatch::Regex(value.clone()),
        PathMatchType::PathPrefix if value == "/" => StringMatch::Prefix("/".to_owned()),
        PathMatchType::PathPrefix => StringMatch::Prefix(value.strip_suffix('/').unwrap_or(value).to_owned()),
    }
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
