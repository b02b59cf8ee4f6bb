//! Health and weight of an instance, from its checks and those of its node.

use crate::answer::{Check, Weights};
use pilotfish_model::HealthStatus;

/// Returns the health of an instance and its weight (0 for the default).
///
/// The worst state applies: maintenance, then critical, then warning, then passing. An instance in warning
/// has its own weight, and 0 means no traffic. Unknown statuses get no traffic.
pub(crate) fn health(checks: &[Check], weights: Weights) -> (HealthStatus, u32) {
    let is_usable =
        |check: &Check| !is_maintenance(check) && ["passing", "warning"].contains(&check.status.as_str());
    if !checks.iter().all(is_usable) {
        return (HealthStatus::Unhealthy, 0);
    }
    let has_warning = checks.iter().any(|check| check.status == "warning");
    match if has_warning { weights.warning } else { weights.passing } {
        ..=0 => (HealthStatus::Unhealthy, 0),
        1 => (HealthStatus::Healthy, 0),
        weight => (HealthStatus::Healthy, u32::try_from(weight).unwrap_or(u32::MAX)),
    }
}

fn is_maintenance(check: &Check) -> bool {
    check.check_id == "_node_maintenance" || check.check_id.starts_with("_service_maintenance:")
}

#[cfg(test)]
mod tests {
    use super::*;
    use HealthStatus::{Healthy, Unhealthy};

    #[test]
    fn the_worst_check_decides() {
        let weights = Weights { passing: 10, warning: 3 };
        type Checks = &'static [(&'static str, &'static str)];
        let cases: [(Checks, Weights, (HealthStatus, u32)); 9] = [
            (&[], weights, (Healthy, 10)),
            (&[("a", "passing")], Weights::default(), (Healthy, 0)),
            (&[("a", "passing"), ("b", "warning")], weights, (Healthy, 3)),
            (&[("a", "warning"), ("b", "critical")], weights, (Unhealthy, 0)),
            (&[("a", "passing"), ("_node_maintenance", "critical")], weights, (Unhealthy, 0)),
            (&[("_service_maintenance:web-1", "passing")], weights, (Unhealthy, 0)),
            (&[("a", "warning")], Weights { passing: 1, warning: 0 }, (Unhealthy, 0)),
            (&[("a", "unknown")], weights, (Unhealthy, 0)),
            (&[("a", "passing")], Weights { passing: -4, warning: 1 }, (Unhealthy, 0)),
        ];
        for (checks, weights, want) in cases {
            let checks: Vec<Check> = checks
                .iter()
                .map(|(id, status)| Check {
                    check_id: (*id).to_owned(),
                    status: (*status).to_owned(),
                    ..Check::default()
                })
                .collect();
            assert_eq!(health(&checks, weights), want, "{checks:?} {weights:?}");
        }
    }
}
