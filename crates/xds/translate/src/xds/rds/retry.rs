//! Retry policies.

use crate::envoy::duration;
use pilotfish_config::networking::HttpRetry;
use pilotfish_proto::any;
use pilotfish_proto::envoy::config::route::v3::RetryPolicy;
use pilotfish_proto::envoy::config::route::v3::retry_policy::{
    RetryBackOff, RetryHostPredicate, RetryPriority, retry_host_predicate, retry_priority,
};
use pilotfish_proto::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use pilotfish_proto::envoy::extensions::retry::priority::previous_priorities::v3::PreviousPrioritiesConfig;

/// Default retry conditions of a route.
const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes";
/// The condition without which Envoy ignores retriable status codes.
const STATUS_CODES: &str = "retriable-status-codes";

/// The retry settings of a route.
pub(super) struct Retries {
    settings: Option<HttpRetry>,
}

impl Retries {
    /// Parses the settings; `None` for the default ones.
    pub(super) fn of(settings: Option<&HttpRetry>) -> Self {
        Self { settings: settings.cloned() }
    }

    /// Returns the policy; `None` if requests are not retried. With a hash policy, a retry may go to the
    /// endpoint that failed.
    pub(super) fn policy(&self, hashed: bool) -> Option<RetryPolicy> {
        let default = RetryPolicy {
            num_retries: Some(2),
            retry_on: RETRY_ON.to_owned(),
            host_selection_retry_max_attempts: 5,
            retry_host_predicate: if hashed { Vec::new() } else { vec![previous_hosts()] },
            ..Default::default()
        };
        let Some(settings) = &self.settings else { return Some(default) };
        let attempts = u32::try_from(settings.attempts).ok().filter(|attempts| *attempts > 0)?;
        let mut policy = RetryPolicy { num_retries: Some(attempts), ..default };
        if !settings.retry_on.is_empty() {
            (policy.retry_on, policy.retriable_status_codes) = conditions(&settings.retry_on);
        }
        policy.per_try_timeout = settings.per_try_timeout.map(duration);
        if settings.retry_remote_localities == Some(true) {
            policy.retry_priority = Some(previous_priorities());
        }
        match settings.retry_ignore_previous_hosts {
            Some(true) => policy.retry_host_predicate = vec![previous_hosts()],
            Some(false) => policy.retry_host_predicate = Vec::new(),
            None => {}
        }
        policy.retry_back_off = settings
            .backoff
            .map(|base| RetryBackOff { base_interval: Some(duration(base)), ..Default::default() });
        Some(policy)
    }
}

/// The retries of an inbound route, which has one endpoint: a workload may close a connection while a request
/// is being sent. `None` if requests are not retried.
pub(in crate::xds) fn inbound(settings: Option<&HttpRetry>) -> Option<RetryPolicy> {
    let default = RetryPolicy {
        retry_on: "reset-before-request".to_owned(),
        num_retries: Some(2),
        ..RetryPolicy::default()
    };
    let Some(settings) = settings else { return Some(default) };
    let written = Retries::of(Some(settings)).policy(true)?;
    let has_conditions = !settings.retry_on.is_empty();
    Some(RetryPolicy {
        retry_on: if has_conditions { written.retry_on } else { default.retry_on },
        retriable_status_codes: written.retriable_status_codes,
        num_retries: written.num_retries,
        retry_back_off: written.retry_back_off,
        ..RetryPolicy::default()
    })
}

fn previous_hosts() -> RetryHostPredicate {
    RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(any(&PreviousHostsPredicate {}))),
    }
}

fn previous_priorities() -> RetryPriority {
    RetryPriority {
        name: "envoy.retry_priorities.previous_priorities".to_owned(),
        config_type: Some(retry_priority::ConfigType::TypedConfig(any(&PreviousPrioritiesConfig {
            update_frequency: 2,
        }))),
    }
}

/// Splits a list into conditions and status codes.
fn conditions(list: &str) -> (String, Vec<u32>) {
    let mut names = Vec::new();
    let mut codes = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.parse() {
            Ok(code) if is_status(code) => codes.push(code),
            _ => names.push(part),
        }
    }
    let mut retry_on = names.join(",");
    if !codes.is_empty() && !retry_on.contains(STATUS_CODES) {
        retry_on.push(',');
        retry_on.push_str(STATUS_CODES);
    }
    (retry_on, codes)
}

/// Returns true if the number is a registered HTTP status code.
fn is_status(code: u32) -> bool {
    matches!(code,
        100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451
        | 500..=508 | 510 | 511)
}

#[cfg(test)]
mod tests {
    use super::{conditions, inbound};
    use pilotfish_config::mesh::MeshConfig;

    /// A field of Istio 1.32.
    #[test]
    fn inbound_requests_are_retried_as_the_mesh_says() {
        for (settings, want) in [
            ("", Some(("reset-before-request", 2, None))),
            (r#""defaultInboundHttpRetryPolicy": {}"#, None),
            (r#""defaultInboundHttpRetryPolicy": {"attempts": 0, "retryOn": "5xx"}"#, None),
            (r#""defaultInboundHttpRetryPolicy": {"attempts": 3}"#, Some(("reset-before-request", 3, None))),
            (
                r#""defaultInboundHttpRetryPolicy": {"attempts": 1, "retryOn": "5xx", "backoff": "2s", "perTryTimeout": "1s",
                    "retryRemoteLocalities": true, "retryIgnorePreviousHosts": true}"#,
                Some(("5xx", 1, Some(2))),
            ),
        ] {
            let mesh: MeshConfig = serde_json::from_str(&format!("{{{settings}}}")).unwrap();
            let policy = inbound(mesh.default_inbound_http_retry_policy.as_ref());
            let shown = policy.as_ref().map(|policy| {
                assert!(
                    policy.retry_host_predicate.is_empty() && policy.retry_priority.is_none(),
                    "{policy:?}"
                );
                assert_eq!(policy.per_try_timeout, None);
                let base = policy.retry_back_off.as_ref().and_then(|backoff| backoff.base_interval);
                (policy.retry_on.as_str(), policy.num_retries.unwrap(), base.map(|base| base.seconds))
            });
            assert_eq!(shown, want, "{settings}");
        }
    }

    #[test]
    fn codes_are_distinguished_from_conditions() {
        for (list, names, codes) in [
            ("5xx", "5xx", &[][..]),
            ("gateway-error, 503,429", "gateway-error,retriable-status-codes", &[503, 429]),
            ("500,504", ",retriable-status-codes", &[500, 504]),
            ("5xx,299,retriable-status-codes,502", "5xx,299,retriable-status-codes", &[502]),
        ] {
            assert_eq!(conditions(list), (names.to_owned(), codes.to_vec()), "{list}");
        }
    }
}
