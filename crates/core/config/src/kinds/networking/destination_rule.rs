//! DestinationRule: client settings for a host, and its subsets.

use super::PortSelector;
use crate::kinds::message::{enumeration, kind, message};
use crate::{Duration, WorkloadSelector};
use std::collections::BTreeMap;

kind!(DestinationRule = DestinationRule;);

message! {
/// Client-side policy for a host.
pub struct DestinationRule {
    pub host: String,
    pub traffic_policy: Option<TrafficPolicy>,
    pub subsets: Vec<Subset>,
    pub export_to: Vec<String>,
    pub workload_selector: Option<WorkloadSelector>,
    /// True for the closed form of a rule whose TLS settings cannot be used: no traffic is sent to the host.
    #[serde(skip)]
    pub closed: bool,
}

/// Traffic policy of a host.
pub struct TrafficPolicy {
    pub load_balancer: Option<LoadBalancerSettings>,
    pub connection_pool: Option<ConnectionPoolSettings>,
    pub outlier_detection: Option<OutlierDetection>,
    pub tls: Option<ClientTlsSettings>,
    pub port_level_settings: Vec<PortTrafficPolicy>,
    pub tunnel: Option<TunnelSettings>,
    pub proxy_protocol: Option<ProxyProtocol>,
    pub retry_budget: Option<RetryBudget>,
}

/// Policy for one port; replaces that of the host.
pub struct PortTrafficPolicy {
    pub port: Option<PortSelector>,
    pub load_balancer: Option<LoadBalancerSettings>,
    pub connection_pool: Option<ConnectionPoolSettings>,
    pub outlier_detection: Option<OutlierDetection>,
    pub tls: Option<ClientTlsSettings>,
}

/// Tunnelling over HTTP CONNECT or POST.
pub struct TunnelSettings {
    pub protocol: String,
    pub target_host: String,
    pub target_port: u32,
}

/// The PROXY protocol towards the host.
pub struct ProxyProtocol {
    pub version: ProxyProtocolVersion,
}

/// The share of requests that may be retries.
pub struct RetryBudget {
    pub percent: Option<f64>,
    pub min_retry_concurrency: u32,
    pub budget_interval: Option<Duration>,
}

/// A named part of a host's endpoints.
pub struct Subset {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub traffic_policy: Option<TrafficPolicy>,
}

/// Load balancing policy. `simple`, `consistent_hash` and `backend_utilization` are a oneof.
pub struct LoadBalancerSettings {
    pub simple: Option<SimpleLb>,
    pub consistent_hash: Option<ConsistentHashLb>,
    pub backend_utilization: Option<BackendUtilizationLb>,
    pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
    pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    /// Deprecated form of `warmup.duration`.
    pub warmup_duration_secs: Option<Duration>,
    pub warmup: Option<WarmupConfiguration>,
}

/// Slow start of new endpoints.
pub struct WarmupConfiguration {
    pub duration: Option<Duration>,
    pub minimum_percent: Option<f64>,
    pub aggression: Option<f64>,
}

/// Weights by the load that endpoints report (ORCA); of Istio 1.32.
pub struct BackendUtilizationLb {
    pub weight_stabilization_period: Option<Duration>,
    pub weight_expiration_period: Option<Duration>,
    pub weight_update_period: Option<Duration>,
    pub error_utilization_penalty_percent: u32,
    pub metric_names_for_computing_utilization: Vec<String>,
}

/// Hash-based choice. The keys (header, cookie, source IP, query parameter) are a oneof, so are the rings.
pub struct ConsistentHashLb {
    pub http_header_name: Option<String>,
    pub http_cookie: Option<HttpCookie>,
    pub use_source_ip: Option<bool>,
    pub http_query_parameter_name: Option<String>,
    /// Deprecated form of `ring_hash.minimum_ring_size`.
    pub minimum_ring_size: u64,
    pub ring_hash: Option<RingHash>,
    pub maglev: Option<MagLev>,
}

/// Cookie to hash; the proxy creates it if `ttl` is set.
pub struct HttpCookie {
    pub name: String,
    pub path: String,
    pub ttl: Option<Duration>,
    pub attributes: Vec<CookieAttribute>,
}

/// Attribute of the created cookie.
pub struct CookieAttribute {
    pub name: String,
    pub value: String,
}

/// Envoy's ring hash load balancer.
pub struct RingHash {
    pub minimum_ring_size: u64,
}

/// Envoy's Maglev load balancer; the table size must be prime.
pub struct MagLev {
    pub table_size: u64,
}

/// Weights and failover by locality. The three lists are exclusive, but for `failover` with
/// `failover_priority`.
pub struct LocalityLoadBalancerSetting {
    pub distribute: Vec<Distribute>,
    pub failover: Vec<Failover>,
    pub failover_priority: Vec<String>,
    pub enabled: Option<bool>,
}

/// Shares of the traffic from a locality, by locality; they add up to 100.
pub struct Distribute {
    pub from: String,
    pub to: BTreeMap<String, u32>,
}

/// Region that takes over if another is unhealthy.
pub struct Failover {
    pub from: String,
    pub to: String,
}

/// Zone-aware routing by Envoy within its own region; `enabled` defaults to true.
pub struct ZoneAwareLoadBalancerSetting {
    pub enabled: Option<bool>,
    pub failover: Vec<Failover>,
    pub failover_priority: Vec<String>,
    pub min_cluster_size: Option<u32>,
}

/// Limits of connections and requests.
pub struct ConnectionPoolSettings {
    pub tcp: Option<TcpSettings>,
    pub http: Option<HttpSettings>,
}

/// Limits for every connection.
pub struct TcpSettings {
    pub max_connections: i32,
    pub connect_timeout: Option<Duration>,
    pub tcp_keepalive: Option<TcpKeepalive>,
    pub max_connection_duration: Option<Duration>,
    pub idle_timeout: Option<Duration>,
}

/// TCP keep-alive probes (`SO_KEEPALIVE`).
pub struct TcpKeepalive {
    pub probes: u32,
    pub time: Option<Duration>,
    pub interval: Option<Duration>,
}

pub struct HttpSettings {
    pub http1_max_pending_requests: i32,
    pub http2_max_requests: i32,
    pub max_requests_per_connection: i32,
    pub max_retries: i32,
    pub idle_timeout: Option<Duration>,
    pub h2_upgrade_policy: H2UpgradePolicy,
    pub use_client_protocol: bool,
    pub max_concurrent_streams: i32,
    pub http2_keep_alive: Option<Http2KeepAlive>,
}

/// PINGs on connections of HTTP/2.
pub struct Http2KeepAlive {
    pub interval: Option<Duration>,
    pub timeout: Option<Duration>,
}

/// Conditions for the temporary ejection of an endpoint.
pub struct OutlierDetection {
    /// Removed from the API; istiod ignores it.
    pub consecutive_errors: i32,
    pub split_external_local_origin_errors: bool,
    pub consecutive_local_origin_failures: Option<u32>,
    pub consecutive_gateway_errors: Option<u32>,
    pub consecutive_5xx_errors: Option<u32>,
    pub interval: Option<Duration>,
    pub base_ejection_time: Option<Duration>,
    pub max_ejection_percent: i32,
    pub min_health_percent: i32,
    /// Share of failed requests that takes an endpoint out; of Istio 1.32.
    pub failure_percentage_threshold: Option<u32>,
}

/// TLS towards the host.
pub struct ClientTlsSettings {
    pub mode: ClientTlsMode,
    pub client_certificate: String,
    pub private_key: String,
    pub ca_certificates: String,
    pub credential_name: String,
    /// Authorities that do not come with `credential_name`; of Istio 1.32.
    pub ca_cert_credential_name: String,
    pub subject_alt_names: Vec<String>,
    pub sni: String,
    pub insecure_skip_verify: Option<bool>,
    pub ca_crl: String,
    /// True for settings that cannot be used: nothing is sent by the policy.
    #[serde(skip)]
    pub closed: bool,
}
}

