//! Limits of connections and requests.

use super::draft::Draft;
use crate::envoy::duration;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::{
    ConnectionPoolSettings, H2UpgradePolicy, Http2KeepAlive, RetryBudget, TcpKeepalive,
};
use pilotfish_model::Port;
use pilotfish_proto::envoy::config::cluster::v3::circuit_breakers::{Thresholds, thresholds};
use pilotfish_proto::envoy::config::cluster::v3::{CircuitBreakers, UpstreamConnectionOptions};
use pilotfish_proto::envoy::config::core::v3;
use pilotfish_proto::envoy::r#type::v3::Percent;

/// Retries as a share of requests, in percent, where a retry budget does not set a share.
const DEFAULT_BUDGET_PERCENT: f64 = 20.0;
/// Retries that a budget allows however few requests there are.
const DEFAULT_BUDGET_CONCURRENCY: u32 = 3;

/// No limits: Envoy's own defaults are too low for a mesh.
fn no_limits() -> Thresholds {
    Thresholds {
        max_connections: Some(u32::MAX),
        max_pending_requests: Some(u32::MAX),
        max_requests: Some(u32::MAX),
        max_retries: Some(u32::MAX),
        ..Thresholds::default()
    }
}

fn breakers(thresholds: Thresholds) -> CircuitBreakers {
    CircuitBreakers { thresholds: vec![thresholds], ..CircuitBreakers::default() }
}

/// Applies the limits and the timeouts.
pub(super) fn apply(
    draft: &mut Draft,
    mesh: &MeshConfig,
    settings: Option<&ConnectionPoolSettings>,
    budget: Option<&RetryBudget>,
) {
    apply_to_streams(draft, mesh, settings);
    if let (Some(budget), Some(breakers)) = (budget, &mut draft.cluster.circuit_breakers) {
        breakers.thresholds.iter_mut().for_each(|limits| limits.retry_budget = Some(retry_budget(budget)));
    }
    http_options(draft, settings);
    let http = settings.and_then(|settings| settings.http.as_ref());
    if http.is_some_and(|http| http.use_client_protocol) {
        draft.use_downstream_protocol();
    }
}

/// Applies the limits and what concerns connections of whatever protocol.
pub(super) fn apply_to_streams(
    draft: &mut Draft,
    mesh: &MeshConfig,
    settings: Option<&ConnectionPoolSettings>,
) {
    let tcp = settings.and_then(|settings| settings.tcp.as_ref());
    let http = settings.and_then(|settings| settings.http.as_ref());
    let mut limits = no_limits();
    let mut limit = |field: fn(&mut Thresholds) -> &mut Option<u32>, written: Option<i32>| {
        if let Some(written) = written.and_then(|written| u32::try_from(written).ok()).filter(|n| *n > 0) {
            *field(&mut limits) = Some(written);
        }
    };
    limit(|limits| &mut limits.max_connections, tcp.map(|tcp| tcp.max_connections));
    limit(|limits| &mut limits.max_requests, http.map(|http| http.http2_max_requests));
    limit(|limits| &mut limits.max_pending_requests, http.map(|http| http.http1_max_pending_requests));
    limit(|limits| &mut limits.max_retries, http.map(|http| http.max_retries));
    draft.cluster.circuit_breakers = Some(breakers(limits));
    let connect = tcp.and_then(|tcp| tcp.connect_timeout).or(mesh.connect_timeout);
    draft.cluster.connect_timeout = connect.map(duration);
    keepalive(draft, mesh, tcp.and_then(|tcp| tcp.tcp_keepalive.as_ref()));
}

fn retry_budget(budget: &RetryBudget) -> thresholds::RetryBudget {
    let concurrency = budget.min_retry_concurrency;
    thresholds::RetryBudget {
        budget_percent: Some(Percent { value: budget.percent.unwrap_or(DEFAULT_BUDGET_PERCENT) }),
        budget_interval: budget.budget_interval.map(duration),
        min_retry_concurrency: Some(if concurrency > 0 { concurrency } else { DEFAULT_BUDGET_CONCURRENCY }),
    }
}

/// Keepalive of the mesh, single values replaced by those of the rule.
fn keepalive(draft: &mut Draft, mesh: &MeshConfig, own: Option<&TcpKeepalive>) {
    if mesh.tcp_keepalive.is_none() && own.is_none() {
        return;
    }
    let mut out = v3::TcpKeepalive::default();
    for settings in [mesh.tcp_keepalive.as_ref(), own].into_iter().flatten() {
        let seconds = |time: pilotfish_config::Duration| u32::try_from(time.0.as_secs()).unwrap_or(u32::MAX);
        if settings.probes > 0 {
            out.keepalive_probes = Some(settings.probes);
        }
        out.keepalive_time = settings.time.map(seconds).or(out.keepalive_time);
        out.keepalive_interval = settings.interval.map(seconds).or(out.keepalive_interval);
    }
    draft.cluster.upstream_connection_options =
        Some(UpstreamConnectionOptions { tcp_keepalive: Some(out), ..UpstreamConnectionOptions::default() });
}

