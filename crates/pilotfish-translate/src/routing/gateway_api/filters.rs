//! Filters of HTTPRoute and GRPCRoute.

use super::backends::{BackendView, Malformed, Problem, Referrer, destination};
use crate::engine::Cx;
use crate::routing::ir::REPLACE_PREFIX;
use pilotfish_config::gateway_api::{
    CorsFilter, HeaderFilter, HttpHeader, PathModifier, PathModifierType, RequestMirrorFilter,
    RequestRedirectFilter, RouteFilter, RouteFilterType, UrlRewriteFilter,
};
use pilotfish_config::networking::{
    CorsPolicy, HeaderOperations, Headers, HttpMirrorPolicy, HttpRedirect, HttpRewrite, HttpRoute, Percent,
    RedirectPortSelection, RegexRewrite,
};
use pilotfish_config::{Duration, StringMatch};
use std::collections::BTreeMap;

/// Applies the filters of a rule to its route.
pub(super) fn apply(
    cx: &Cx<'_>,
    filters: &[RouteFilter],
    referrer: Referrer<'_>,
    route: &mut HttpRoute,
) -> Result<(), Malformed> {
    for filter in filters {
        if apply_headers(filter, &mut route.headers) {
            continue;
        }
        match filter.r#type {
            RouteFilterType::RequestRedirect => {
                route.redirect = filter.request_redirect.as_ref().map(redirect);
            }
            RouteFilterType::RequestMirror => {
                if let Some(mirrored) = &filter.request_mirror {
                    route.mirrors.extend(mirror(cx, mirrored, referrer)?);
                }
            }
            RouteFilterType::UrlRewrite => route.rewrite = filter.url_rewrite.as_ref().and_then(rewrite),
            RouteFilterType::Cors => route.cors_policy = filter.cors.as_ref().map(cors),
            other => {
                return Err(Malformed(Problem::filter(format!("filters of type {other:?} are not served"))));
            }
        }
    }
    Ok(())
}

/// Filters that change headers; `false` for others.
pub(super) fn apply_headers(filter: &RouteFilter, headers: &mut Option<Headers>) -> bool {
    match filter.r#type {
        RouteFilterType::RequestHeaderModifier => {
            if let Some(changes) = &filter.request_header_modifier {
                headers.get_or_insert_default().request = Some(operations(changes));
            }
        }
        RouteFilterType::ResponseHeaderModifier => {
            if let Some(changes) = &filter.response_header_modifier {
                headers.get_or_insert_default().response = Some(operations(changes));
            }
        }
        _ => return false,
    }
    true
}

fn operations(changes: &HeaderFilter) -> HeaderOperations {
    // Of several with one name the first counts.
    let map = |list: &[HttpHeader]| {
        let mut map = BTreeMap::new();
        for header in list {
            map.entry(header.name.to_ascii_lowercase()).or_insert_with(|| header.value.clone());
        }
        map
    };
    HeaderOperations { set: map(&changes.set), add: map(&changes.add), remove: changes.remove.clone() }
}

fn redirect(filter: &RequestRedirectFilter) -> HttpRedirect {
    let derived = match (filter.port, &filter.scheme) {
        (Some(_), _) => None,
        (None, Some(_)) => Some(RedirectPortSelection::FromProtocolDefault),
        (None, None) => Some(RedirectPortSelection::FromRequestPort),
    };
    HttpRedirect {
        uri: match &filter.path {
            Some(PathModifier { r#type: PathModifierType::ReplaceFullPath, replace_full_path, .. }) => {
                replace_full_path.clone().unwrap_or_default()
            }
            Some(PathModifier { replace_prefix_match, .. }) => {
                format!("{REPLACE_PREFIX}{}", replace_prefix_match.as_deref().unwrap_or_default())
            }
            None => String::new(),
        },
        authority: filter.hostname.clone().unwrap_or_default(),
        port: filter.port.map(u32::from),
        derive_port: derived,
        scheme: filter.scheme.clone().unwrap_or_default(),
        redirect_code: filter.status_code.map_or(302, u32::from),
    }
}

/// `None` when nothing is changed.
fn rewrite(filter: &UrlRewriteFilter) -> Option<HttpRewrite> {
    let mut out =
        HttpRewrite { authority: filter.hostname.clone().unwrap_or_default(), ..HttpRewrite::default() };
    match &filter.path {
        Some(PathModifier { r#type: PathModifierType::ReplacePrefixMatch, replace_prefix_match, .. }) => {
            let prefix = replace_prefix_match.as_deref().unwrap_or_default();
            // Nothing left means that the prefix is taken away.
            out.uri = match prefix.strip_suffix('/').unwrap_or(prefix) {
                "" => "/".to_owned(),
                prefix => prefix.to_owned(),
            };
        }
        Some(PathModifier { replace_full_path, .. }) => {
            out.uri_regex_rewrite = Some(RegexRewrite {
                r#match: "/.*".to_owned(),
                rewrite: replace_full_path.clone().unwrap_or_default(),
            });
        }
        None => {}
    }
    (out != HttpRewrite::default()).then_some(out)
}

/// `None` for a share of nothing.
fn mirror(
    cx: &Cx<'_>,
    filter: &RequestMirrorFilter,
    referrer: Referrer<'_>,
) -> Result<Option<HttpMirrorPolicy>, Malformed> {
    let fraction = filter.fraction.filter(|fraction| fraction.denominator > 0);
    let share = match (fraction, filter.percent) {
        (Some(fraction), _) => Some(100.0 * f64::from(fraction.numerator) / f64::from(fraction.denominator)),
        (None, percent) => percent.map(f64::from),
    };
    if share.is_some_and(|share| share <= 0.0) {
        return Ok(None);
    }
    let to = destination(cx, &BackendView::from(&filter.backend_ref), referrer)?;
    Ok(Some(HttpMirrorPolicy { destination: Some(to), percentage: share.map(|value| Percent { value }) }))
}

fn cors(filter: &CorsFilter) -> CorsPolicy {
    let origins = filter.allow_origins.iter().filter(|origin| !origin.is_empty());
    let age = u64::try_from(filter.max_age).ok().filter(|age| *age > 0);
    CorsPolicy {
        allow_origins: origins.map(|origin| StringMatch::Exact(origin.clone())).collect(),
        allow_methods: filter.allow_methods.clone(),
        allow_headers: filter.allow_headers.clone(),
        expose_headers: filter.expose_headers.clone(),
        max_age: age.map(Duration::from_secs),
        allow_credentials: filter.allow_credentials.filter(|allowed| *allowed),
        ..CorsPolicy::default()
    }
}
