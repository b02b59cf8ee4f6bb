//! PeerAuthentication and RequestAuthentication.

use super::{Refused, Scope, Trust, has_only, items, part, plain};
use crate::path::Path;
use crate::problem::Checker;
use crate::security::{JwtRule, MutualTls, MutualTlsMode, PeerAuthentication, RequestAuthentication};
use crate::validate::fields::names::is_port;
use crate::validate::security::authentication::{jwt_rule, tokens};
use crate::yaml::Node;
use std::collections::BTreeMap;

const STRICT: MutualTls = MutualTls { mode: MutualTlsMode::Strict };

impl PeerAuthentication {
    /// Closes the parts of the policy that cannot be used: mutual TLS is required where the mode is unknown.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let Refused { spec, trust, .. } = *refused;
        let everything = Self { closed: true, ..Self::default() };
        let usable = trust == Trust::Parts && (spec.is_mapping() || spec.is_null());
        let Some(scope) = Scope::of(spec).filter(|_| usable) else { return Some(everything) };
        let (ports, unknown_port) = ports(spec.get("portLevelMtls"));
        let selects = scope.selector.as_ref().is_some_and(|selector| !selector.match_labels.is_empty());
        if !selects && (unknown_port || !ports.is_empty()) {
            // Ports apply to single workloads only, so a selector is missing.
            return Some(everything);
        }
        let is_whole = scope.is_whole && has_only(spec, &["selector", "mtls", "portLevelMtls"]);
        if !is_whole {
            // Known labels alone select more workloads than intended. Without any labels, policies for single
            // workloads would override this one.
            let strict = || Self { selector: scope.selector.clone(), mtls: Some(STRICT), ..Self::default() };
            return Some(if selects || scope.is_whole { strict() } else { everything });
        }
        let mtls = plain::<Option<MutualTls>>(spec.get("mtls")).unwrap_or(Some(STRICT));
        let mtls = if unknown_port { Some(STRICT) } else { mtls };
        Some(Self { selector: scope.selector, mtls, port_level_mtls: ports, closed: false })
    }
}

/// Returns the modes by port, and true if there are modes for an unknown port.
fn ports(node: Option<&Node>) -> (BTreeMap<u32, MutualTls>, bool) {
    let Some(node) = node.filter(|node| !node.is_null()) else { return (BTreeMap::new(), false) };
    let mut unknown = !node.is_mapping();
    let mut ports = BTreeMap::new();
    for entry in node.entries() {
        match entry.key.parse::<u32>().ok().filter(|port| is_port(i64::from(*port))) {
            Some(port) => {
                ports.insert(port, plain(Some(&entry.value)).unwrap_or(STRICT));
            }
            None => unknown = true,
        }
    }
    (ports, unknown)
}

impl RequestAuthentication {
    /// Closes the parts of the policy that cannot be used. No token of an unknown rule is valid. If the token
    /// locations are unknown, no request is.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let Refused { spec, trust, .. } = *refused;
        let scope = Scope::of(spec);
        let fields = [&Scope::FIELDS[..], &["jwtRules"]].concat();
        let is_whole = has_only(spec, &fields) && scope.as_ref().is_some_and(|scope| scope.is_whole);
        // Other workloads, which a wider scope reaches, must not accept the tokens.
        let usable = |node| part(Some(node), jwt_rule).filter(|_| is_whole);
        let rules = items(spec.get("jwtRules")).filter(|_| trust == Trust::Parts && spec.is_mapping());
        // Without a known rule, an unknown part may be the one that requires tokens.
        let rules = rules.filter(|rules| is_whole || !rules.is_empty());
        let rules: Option<Vec<JwtRule>> = rules
            .and_then(|rules| rules.iter().map(|node| usable(node).or_else(|| refusing(node))).collect());
        let Scope { selector, target_ref, target_refs, .. } = scope.unwrap_or_default();
        let closed = rules.is_none();
        Some(Self { selector, target_ref, target_refs, jwt_rules: rules.unwrap_or_default(), closed })
    }
}

/// Returns a rule with the same issuer, token locations and presence that accepts no token; `None` if one of
/// them is unknown.
fn refusing(node: &Node) -> Option<JwtRule> {
    let rule = JwtRule {
        issuer: plain(node.get("issuer"))?,
        from_headers: plain(node.get("fromHeaders"))?,
        from_params: plain(node.get("fromParams"))?,
        from_cookies: plain(node.get("fromCookies"))?,
        presence: plain(node.get("presence"))?,
        closed: true,
        ..JwtRule::default()
    };
    let mut checker = Checker::default();
    tokens(&rule, &Path::ROOT, &mut checker);
    super::is_sound(&checker.into_problems()).then_some(rule)
}
