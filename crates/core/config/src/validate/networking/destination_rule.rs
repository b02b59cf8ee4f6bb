//! DestinationRule.

use super::{locality, tls};
use crate::mesh::DefaultTrafficPolicy;
use crate::networking::{
    BackendUtilizationLb, ConnectionPoolSettings, ConsistentHashLb, DestinationRule, H2UpgradePolicy,
    HttpSettings, LoadBalancerSettings, OutlierDetection, PortTrafficPolicy, RetryBudget, Subset,
    TcpKeepalive, TcpSettings, TrafficPolicy, TunnelSettings, WarmupConfiguration,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{self, each, fqdn_problem, is_ip, quoted, unique, warn_duplicates};
use crate::validate::fields::selectors;
use crate::validate::fields::values::{at_most_one, duration, duration_or_zero, not_negative, percent};
use pilotfish_model::ObjectMeta;

pub(in crate::validate) fn check(
    rule: &DestinationRule,
    at: &Path<'_>,
    meta: &ObjectMeta,
    checker: &mut Checker,
) {
    if rule.host.is_empty() {
        checker.error(&at.field("host"), "must be set");
    } else {
        names::wildcard_host(&rule.host, &at.field("host"), checker);
    }
    if let Some(policy) = &rule.traffic_policy {
        traffic_policy(policy, &at.field("trafficPolicy"), checker);
    }
    let subsets = at.field("subsets");
    each(&rule.subsets, &subsets, checker, subset);
    unique(&rule.subsets, &subsets, "name", checker, |subset| Some(&subset.name));
    let export_to = at.field("exportTo");
    selectors::export_to(&rule.export_to, false, meta, &export_to, checker);
    if let Some(selector) = &rule.workload_selector {
        selectors::workload_selector(selector, &at.field("workloadSelector"), checker);
        let own = |namespace: &String| namespace == "." || meta.key.namespace == *namespace.as_str();
        if !rule.export_to.iter().all(own) {
            checker.warning(&export_to, "has no effect, a workloadSelector is for the own namespace");
        }
    }
}

fn subset(subset: &Subset, at: &Path<'_>, checker: &mut Checker) {
    names::subset_name(&subset.name, &at.field("name"), checker);
    names::labels(&subset.labels, &at.field("labels"), checker);
    if let Some(policy) = &subset.traffic_policy {
        traffic_policy(policy, &at.field("trafficPolicy"), checker);
    }
}

fn traffic_policy(policy: &TrafficPolicy, at: &Path<'_>, checker: &mut Checker) {
    if *policy == TrafficPolicy::default() {
        return checker.warning(at, "is empty");
    }
    if policy.tunnel.is_some() && policy.proxy_protocol.is_some() {
        checker.warning(&at.field("proxyProtocol"), "is not meant to be set beside tunnel");
    }
    let parts = Parts {
        load_balancer: policy.load_balancer.as_ref(),
        connection_pool: policy.connection_pool.as_ref(),
        outlier_detection: policy.outlier_detection.as_ref(),
        tls: policy.tls.as_ref(),
    };
    parts.check(at, checker);
    let ports = at.field("portLevelSettings");
    each(&policy.port_level_settings, &ports, checker, port_policy);
    warn_duplicates(&policy.port_level_settings, &ports, ["port", "number"], checker, |policy| {
        policy.port.as_ref().map(|port| port.number)
    });
    if let Some(value) = &policy.tunnel {
        tunnel(value, &at.field("tunnel"), checker);
    }
    if let Some(budget) = &policy.retry_budget {
        retry_budget(budget, &at.field("retryBudget"), checker);
    }
}

fn port_policy(policy: &PortTrafficPolicy, at: &Path<'_>, checker: &mut Checker) {
    match &policy.port {
        None => checker.error(&at.field("port"), "must be set"),
        Some(port) => names::port(port.number, &at.field("port").field("number"), checker),
    }
    let parts = Parts {
        load_balancer: policy.load_balancer.as_ref(),
        connection_pool: policy.connection_pool.as_ref(),
        outlier_detection: policy.outlier_detection.as_ref(),
        tls: policy.tls.as_ref(),
    };
    if parts.is_empty() {
        checker.warning(at, "is empty, set one of loadBalancer, connectionPool, outlierDetection and tls");
    }
    parts.check(at, checker);
}

/// Settings that a host's policy and a port's policy have in common.
struct Parts<'a> {
    load_balancer: Option<&'a LoadBalancerSettings>,
    connection_pool: Option<&'a ConnectionPoolSettings>,
    outlier_detection: Option<&'a OutlierDetection>,
    tls: Option<&'a crate::networking::ClientTlsSettings>,
}

