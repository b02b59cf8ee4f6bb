//! Filters of HTTPRoute and GRPCRoute.

use super::backends::{self, BackendView, Malformed, Problem, Referrer};
use crate::engine::Cx;
use pilotfish_config::gateway_api::{
    CorsFilter, HeaderFilter, HttpHeader, PathModifier, PathModifierType, RequestMirrorFilter,
    RequestRedirectFilter, RouteFilter, RouteFilterType, UrlRewriteFilter,
};
use pilotfish_config::networking::{
    CorsPolicy, HeaderOperations, Headers, HttpMirrorPolicy, HttpRedirect, HttpRewrite, HttpRoute, Percent,
    RedirectPortSelection, RegexRewrite, UnmatchedPreflights,
};
use pilotfish_config::{Duration, StringMatch};
use pilotfish_model::Kind;
use std::collections::BTreeMap;

/// Expression for the origin `*` of a CORS filter: a scheme and an authority, without a path.
const ANY_ORIGIN: &str = r"^[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+$";

/// Applies the filters of a rule to its route.
pub(super) fn apply(
    cx: &Cx<'_>,
    filters: &[RouteFilter],
    referrer: Referrer<'_>,
    route: &mut HttpRoute,
) -> Result<(), Malformed> {
    // A GRPCRoute has only filters of headers and mirrors.
    let for_requests = referrer.kind != Kind::GrpcRoute;
    for filter in filters {
        if apply_headers(filter, &mut route.headers) {
            continue;
        }
        match filter.r#type {
            RouteFilterType::RequestRedirect if for_requests => {
                route.redirect = filter.request_redirect.as_ref().map(redirect);
            }
            RouteFilterType::RequestMirror => {
                if let Some(mirrored) = &filter.request_mirror {
                    route.mirrors.extend(mirror(cx, mirrored, referrer)?);
                }
            }
            RouteFilterType::UrlRewrite if for_requests => {
                route.rewrite = filter.url_rewrite.as_ref().and_then(rewrite);
            }
            RouteFilterType::Cors if for_requests => route.cors_policy = filter.cors.as_ref().map(cors),
            other => {
                let message = format!("filters of type {other:?} are not served for {}s", referrer.kind);
                return Err(Malformed(Problem::filter(message)));
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
            _ => String::new(),
        },
        prefix_rewrite: match &filter.path {
            Some(PathModifier {
                r#type: PathModifierType::ReplacePrefixMatch, replace_prefix_match, ..
            }) => Some(replace_prefix_match.clone().unwrap_or_default()),
            _ => None,
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

/// `None` for a share of nothing, and in an HTTPRoute for a backend that cannot be used or is not there: the
/// route is served without this mirror, and its status says why. A GRPCRoute with such a mirror is not
/// served.
fn mirror(
    cx: &Cx<'_>,
    filter: &RequestMirrorFilter,
    referrer: Referrer<'_>,
) -> Result<Option<HttpMirrorPolicy>, Malformed> {
    let to = match backends::present(cx, &BackendView::from(&filter.backend_ref), referrer) {
        Ok(to) => to,
        Err(problem) if referrer.kind == Kind::GrpcRoute => return Err(Malformed(problem)),
        Err(_) => return Ok(None),
    };
    let fraction = filter.fraction.filter(|fraction| fraction.denominator > 0);
    let share = match (fraction, filter.percent) {
        (Some(fraction), _) => Some(100.0 * f64::from(fraction.numerator) / f64::from(fraction.denominator)),
        (None, percent) => percent.map(f64::from),
    };
    if share.is_some_and(|share| share <= 0.0) {
        return Ok(None);
    }
    Ok(Some(HttpMirrorPolicy { destination: Some(to), percentage: share.map(|value| Percent { value }) }))
}

fn cors(filter: &CorsFilter) -> CorsPolicy {
    let origins = filter.allow_origins.iter().filter(|origin| !origin.is_empty());
    let age = u64::try_from(filter.max_age).ok().filter(|age| *age > 0);
    CorsPolicy {
        allow_origins: origins.map(|origin| allowed(origin)).collect(),
        allow_methods: filter.allow_methods.clone(),
        allow_headers: filter.allow_headers.clone(),
        expose_headers: filter.expose_headers.clone(),
        max_age: age.map(Duration::from_secs),
        allow_credentials: filter.allow_credentials.filter(|allowed| *allowed),
        unmatched_preflights: UnmatchedPreflights::Ignore,
        ..CorsPolicy::default()
    }
}

/// Matcher of the origins that an entry of a CORS filter allows. A `*` stands for any text.
fn allowed(origin: &str) -> StringMatch {
    match origin.split_once('*') {
        None => StringMatch::Exact(origin.to_owned()),
        Some(("", "")) => StringMatch::Regex(ANY_ORIGIN.to_owned()),
        Some((prefix, "")) => StringMatch::Prefix(prefix.to_owned()),
        Some(_) => {
            let parts: Vec<String> = origin.split('*').map(quoted).collect();
            StringMatch::Regex(format!("^{}$", parts.join(".*")))
        }
    }
}

/// The text as an expression that matches it alone.
fn quoted(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_with_stars_become_prefixes_or_expressions() {
        let (exact, prefix, regex) = (StringMatch::Exact, StringMatch::Prefix, StringMatch::Regex);
        for (origin, expected) in [
            ("https://app.example:8443", exact("https://app.example:8443".into())),
            ("*", regex(ANY_ORIGIN.into())),
            ("http://*", prefix("http://".into())),
            ("https://app.example:*", prefix("https://app.example:".into())),
            ("*.example", regex(r"^.*\.example$".into())),
            ("https://*.a-b.example", regex(r"^https://.*\.a-b\.example$".into())),
            ("https://*.example:*", regex(r"^https://.*\.example:.*$".into())),
            ("**", regex("^.*.*$".into())),
            ("https://a+b.*(c)", regex(r"^https://a\+b\..*\(c\)$".into())),
        ] {
            assert_eq!(allowed(origin), expected, "{origin}");
            if let StringMatch::Regex(text) = allowed(origin) {
                assert!(regex::Regex::new(&text).is_ok(), "{text}");
            }
        }
    }

    #[test]
    fn any_origin_has_a_scheme_and_no_path() {
        let any = regex::Regex::new(ANY_ORIGIN).unwrap();
        for (origin, fits) in [
            ("https://a.example", true),
            ("app+x://a:1", true),
            ("null", false),
            ("https://", false),
            ("https://a/b", false),
        ] {
            assert_eq!(any.is_match(origin), fits, "{origin}");
        }
    }

    #[test]
    fn a_cors_filter_answers_preflights_of_other_origins_itself() {
        let filter = CorsFilter { allow_origins: vec![String::new(), "a".into()], ..CorsFilter::default() };
        let policy = cors(&filter);
        assert_eq!(policy.allow_origins, [StringMatch::Exact("a".into())]);
        assert_eq!(policy.unmatched_preflights, UnmatchedPreflights::Ignore);
    }
}
