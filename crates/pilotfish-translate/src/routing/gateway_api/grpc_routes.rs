//! GRPCRoute: its rules as routes of a VirtualService, one for each match.

use super::backends::{Malformed, Problem, Referrer};
use super::filters;
use super::http_routes::{one_per_match, route_name, set_backends, values};
use crate::engine::Cx;
use pilotfish_config::StringMatch;
use pilotfish_config::gateway_api::{
    GrpcMethodMatch, GrpcRoute as Route, GrpcRouteMatch, GrpcRouteRule, MatchType, RouteFilterType,
};
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute};
use pilotfish_model::Typed;

/// The routes of a GRPCRoute. One rule that cannot be read costs the whole GRPCRoute.
pub(super) fn routes(
    cx: &Cx<'_>,
    object: &Typed<Route>,
    referrer: Referrer<'_>,
) -> Result<Vec<HttpRoute>, Malformed> {
    let mut out = Vec::new();
    for (position, rule) in object.spec.rules.iter().enumerate() {
        let route = route(cx, object, rule, position, referrer)?;
        let matches: Vec<HttpMatchRequest> = rule.matches.iter().map(request).collect::<Result<_, _>>()?;
        out.extend(one_per_match(&route, matches.into_iter()));
    }
    Ok(out)
}

/// The route of a rule, without its matches.
fn route(
    cx: &Cx<'_>,
    object: &Typed<Route>,
    rule: &GrpcRouteRule,
    position: usize,
    referrer: Referrer<'_>,
) -> Result<HttpRoute, Malformed> {
    let name = route_name(object, rule.name.as_ref(), position);
    let mut route = HttpRoute { name, ..HttpRoute::default() };
    let known = [
        RouteFilterType::RequestHeaderModifier,
        RouteFilterType::ResponseHeaderModifier,
        RouteFilterType::RequestMirror,
    ];
    if let Some(filter) = rule.filters.iter().find(|filter| !known.contains(&filter.r#type)) {
        let message = format!("filters of type {:?} are not served for a GRPCRoute", filter.r#type);
        return Err(Malformed(Problem::filter(message)));
    }
    filters::apply(cx, &rule.filters, referrer, &mut route)?;
    set_backends(cx, &rule.backend_refs, referrer, &mut route)?;
    Ok(route)
}

fn request(condition: &GrpcRouteMatch) -> Result<HttpMatchRequest, Malformed> {
    Ok(HttpMatchRequest {
        uri: condition.method.as_ref().map(path).transpose()?,
        headers: values(&condition.headers),
        ..HttpMatchRequest::default()
    })
}

fn malformed<T>(message: &str) -> Result<T, Malformed> {
    Err(Malformed(Problem::new("InvalidConfiguration", message)))
}

/// A call of `method` of `service` is a request for `/service/method`.
fn path(called: &GrpcMethodMatch) -> Result<StringMatch, Malformed> {
    let has_slash = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('/'));
    if has_slash(&called.service) || has_slash(&called.method) {
        return malformed("a service or method of a match has a slash");
    }
    Ok(match (called.r#type, &called.service, &called.method) {
        (_, None, None) => return malformed("a match of methods names neither service nor method"),
        (_, None, Some(method)) => StringMatch::Regex(format!("/[^/]+/{method}")),
        (MatchType::Exact, Some(service), None) => StringMatch::Prefix(format!("/{service}/")),
        (MatchType::Exact, Some(service), Some(method)) => StringMatch::Exact(format!("/{service}/{method}")),
        (MatchType::RegularExpression, Some(service), None) => StringMatch::Regex(format!("/{service}/.+")),
        (MatchType::RegularExpression, Some(service), Some(method)) => {
            StringMatch::Regex(format!("/{service}/{method}"))
        }
    })
}