impl Parts<'_> {
    fn is_empty(&self) -> bool {
        self.load_balancer.is_none()
            && self.connection_pool.is_none()
            && self.outlier_detection.is_none()
            && self.tls.is_none()
    }

    fn check(&self, at: &Path<'_>, checker: &mut Checker) {
        if let Some(settings) = self.load_balancer {
            let has_outlier_detection = self.outlier_detection.is_some();
            load_balancer(settings, has_outlier_detection, &at.field("loadBalancer"), checker);
        }
        if let Some(settings) = self.connection_pool {
            connection_pool(settings, &at.field("connectionPool"), checker);
        }
        if let Some(settings) = self.outlier_detection {
            outlier_detection(settings, &at.field("outlierDetection"), checker);
        }
        if let Some(settings) = self.tls {
            tls::client(settings, &at.field("tls"), checker);
        }
    }
}

fn load_balancer(
    settings: &LoadBalancerSettings,
    has_outlier_detection: bool,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    let policies = [
        ("simple", settings.simple.is_some()),
        ("consistentHash", settings.consistent_hash.is_some()),
        ("backendUtilization", settings.backend_utilization.is_some()),
    ];
    at_most_one(&policies, at, checker);
    if let Some(utilization) = &settings.backend_utilization {
        backend_utilization(utilization, settings, at, checker);
    }
    if let Some(hash) = &settings.consistent_hash {
        consistent_hash(hash, &at.field("consistentHash"), checker);
    }
    if let Some(setting) = &settings.locality_lb_setting {
        locality::check(setting, has_outlier_detection, &at.field("localityLbSetting"), checker);
    }
    if let Some(setting) = &settings.zone_aware_lb_setting {
        let at = at.field("zoneAwareLbSetting");
        if settings.locality_lb_setting.is_some() {
            checker.warning(&at, "localityLbSetting has no effect beside it");
        }
        locality::check_zone_aware(setting, &at, checker);
    }
    duration(settings.warmup_duration_secs, &at.field("warmupDurationSecs"), checker);
    if let Some(settings) = &settings.warmup {
        warmup(settings, &at.field("warmup"), checker);
    }
}

fn backend_utilization(
    utilization: &BackendUtilizationLb,
    settings: &LoadBalancerSettings,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    for (field, set) in [
        ("localityLbSetting", settings.locality_lb_setting.is_some()),
        ("zoneAwareLbSetting", settings.zone_aware_lb_setting.is_some()),
    ] {
        if set {
            checker.warning(&at.field(field), "decides on priorities only beside backendUtilization");
        }
    }
    let at = at.field("backendUtilization");
    for (field, value) in [
        ("weightStabilizationPeriod", utilization.weight_stabilization_period),
        ("weightExpirationPeriod", utilization.weight_expiration_period),
        ("weightUpdatePeriod", utilization.weight_update_period),
    ] {
        duration_or_zero(value, &at.field(field), checker);
    }
}

fn warmup(settings: &WarmupConfiguration, at: &Path<'_>, checker: &mut Checker) {
    if settings.duration.is_none() {
        checker.error(&at.field("duration"), "must be set");
    }
    duration(settings.duration, &at.field("duration"), checker);
    if let Some(value) = settings.minimum_percent {
        percent(value, &at.field("minimumPercent"), checker);
    }
    if let Some(value) = settings.aggression.filter(|value| *value <= 0.0) {
        checker.error(&at.field("aggression"), format!("{value} is not above 0"));
    }
}

