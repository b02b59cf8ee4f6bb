//! Conditions on requests.

use super::convert::string_matcher;
use crate::routing::RouteDialect;
use pilotfish_config::StringMatch;
use pilotfish_config::networking::HttpMatchRequest;
use pilotfish_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use pilotfish_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, RouteMatch};
use pilotfish_proto::envoy::r#type::matcher::v3::metadata_matcher::PathSegment;
use pilotfish_proto::envoy::r#type::matcher::v3::metadata_matcher::path_segment::Segment;
use pilotfish_proto::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, RegexMatcher, StringMatcher, ValueMatcher, list_matcher,
    value_matcher,
};

/// Prefix of header names that refer to claims of the request's JWT.
const CLAIMS: &str = "@request.auth.claims";

/// The condition of a route; without any, every request.
pub(super) fn route_match(dialect: RouteDialect, request: Option<&HttpMatchRequest>) -> RouteMatch {
    let Some(request) = request else {
        return RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
            ..Default::default()
        };
    };
    let mut out = RouteMatch {
        path_specifier: Some(path(dialect, request.uri.as_ref())),
        case_sensitive: Some(!request.ignore_uri_case),
        ..Default::default()
    };
    for (name, text) in &request.headers {
        add_header(&mut out, name, text, false);
    }
    for (name, text) in &request.without_headers {
        add_header(&mut out, name, text, true);
    }
    out.headers.sort_by(|a, b| a.name.cmp(&b.name));
    let pseudo =
        [(":method", &request.method), (":authority", &request.authority), (":scheme", &request.scheme)];
    for (name, text) in pseudo {
        out.headers.extend(text.as_ref().map(|text| header(name, text)));
    }
    out.query_parameters = request.query_params.iter().map(|(name, text)| parameter(name, text)).collect();
    out
}

/// Returns true if the condition matches every request, so that later routes are unreachable.
pub(super) fn takes_everything(condition: &RouteMatch) -> bool {
    let path = match &condition.path_specifier {
        Some(PathSpecifier::Prefix(path) | PathSpecifier::PathSeparatedPrefix(path)) => path == "/",
        Some(PathSpecifier::SafeRegex(path)) => path.regex == ".*",
        _ => false,
    };
    path && condition.headers.is_empty()
        && condition.query_parameters.is_empty()
        && condition.dynamic_metadata.is_empty()
}

/// Returns true if a condition of a VirtualService matches every request of the clients and ports to which it
/// applies.
pub(crate) fn takes_every_request(request: &HttpMatchRequest) -> bool {
    takes_everything(&route_match(RouteDialect::VirtualService, Some(request)))
}

fn path(dialect: RouteDialect, uri: Option<&StringMatch>) -> PathSpecifier {
    match uri {
        None | Some(StringMatch::Unset) => PathSpecifier::Prefix("/".to_owned()),
        Some(StringMatch::Exact(path)) => PathSpecifier::Path(path.clone()),
        Some(StringMatch::Prefix(prefix)) if dialect.whole_elements() && prefix != "/" => {
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            PathSpecifier::PathSeparatedPrefix(prefix.to_owned())
        }
        Some(StringMatch::Prefix(prefix)) => PathSpecifier::Prefix(prefix.clone()),
        Some(StringMatch::Regex(regex)) => {
            PathSpecifier::SafeRegex(RegexMatcher { regex: regex.clone(), ..Default::default() })
        }
    }
}

fn add_header(out: &mut RouteMatch, name: &str, text: &StringMatch, without: bool) {
    if let Some(mut claim) = claim(name, text) {
        claim.invert = without;
        out.dynamic_metadata.push(claim);
        return;
    }
    let mut matcher = header(name, text);
    if without {
        matcher.invert_match = true;
        // A missing header does not match the value.
        matcher.treat_missing_header_as_empty = !is_presence(text);
    }
    out.headers.push(matcher);
}

fn header(name: &str, text: &StringMatch) -> HeaderMatcher {
    let specifier = match string_matcher(text) {
        Some(matcher) if !is_presence(text) => HeaderMatchSpecifier::StringMatch(matcher),
        _ => HeaderMatchSpecifier::PresentMatch(true),
    };
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(specifier), ..Default::default() }
}

fn parameter(name: &str, text: &StringMatch) -> QueryParameterMatcher {
    let specifier = match string_matcher(text) {
        Some(matcher) if !is_presence(text) => QueryParameterMatchSpecifier::StringMatch(matcher),
        _ => QueryParameterMatchSpecifier::PresentMatch(true),
    };
    QueryParameterMatcher { name: name.to_owned(), query_parameter_match_specifier: Some(specifier) }
}

/// Returns true for an unset match, or a lone `*` (not a valid regular expression), which match if the header
/// is present.
fn is_presence(text: &StringMatch) -> bool {
    match text {
        StringMatch::Unset => true,
        StringMatch::Regex(regex) => regex == "*",
        _ => false,
    }
}

/// A condition on a claim of the request's token: `@request.auth.claims.group` or
/// `@request.auth.claims[a][b]`. The claim may be a text or a list.
fn claim(name: &str, text: &StringMatch) -> Option<MetadataMatcher> {
    let names = claim_names(name)?;
    let matcher = string_matcher(text)?;
    let text = |matcher: StringMatcher| ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::StringMatch(matcher)),
    };
    let list = ListMatcher {
        match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(text(matcher.clone())))),
    };
    let list = ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(list))) };
    let either = OrMatcher { value_matchers: vec![list, text(matcher)] };
    let key = |key: &str| PathSegment { segment: Some(Segment::Key(key.to_owned())) };
    Some(MetadataMatcher {
        filter: "envoy.filters.http.jwt_authn".to_owned(),
        path: std::iter::once("payload").chain(names).map(key).collect(),
        value: Some(ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::OrMatch(either)) }),
        ..Default::default()
    })
}

fn claim_names(name: &str) -> Option<Vec<&str>> {
    let (head, rest) = name.split_at_checked(CLAIMS.len())?;
    if !head.eq_ignore_ascii_case(CLAIMS) {
        return None;
    }
    let names: Vec<&str> = match rest.strip_prefix('.') {
        Some(dotted) => dotted.split('.').collect(),
        None => rest.strip_prefix('[')?.strip_suffix(']')?.split("][").collect(),
    };
    names.iter().all(|name| !name.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::claim_names;

    #[test]
    fn claims_are_named_with_dots_or_brackets() {
        assert_eq!(claim_names("@request.auth.claims.a.b"), Some(vec!["a", "b"]));
        assert_eq!(claim_names("@request.auth.claims[a.b][c]"), Some(vec!["a.b", "c"]));
        assert_eq!(claim_names("@request.auth.claims"), None);
        assert_eq!(claim_names("@request.auth.claims[]"), None);
        assert_eq!(claim_names("x-user"), None);
    }
}
