//! Ejection of failing endpoints.

use super::draft::Draft;
use crate::envoy::duration;
use pilotfish_config::networking::OutlierDetection;
use pilotfish_proto::envoy::config::cluster::v3;
use pilotfish_proto::envoy::r#type::v3::Percent;

/// Applies the settings. Success rates are never used, only consecutive errors and the share of failures.
pub(super) fn apply(draft: &mut Draft, settings: Option<&OutlierDetection>) {
    let Some(settings) = settings else { return };
    // Zero errors switch a detection off: it is enforced for no share of them.
    let enforcing = |errors: u32| if errors > 0 { 100 } else { 0 };
    let split = settings.split_external_local_origin_errors;
    let local = settings.consecutive_local_origin_failures.filter(|errors| split && *errors > 0);
    draft.cluster.outlier_detection = Some(v3::OutlierDetection {
        enforcing_success_rate: Some(0),
        consecutive_5xx: settings.consecutive_5xx_errors,
        enforcing_consecutive_5xx: settings.consecutive_5xx_errors.map(enforcing),
        consecutive_gateway_failure: settings.consecutive_gateway_errors,
        enforcing_consecutive_gateway_failure: settings.consecutive_gateway_errors.map(enforcing),
        failure_percentage_threshold: settings.failure_percentage_threshold,
        enforcing_failure_percentage: settings.failure_percentage_threshold.map(enforcing),
        interval: settings.interval.map(duration),
        base_ejection_time: settings.base_ejection_time.map(duration),
        max_ejection_percent: u32::try_from(settings.max_ejection_percent)
            .ok()
            .filter(|percent| *percent > 0),
        split_external_local_origin_errors: split,
        consecutive_local_origin_failure: local,
        enforcing_consecutive_local_origin_failure: local.map(enforcing),
        enforcing_local_origin_success_rate: split.then_some(0),
        ..v3::OutlierDetection::default()
    });
    // Envoy's panic (half of the endpoints gone) does not suit services with few pods: off unless a share is
    // given.
    if settings.min_health_percent >= 0 {
        let value = f64::from(settings.min_health_percent);
        draft.common_lb().healthy_panic_threshold = Some(Percent { value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::cluster::v3::cluster::DiscoveryType;

    /// A field of Istio 1.32. Envoy enforces no share of failures by default.
    #[test]
    fn a_share_of_failures_is_enforced_if_it_is_set() {
        for (settings, want) in [
            ("{}", (None, None)),
            (r#"{"failurePercentageThreshold": 50}"#, (Some(50), Some(100))),
            (r#"{"failurePercentageThreshold": 0}"#, (Some(0), Some(0))),
        ] {
            let written: OutlierDetection = serde_json::from_str(settings).unwrap();
            let mut draft = Draft::new("outbound|80||web".to_owned(), DiscoveryType::Eds);
            apply(&mut draft, Some(&written));
            let sent = draft.cluster.outlier_detection.unwrap();
            assert_eq!(
                (sent.failure_percentage_threshold, sent.enforcing_failure_percentage),
                want,
                "{settings}"
            );
        }
    }
}
