//! Ejection of failing endpoints.

use super::draft::Draft;
use crate::envoy::duration;
use pilotfish_config::networking::OutlierDetection;
use pilotfish_proto::envoy::config::cluster::v3;
use pilotfish_proto::envoy::r#type::v3::Percent;

/// Applies the settings. Success rates are never used, only consecutive errors are.
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