/// Sets idle timeout and lifetime of connections, and the number of requests and streams on one.
fn http_options(draft: &mut Draft, settings: Option<&ConnectionPoolSettings>) {
    let Some(settings) = settings else { return };
    let (tcp, http) = (settings.tcp.as_ref(), settings.http.as_ref());
    let idle = http.and_then(|http| http.idle_timeout).or(tcp.and_then(|tcp| tcp.idle_timeout));
    let lifetime = tcp.and_then(|tcp| tcp.max_connection_duration);
    let positive = |number: i32| u32::try_from(number).ok().filter(|number| *number > 0);
    let requests = http.and_then(|http| positive(http.max_requests_per_connection));
    let streams = http.and_then(|http| positive(http.max_concurrent_streams));
    let keepalive = http.and_then(|http| http.http2_keep_alive.as_ref());
    let has_common = idle.is_some() || lifetime.is_some() || requests.is_some() || streams.is_some();
    if !has_common && keepalive.is_none() {
        return;
    }
    let common = draft.http().common_http_protocol_options.get_or_insert_default();
    common.idle_timeout = idle.map(duration).or(common.idle_timeout);
    common.max_requests_per_connection = requests.or(common.max_requests_per_connection);
    common.max_connection_duration = lifetime.map(duration).or(common.max_connection_duration);
    if let Some(options) = draft.http2_options() {
        options.max_concurrent_streams = streams.or(options.max_concurrent_streams);
        options.connection_keepalive =
            keepalive.and_then(http2_keepalive).or(options.connection_keepalive.take());
    }
}

/// The settings of PINGs; none without a timeout, for which Envoy refuses the cluster.
fn http2_keepalive(settings: &Http2KeepAlive) -> Option<v3::KeepaliveSettings> {
    Some(v3::KeepaliveSettings {
        interval: settings.interval.map(duration),
        timeout: Some(duration(settings.timeout?)),
        ..v3::KeepaliveSettings::default()
    })
}

/// Upgrades to HTTP/2 where the rule demands it, on any port whose protocol is declared, else where the mesh
/// does, on ports declared as HTTP. Where the protocol is the client's, it stays so.
pub(super) fn apply_h2_upgrade(
    draft: &mut Draft,
    mesh: &MeshConfig,
    port: &Port,
    settings: Option<&ConnectionPoolSettings>,
) {
    use pilotfish_config::mesh::H2UpgradePolicy as MeshPolicy;
    let http = settings.and_then(|settings| settings.http.as_ref());
    if http.is_some_and(|http| http.use_client_protocol) || draft.uses_downstream_protocol() {
        return;
    }
    let upgrade = match http.map_or(H2UpgradePolicy::Default, |http| http.h2_upgrade_policy) {
        H2UpgradePolicy::Upgrade => true,
        H2UpgradePolicy::DoNotUpgrade => false,
        H2UpgradePolicy::Default => port.protocol.is_http() && mesh.h2_upgrade_policy == MeshPolicy::Upgrade,
    };
    if upgrade {
        draft.set_http2();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule 2 of Istio 1.31, with the interval, which recordings do not show.
    #[test]
    fn retry_budgets_have_defaults_but_for_the_interval() {
        for (written, percent, concurrency, seconds) in [
            ("{}", 20.0, 3, None),
            (r#"{"percent": 0, "minRetryConcurrency": 0}"#, 0.0, 3, None),
            (r#"{"percent": 7.5, "minRetryConcurrency": 9, "budgetInterval": "25s"}"#, 7.5, 9, Some((25, 0))),
            (r#"{"budgetInterval": "1.5s"}"#, 20.0, 3, Some((1, 500_000_000))),
        ] {
            let budget = retry_budget(&serde_json::from_str(written).unwrap());
            assert_eq!(budget.budget_percent.map(|percent| percent.value), Some(percent), "{written}");
            assert_eq!(budget.min_retry_concurrency, Some(concurrency), "{written}");
            let interval = budget.budget_interval.map(|interval| (interval.seconds, interval.nanos));
            assert_eq!(interval, seconds, "{written}");
        }
    }
}
