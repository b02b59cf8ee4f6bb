//! Conditions on HTTP requests in a VirtualService.

use crate::StringMatch;
use crate::networking::HttpMatchRequest;
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::quoted;
use crate::validate::fields::values::{self, is_header_name};
use std::collections::BTreeMap;

pub(super) fn check(value: &HttpMatchRequest, for_gateways: bool, at: &Path<'_>, checker: &mut Checker) {
    let texts = [
        ("uri", &value.uri),
        ("scheme", &value.scheme),
        ("method", &value.method),
        ("authority", &value.authority),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            values::string_match(text, &at.field(field), checker);
        }
    }
    headers(&value.headers, for_gateways, &at.field("headers"), checker);
    headers(&value.without_headers, for_gateways, &at.field("withoutHeaders"), checker);
    let parameters = at.field("queryParams");
    for (name, value) in &value.query_params {
        let at = parameters.key(name);
        if name.is_empty() {
            checker.error(&at, "the name of a query parameter is empty");
        }
        values::value_match(value, &at, checker);
    }
}

fn headers(
    headers: &BTreeMap<String, StringMatch>,
    for_gateways: bool,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    for (name, value) in headers {
        let at = at.key(name);
        if is_claim(name) {
            if !for_gateways {
                checker.error(&at, "a route by the claims of a token is for gateways only");
            }
        } else if name.is_empty() {
            checker.error(&at, "the name of a header is empty");
        } else if !is_header_name(name) && !PSEUDO_HEADERS.contains(&name.as_str()) {
            checker.error(&at, format!("{} is not the name of a header", quoted(name)));
        }
        values::value_match(value, &at, checker);
    }
}

/// Pseudo-headers, which Envoy matches like the headers of a request.
const PSEUDO_HEADERS: [&str; 4] = [":authority", ":method", ":path", ":scheme"];

/// True if the header name refers to a token's claim: `@request.auth.claims.sub`,
/// `@request.auth.claims[sub]`.
fn is_claim(name: &str) -> bool {
    const CLAIMS: &str = "@request.auth.claims";
    let Some((prefix, claim)) = name.split_at_checked(CLAIMS.len()) else { return false };
    let nested = claim.strip_prefix('[').and_then(|claim| claim.strip_suffix(']'));
    let named = claim.strip_prefix('.').or(nested);
    prefix.eq_ignore_ascii_case(CLAIMS) && named.is_some_and(|claim| !claim.is_empty())
}
