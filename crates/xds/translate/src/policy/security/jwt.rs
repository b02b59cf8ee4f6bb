//! RequestAuthentication: tokens are validated if present. AuthorizationPolicies decide if a token is
//! required.

use super::Subject;
use crate::engine::{Cx, reference};
use crate::envoy::{duration, filters};
use crate::policy::provider::visible_service;
use pilotfish_config::security::{JwtPresence, JwtRule, RequestAuthentication};
use pilotfish_model::{Namespace, Origin};
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::{DataSource, HttpUri, data_source, http_uri};
use pilotfish_proto::envoy::config::route::v3::{RouteMatch, route_match};
use pilotfish_proto::envoy::extensions::filters::http::jwt_authn::v3::{
    JwksAsyncFetch, JwtAuthentication, JwtClaimToHeader, JwtHeader, JwtProvider, JwtRequirement,
    JwtRequirementAndList, JwtRequirementOrList, RemoteJwks, RequirementRule,
    jwt_provider::{JwksSourceSpecifier, NormalizePayload},
    jwt_requirement::RequiresType,
    requirement_rule::RequirementType,
};
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use std::collections::{BTreeMap, BTreeSet};

/// The name of the filter, under which other filters find the claims.
pub(super) const FILTER: &str = "envoy.filters.http.jwt_authn";
/// Key of the claims in the metadata of a request.
pub(super) const PAYLOAD: &str = "payload";

/// Timeout of a JWKS fetch, and lifetime of fetched keys.
const FETCH: Duration = Duration { seconds: 5, nanos: 0 };
const KEEP: Duration = Duration { seconds: 300, nanos: 0 };

/// A key set with which no token is valid: a point of the curve P-256 whose private key nobody can know. Its
/// x is the SHA-256 of the text `Pilotfish: a key that nobody has, 0`, so it was not derived from a private
/// key; its y is the smaller one of the two possible values.
const NOBODYS_KEY: &str = concat!(
    r#"{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","#,
    r#""x":"DEN6v5rfw1siaPzRBxHB6apvtnqttWFtOrevhb2WLYg","#,
    r#""y":"LMhbD_zU5-lGBVeeerrPo36gHCvMOBh5bcWsErZ2Nzs"}]}"#
);

/// Returns the filter that validates the tokens of a subject, and the policies that it comes from.
pub(super) fn of(cx: &Cx<'_>, subject: &Subject) -> (Option<HttpFilter>, Vec<Origin>) {
    let mut policies = subject.policies::<RequestAuthentication>(cx);
    let root = cx.mesh().root_namespace.clone();
    // Of two rules for one issuer, that of the own namespace takes precedence.
    policies.sort_by_key(|policy| policy.namespace() == root.as_str());
    let unreadable = JwtRule { closed: true, ..JwtRule::default() };
    let closed = policies.iter().any(|policy| policy.closed);
    let mut written: Vec<(Namespace, &JwtRule)> = policies
        .iter()
        .flat_map(|policy| policy.jwt_rules.iter().map(|rule| (policy.namespace().clone(), rule)))
        .collect();
    written.sort_by(|(_, a), (_, b)| a.issuer.cmp(&b.issuer));
    written.extend(closed.then(|| (subject.namespace.clone(), &unreadable)));
    let rules: Vec<&JwtRule> = written.iter().map(|(_, rule)| *rule).collect();
    if rules.is_empty() {
        return (None, Vec::new());
    }
    let providers: BTreeMap<String, JwtProvider> = written
        .iter()
        .enumerate()
        .map(|(index, (policy, rule))| (name(index), provider(cx, rule, policy, subject)))
        .collect();
    let required = match closed {
        true => named(rules.len() - 1),
        false => requirement(&rules),
    };
    let config = JwtAuthentication {
        providers,
        rules: vec![RequirementRule {
            r#match: Some(RouteMatch {
                path_specifier: Some(route_match::PathSpecifier::Prefix("/".to_owned())),
                ..Default::default()
            }),
            requirement_type: Some(RequirementType::Requires(required)),
        }],
        bypass_cors_preflight: true,
        ..Default::default()
    };
    (Some(filters::http(FILTER, &config)), policies.iter().map(reference).collect())
}

