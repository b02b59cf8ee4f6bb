//! DestinationRule.

use super::{Refused, has_only, items, part, plain};
use crate::networking::DestinationRule;
use crate::validate::fields::names::wildcard_host;
use crate::yaml::Node;

impl DestinationRule {
    /// A rule by which nothing is sent to the host: what was to be encrypted, or sent to a proven server only, is not sent in
    /// another way. `None` for rules that clearly have no TLS settings, whose loss opens nothing.
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

/// Whether all parts that may have TLS settings can be seen to have none: those of the host, of a port and of a subset.
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
