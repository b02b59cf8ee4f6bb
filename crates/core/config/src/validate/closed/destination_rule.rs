//! DestinationRule.

use super::{Refused, has_only, items, part, plain};
use crate::networking::{ClientTlsSettings, DestinationRule, TrafficPolicy};
use crate::path::{FieldPath, Segment};
use crate::unknown::narrowing;
use crate::validate::fields::names::wildcard_host;
use crate::yaml::{Mode, Node, decode};
use pilotfish_model::Kind;

impl DestinationRule {
    /// Returns a rule that sends nothing to the host: traffic that was to be encrypted, or sent to a verified
    /// server only, must not be sent otherwise. If only TLS settings of a policy are unknown, nothing is sent
    /// by that policy. `None` for rules that clearly have no TLS settings, whose loss opens nothing.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let spec = refused.spec;
        if let Some(rule) = closed_partly(refused) {
            return Some(rule);
        }
        if is_without_tls(spec) {
            return None;
        }
        let host: String = part(spec.get("host"), |host: &String, at, checker| {
            wildcard_host(host, at, checker);
        })?;
        (!host.is_empty()).then(|| Self {
            host,
            export_to: plain(spec.get("exportTo")).unwrap_or_default(),
            workload_selector: plain(spec.get("workloadSelector")).unwrap_or_default(),
            closed: true,
            ..Self::default()
        })
    }
}

/// Returns the rule with those policies closed whose TLS settings are unknown. `None` if more than that is
/// unusable.
fn closed_partly(refused: &Refused<'_>) -> Option<DestinationRule> {
    let is_of_policy = |path: &FieldPath| match path.segments() {
        [Segment::Field(spec), Segment::Field(field), _, ..] => {
            **spec == *"spec" && matches!(&**field, "trafficPolicy" | "subsets")
        }
        _ => false,
    };
    if refused.narrowed.is_empty() || !refused.narrowed.iter().all(is_of_policy) {
        return None;
    }
    let decoded = decode::<DestinationRule>(refused.spec, Mode::Complete, &[]);
    let at = FieldPath::new(vec![Segment::Field("spec".into())]);
    let narrowed = narrowing(Kind::DestinationRule, &at, refused.spec, decoded.unknown);
    let mut rule = decoded.value.filter(|_| !narrowed.is_empty())?;
    for path in &narrowed {
        settings_at(&mut rule, path.segments())?.get_or_insert_default().closed = true;
    }
    Some(rule)
}

/// Returns the TLS settings that a path refers to: of the host, a subset, or a port of either.
fn settings_at<'r>(
    rule: &'r mut DestinationRule,
    path: &[Segment],
) -> Option<&'r mut Option<ClientTlsSettings>> {
    let (policy, path): (&mut Option<TrafficPolicy>, _) = match path {
        [Segment::Field(field), Segment::Index(index), path @ ..] if **field == *"subsets" => {
            (&mut rule.subsets.get_mut(*index)?.traffic_policy, path.get(1..).unwrap_or_default())
        }
        [Segment::Field(field), path @ ..] if **field == *"trafficPolicy" => (&mut rule.traffic_policy, path),
        _ => return None,
    };
    let policy = policy.get_or_insert_default();
    match path {
        [Segment::Field(field), Segment::Index(index), ..] if **field == *"portLevelSettings" => {
            policy.port_level_settings.get_mut(*index).map(|port| &mut port.tls)
        }
        _ => Some(&mut policy.tls),
    }
}

/// True if the host, ports and subsets can all be read and none of them has TLS settings.
fn is_without_tls(spec: &Node) -> bool {
    let subset = |subset: &Node| {
        has_only(subset, &["name", "labels", "trafficPolicy"])
            && policy_without_tls(subset.get("trafficPolicy"))
    };
    has_only(spec, &["host", "trafficPolicy", "subsets", "exportTo", "workloadSelector"])
        && policy_without_tls(spec.get("trafficPolicy"))
        && items(spec.get("subsets")).is_some_and(|subsets| subsets.iter().all(subset))
}

fn policy_without_tls(policy: Option<&Node>) -> bool {
    const OF_PORT: [&str; 4] = ["port", "loadBalancer", "connectionPool", "outlierDetection"];
    const OF_HOST: [&str; 7] = [
        "loadBalancer",
        "connectionPool",
        "outlierDetection",
        "portLevelSettings",
        "tunnel",
        "proxyProtocol",
        "retryBudget",
    ];
    policy.is_none_or(|policy| {
        let ports = items(policy.get("portLevelSettings"));
        has_only(policy, &OF_HOST)
            && ports.is_some_and(|ports| ports.iter().all(|port| has_only(port, &OF_PORT)))
    })
}