fn consistent_hash(hash: &ConsistentHashLb, at: &Path<'_>, checker: &mut Checker) {
    /// Envoy's bound for rings.
    const LARGEST_RING: u64 = 8_388_608;
    /// Envoy's bound for the table of Maglev.
    const LARGEST_TABLE: u64 = 5_000_011;
    let keys = [
        ("httpHeaderName", hash.http_header_name.is_some()),
        ("httpCookie", hash.http_cookie.is_some()),
        ("useSourceIp", hash.use_source_ip.is_some()),
        ("httpQueryParameterName", hash.http_query_parameter_name.is_some()),
    ];
    at_most_one(&keys, at, checker);
    let rings = [("ringHash", hash.ring_hash.is_some()), ("maglev", hash.maglev.is_some())];
    at_most_one(&rings, at, checker);
    let ring = hash.ring_hash.as_ref().map_or(0, |ring| ring.minimum_ring_size);
    let ring_at = at.field("ringHash");
    for (size, at) in [(hash.minimum_ring_size, at), (ring, &ring_at)] {
        if size > LARGEST_RING {
            let message = format!("{size} is too large, at most {LARGEST_RING} is allowed");
            checker.error(&at.field("minimumRingSize"), message);
        }
    }
    let names = [
        ("httpHeaderName", &hash.http_header_name),
        ("httpQueryParameterName", &hash.http_query_parameter_name),
    ];
    for (field, name) in names {
        if name.as_ref().is_some_and(String::is_empty) {
            checker.error(&at.field(field), "must not be empty");
        }
    }
    if hash.minimum_ring_size != 0 {
        let message = match hash.ring_hash.is_some() || hash.maglev.is_some() {
            true => "has no effect beside ringHash and maglev",
            false => "is deprecated, use ringHash.minimumRingSize",
        };
        checker.warning(&at.field("minimumRingSize"), message);
    }
    if let Some(cookie) = &hash.http_cookie {
        let at = at.field("httpCookie");
        if cookie.name.is_empty() {
            checker.error(&at.field("name"), "must be set");
        }
        each(&cookie.attributes, &at.field("attributes"), checker, |attribute, at, checker| {
            if attribute.name.is_empty() {
                checker.error(&at.field("name"), "must be set");
            }
        });
    }
    if let Some(maglev) = &hash.maglev {
        let (size, at) = (maglev.table_size, at.field("maglev"));
        let at = at.field("tableSize");
        if size >= LARGEST_TABLE {
            checker.error(&at, format!("{size} is too large, must be below {LARGEST_TABLE}"));
        } else if size != 0 && !is_prime(size) {
            checker.error(&at, format!("{size} is not a prime number"));
        }
    }
}

fn is_prime(number: u64) -> bool {
    number > 1
        && (2..).take_while(|factor| factor * factor <= number).all(|factor| !number.is_multiple_of(factor))
}

/// The parts of a policy that the mesh config has.
pub(in crate::validate) fn default_policy(
    policy: &DefaultTrafficPolicy,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    Parts {
        load_balancer: None,
        connection_pool: policy.connection_pool.as_ref(),
        outlier_detection: policy.outlier_detection.as_ref(),
        tls: None,
    }
    .check(at, checker);
}

fn outlier_detection(settings: &OutlierDetection, at: &Path<'_>, checker: &mut Checker) {
    if settings.consecutive_errors != 0 {
        let message = "is no longer used, set consecutiveGatewayErrors or consecutive5xxErrors";
        checker.warning(&at.field("consecutiveErrors"), message);
    }
    let local = settings.consecutive_local_origin_failures.unwrap_or_default() > 0;
    if local && !settings.split_external_local_origin_errors {
        let message = "has no effect without splitExternalLocalOriginErrors";
        checker.warning(&at.field("consecutiveLocalOriginFailures"), message);
    }
    duration(settings.interval, &at.field("interval"), checker);
    duration(settings.base_ejection_time, &at.field("baseEjectionTime"), checker);
    let shares = [
        ("maxEjectionPercent", settings.max_ejection_percent),
        ("minHealthPercent", settings.min_health_percent),
    ];
    for (field, value) in shares {
        percent(f64::from(value), &at.field(field), checker);
    }
    if let Some(value) = settings.failure_percentage_threshold {
        percent(f64::from(value), &at.field("failurePercentageThreshold"), checker);
    }
}

