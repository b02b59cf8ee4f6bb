//! DestinationRule.

use super::{Refused, has_only, items, part, plain};
use crate::networking::DestinationRule;
use crate::validate::fields::names::wildcard_host;
use crate::yaml::Node;

impl DestinationRule {
    /// Returns a rule that sends nothing to the host: traffic that was to be encrypted, or sent to a verified
    /// server only, must not be sent otherwise. `None` for rules that clearly have no TLS settings, whose
    /// loss opens nothing.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let spec = refused.spec;
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