fn name(index: usize) -> String {
    format!("origins-{index}")
}

fn provider(cx: &Cx<'_>, rule: &JwtRule, policy: &Namespace, subject: &Subject) -> JwtProvider {
    let claims = ["permission", "scope"].into_iter().chain(rule.space_delimited_claims.iter().map(|c| &**c));
    let claims: BTreeSet<String> = claims.map(str::to_owned).collect();
    JwtProvider {
        issuer: rule.issuer.clone(),
        audiences: rule.audiences.clone(),
        forward: rule.forward_original_token,
        forward_payload_header: rule.output_payload_to_header.clone(),
        payload_in_metadata: PAYLOAD.to_owned(),
        normalize_payload_in_metadata: Some(NormalizePayload {
            space_delimited_claims: claims.into_iter().collect(),
        }),
        from_headers: rule
            .from_headers
            .iter()
            .map(|header| JwtHeader { name: header.name.clone(), value_prefix: header.prefix.clone() })
            .collect(),
        from_params: rule.from_params.clone(),
        from_cookies: rule.from_cookies.clone(),
        claim_to_headers: rule
            .output_claim_to_headers
            .iter()
            .map(|to| JwtClaimToHeader {
                header_name: to.header.clone(),
                claim_name: to.claim.clone(),
                ..Default::default()
            })
            .collect(),
        // Routes of gateways may match claims, so the route is selected again.
        clear_route_cache: subject.is_gateway,
        jwks_source_specifier: Some(keys(cx, rule, policy, &subject.namespace)),
        ..Default::default()
    }
}

/// Returns the keys: inline in the rule, or fetched by the proxy from a mesh service that the policy's
/// namespace sees. If no service or several services have the address, a key that nobody has is used, so that
/// every token of the issuer is rejected.
fn keys(cx: &Cx<'_>, rule: &JwtRule, policy: &Namespace, proxies: &Namespace) -> JwksSourceSpecifier {
    // Envoy rejects an empty key set as configuration. The substitute rejects every token, too.
    if rule.closed || is_empty_set(&rule.jwks) {
        return inline(NOBODYS_KEY.to_owned());
    }
    if !rule.jwks.is_empty() || rule.jwks_uri.is_empty() {
        return inline(rule.jwks.clone());
    }
    let cluster = address_of(&rule.jwks_uri)
        .and_then(|(host, port)| visible_service(cx, host, port, policy, proxies))
        .map(|service| service.cluster);
    let Some(cluster) = cluster else { return inline(NOBODYS_KEY.to_owned()) };
    JwksSourceSpecifier::RemoteJwks(RemoteJwks {
        http_uri: Some(HttpUri {
            uri: rule.jwks_uri.clone(),
            timeout: rule.timeout.map(duration).or(Some(FETCH)),
            http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(cluster)),
        }),
        cache_duration: Some(KEEP),
        async_fetch: Some(JwksAsyncFetch::default()),
        ..Default::default()
    })
}

/// True for `{"keys": []}`.
fn is_empty_set(keys: &str) -> bool {
    let set = serde_json::from_str::<serde_json::Value>(keys).ok();
    let keys = set.as_ref().and_then(|set| set.get("keys")?.as_array());
    keys.is_some_and(Vec::is_empty)
}

fn inline(keys: String) -> JwksSourceSpecifier {
    JwksSourceSpecifier::LocalJwks(DataSource {
        specifier: Some(data_source::Specifier::InlineString(keys)),
        ..Default::default()
    })
}