/// Limits of connections and requests; also those of a sidecar's own port.
pub(super) fn connection_pool(settings: &ConnectionPoolSettings, at: &Path<'_>, checker: &mut Checker) {
    if settings.tcp.is_none() && settings.http.is_none() {
        checker.warning(at, "is empty, set one of tcp and http");
    }
    if let Some(settings) = &settings.tcp {
        tcp(settings, &at.field("tcp"), checker);
    }
    if let Some(settings) = &settings.http {
        http(settings, &at.field("http"), checker);
    }
}

fn tcp(settings: &TcpSettings, at: &Path<'_>, checker: &mut Checker) {
    not_negative(settings.max_connections, &at.field("maxConnections"), checker);
    duration(settings.connect_timeout, &at.field("connectTimeout"), checker);
    duration(settings.max_connection_duration, &at.field("maxConnectionDuration"), checker);
    duration_or_zero(settings.idle_timeout, &at.field("idleTimeout"), checker);
    if let Some(settings) = &settings.tcp_keepalive {
        keepalive(settings, &at.field("tcpKeepalive"), checker);
    }
}

/// Checks the durations of TCP keep-alive.
pub(in crate::validate) fn keepalive(settings: &TcpKeepalive, at: &Path<'_>, checker: &mut Checker) {
    duration(settings.time, &at.field("time"), checker);
    duration(settings.interval, &at.field("interval"), checker);
}

fn http(settings: &HttpSettings, at: &Path<'_>, checker: &mut Checker) {
    let numbers = [
        ("http1MaxPendingRequests", settings.http1_max_pending_requests),
        ("http2MaxRequests", settings.http2_max_requests),
        ("maxRequestsPerConnection", settings.max_requests_per_connection),
        ("maxRetries", settings.max_retries),
        ("maxConcurrentStreams", settings.max_concurrent_streams),
    ];
    for (field, value) in numbers {
        not_negative(value, &at.field(field), checker);
    }
    duration_or_zero(settings.idle_timeout, &at.field("idleTimeout"), checker);
    if let Some(keepalive) = &settings.http2_keep_alive {
        let at = at.field("http2KeepAlive");
        for (field, value) in [("interval", keepalive.interval), ("timeout", keepalive.timeout)] {
            duration(value, &at.field(field), checker);
        }
        if keepalive.interval.is_none() || keepalive.timeout.is_none() {
            checker.warning(&at, "is meant to have both interval and timeout");
        }
    }
    if settings.use_client_protocol && settings.h2_upgrade_policy == H2UpgradePolicy::Upgrade {
        checker
            .warning(&at.field("useClientProtocol"), "is not meant to be set beside h2UpgradePolicy UPGRADE");
    }
}

fn tunnel(settings: &TunnelSettings, at: &Path<'_>, checker: &mut Checker) {
    if !matches!(&*settings.protocol, "" | "CONNECT" | "POST") {
        let message = format!("{} is not CONNECT or POST", quoted(&settings.protocol));
        checker.error(&at.field("protocol"), message);
    }
    let host = &settings.target_host;
    if !is_ip(host) && fqdn_problem(host).is_some() {
        let message = format!("{} is not an IP address or a host name", quoted(host));
        checker.error(&at.field("targetHost"), message);
    }
    names::port(settings.target_port, &at.field("targetPort"), checker);
}

fn retry_budget(budget: &RetryBudget, at: &Path<'_>, checker: &mut Checker) {
    if let Some(value) = budget.percent {
        percent(value, &at.field("percent"), checker);
    }
    duration(budget.budget_interval, &at.field("budgetInterval"), checker);
}
