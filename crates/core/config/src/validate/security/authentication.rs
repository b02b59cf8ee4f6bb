//! PeerAuthentication and RequestAuthentication.

use crate::path::Path;
use crate::problem::Checker;
use crate::security::{JwtRule, PeerAuthentication, RequestAuthentication};
use crate::validate::fields::names::{self, each, quoted};
use crate::validate::fields::selectors::{self, Targets};
use crate::validate::fields::values::{at_most_one, duration, header_name, one_line, url_scheme};
use pilotfish_model::ObjectMeta;

pub(in crate::validate) fn check_peer(
    policy: &PeerAuthentication,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    if let Some(selector) = &policy.selector {
        selectors::workload_selector(selector, &at.field("selector"), checker);
    }
    let ports = at.field("portLevelMtls");
    let selects = policy.selector.as_ref().is_some_and(|selector| !selector.match_labels.is_empty());
    if !policy.port_level_mtls.is_empty() && !selects {
        checker.error(&ports, "needs a selector with matchLabels");
    }
    for port in policy.port_level_mtls.keys() {
        names::port(*port, &ports.key(&port.to_string()), checker);
    }
}

pub(in crate::validate) fn check_request(
    policy: &RequestAuthentication,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let targets = Targets {
        selector: policy.selector.as_ref(),
        target_ref: policy.target_ref.as_ref(),
        target_refs: &policy.target_refs,
    };
    selectors::targets(&targets, at, checker);
    each(&policy.jwt_rules, &at.field("jwtRules"), checker, jwt_rule);
}

pub(in crate::validate) fn jwt_rule(rule: &JwtRule, at: &Path<'_>, checker: &mut Checker) {
    tokens(rule, at, checker);
    at_most_one(&[("jwks", !rule.jwks.is_empty()), ("jwksUri", !rule.jwks_uri.is_empty())], at, checker);
    if !rule.jwks_uri.is_empty() && !matches!(url_scheme(&rule.jwks_uri).as_deref(), Some("http" | "https")) {
        let message = format!("{} is not a URL with http or https", quoted(&rule.jwks_uri));
        checker.error(&at.field("jwksUri"), message);
    }
    if !rule.jwks.is_empty() && !is_key_set(&rule.jwks) {
        checker.error(&at.field("jwks"), "is not a set of JSON web keys");
    }
    no_empty("audiences", &rule.audiences, at, checker);
    no_empty("spaceDelimitedClaims", &rule.space_delimited_claims, at, checker);
    each(&rule.output_claim_to_headers, &at.field("outputClaimToHeaders"), checker, |item, at, checker| {
        if item.claim.is_empty() {
            checker.error(&at.field("claim"), "must be set");
        }
        header_name(&item.header, &at.field("header"), checker);
    });
    duration(rule.timeout, &at.field("timeout"), checker);
}

/// Checks the tokens of the rule: their issuer and location.
pub(in crate::validate) fn tokens(rule: &JwtRule, at: &Path<'_>, checker: &mut Checker) {
    if rule.issuer.is_empty() {
        checker.error(&at.field("issuer"), "must be set");
    }
    each(&rule.from_headers, &at.field("fromHeaders"), checker, |header, at, checker| {
        if header.name.is_empty() {
            checker.error(&at.field("name"), "must be set");
        }
        one_line(&header.prefix, &at.field("prefix"), checker);
    });
    no_empty("fromParams", &rule.from_params, at, checker);
    no_empty("fromCookies", &rule.from_cookies, at, checker);
}

fn no_empty(field: &str, list: &[String], at: &Path<'_>, checker: &mut Checker) {
    each(list, &at.field(field), checker, |item, at, checker| {
        if item.is_empty() {
            checker.error(at, "must not be empty");
        }
    });
}

/// True if the text is a JSON Web Key or a list of them, each with its type and the fields that Envoy needs
/// for it.
fn is_key_set(text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else { return false };
    let is_key = |value: &serde_json::Value| {
        let encoded = |field: &&str| {
            let text = value.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
            let known = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'=');
            !text.is_empty() && text.bytes().all(known)
        };
        match value.get("kty").and_then(serde_json::Value::as_str) {
            Some("RSA") => ["n", "e"].iter().all(encoded),
            Some("EC") => ["x", "y"].iter().all(encoded),
            Some("OKP") => ["x"].iter().all(encoded),
            Some("oct") => ["k"].iter().all(encoded),
            kind => kind.is_some(),
        }
    };
    match value.get("keys") {
        Some(keys) => keys.as_array().is_some_and(|keys| keys.iter().all(is_key)),
        None => is_key(&value),
    }
}