impl DestinationRule {
    /// True if nothing is sent to the host, or to a port or subset of it.
    #[must_use]
    pub fn closes_anything(&self) -> bool {
        let is_closed = |tls: &Option<ClientTlsSettings>| tls.as_ref().is_some_and(|tls| tls.closed);
        let subsets = self.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
        self.closed
            || self.traffic_policy.iter().chain(subsets).any(|policy| {
                is_closed(&policy.tls) || policy.port_level_settings.iter().any(|port| is_closed(&port.tls))
            })
    }
}

enumeration! {
/// Load balancers without parameters.
pub enum SimpleLb {
    #[default]
    Unspecified,
    /// Deprecated name of `LeastRequest`.
    LeastConn,
    Random,
    Passthrough,
    RoundRobin,
    LeastRequest,
}

/// Upgrade of HTTP/1.1 requests to HTTP/2; `Default` is that of the mesh config.
pub enum H2UpgradePolicy {
    #[default]
    Default,
    DoNotUpgrade,
    Upgrade,
}

/// The TLS settings of a client.
pub enum ClientTlsMode {
    #[default]
    Disable,
    Simple,
    Mutual,
    IstioMutual,
}

/// The version of the PROXY protocol.
pub enum ProxyProtocolVersion {
    #[default]
    V1,
    V2,
}
}