/// The host and the port of a URI.
fn address_of(uri: &str) -> Option<(&str, u32)> {
    let (rest, default_port) = match uri.split_once("://")? {
        ("https", rest) => (rest, 443),
        ("http", rest) => (rest, 80),
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    match authority.rsplit_once(':') {
        Some((host, port)) => Some((host, port.parse().ok()?)),
        None => Some((authority, default_port)),
    }
}

/// Returns the requirement: a token is optional, but a present one must be valid. With several issuers one
/// valid token is enough, because they may read it from the same place. This does not apply to issuers with
/// an unusable rule, whose tokens always fail, nor to rules that require their token.
fn requirement(rules: &[&JwtRule]) -> JwtRequirement {
    let is_required = |index: &usize| rules[*index].presence == JwtPresence::Required;
    let (needed, optionals): (Vec<usize>, Vec<usize>) = (0..rules.len()).partition(is_required);
    let (closed, usable): (Vec<usize>, Vec<usize>) =
        optionals.into_iter().partition(|index| rules[*index].closed);
    let of_usable = match usable.as_slice() {
        [] => None,
        [only] => Some(optional(*only)),
        several => {
            let all = several.iter().copied().map(optional).collect();
            Some(any_of(several.iter().copied().map(named).chain([all_of(all)]).collect()))
        }
    };
    let needed = needed.into_iter().map(named);
    let mut required: Vec<JwtRequirement> =
        closed.into_iter().map(optional).chain(needed).chain(of_usable).collect();
    match required.len() {
        1 => required.swap_remove(0),
        _ => all_of(required),
    }
}

fn named(index: usize) -> JwtRequirement {
    require(RequiresType::ProviderName(name(index)))
}

fn optional(index: usize) -> JwtRequirement {
    any_of(vec![named(index), require(RequiresType::AllowMissing(()))])
}

fn any_of(requirements: Vec<JwtRequirement>) -> JwtRequirement {
    require(RequiresType::RequiresAny(JwtRequirementOrList { requirements }))
}

fn all_of(requirements: Vec<JwtRequirement>) -> JwtRequirement {
    require(RequiresType::RequiresAll(JwtRequirementAndList { requirements }))
}

fn require(kind: RequiresType) -> JwtRequirement {
    JwtRequirement { requires_type: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_set_without_keys_is_empty() {
        for (keys, is_empty) in [
            (r#"{"keys":[]}"#, true),
            (r#"{ "keys": [ ] }"#, true),
            (r#"{"keys":[{}]}"#, false),
            ("{}", false),
            ("", false),
        ] {
            assert_eq!(is_empty_set(keys), is_empty, "{keys}");
        }
    }

    #[test]
    fn a_good_token_makes_up_for_no_rule_that_cannot_be_used() {
        let (usable, closed) = (JwtRule::default(), JwtRule { closed: true, ..JwtRule::default() });
        assert_eq!(requirement(&[&closed]), optional(0));
        assert_eq!(requirement(&[&usable, &closed]), all_of(vec![optional(1), optional(0)]));
        let either = any_of(vec![named(1), named(2), all_of(vec![optional(1), optional(2)])]);
        assert_eq!(requirement(&[&closed, &usable, &usable]), all_of(vec![optional(0), either]));
    }

    /// A field of Istio 1.32.
    #[test]
    fn a_token_that_is_required_is_not_made_up_for_by_another() {
        let usable = JwtRule::default();
        let needed = JwtRule { presence: JwtPresence::Required, ..JwtRule::default() };
        let closed = JwtRule { closed: true, ..needed.clone() };
        for (rules, want) in [
            (&[&needed][..], named(0)),
            (&[&usable, &needed], all_of(vec![named(1), optional(0)])),
            (&[&needed, &needed], all_of(vec![named(0), named(1)])),
            (&[&closed, &needed], all_of(vec![named(0), named(1)])),
        ] {
            assert_eq!(requirement(rules), want, "{rules:?}");
        }
    }
}
