//! The proxy settings inside the mesh config (`defaultConfig`).

use crate::kinds::message::{enumeration, message};
use crate::networking::{ClientTlsSettings, ProxyImage, ReadinessProbe, TcpKeepalive};
use crate::{Duration, telemetry};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of proxies. Absent fields have Istio's defaults, even if others are set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyConfig {
    pub config_path: String,
    pub binary_path: String,
    /// A oneof with `tracing_service_name`.
    pub service_cluster: Option<String>,
    pub tracing_service_name: Option<TracingServiceName>,
    pub drain_duration: Option<Duration>,
    pub parent_shutdown_duration: Option<Duration>,
    pub discovery_address: String,
    pub discovery_refresh_delay: Option<Duration>,
    pub zipkin_address: String,
    pub statsd_udp_address: String,
    pub envoy_metrics_service_address: String,
    pub proxy_admin_port: i32,
    pub availability_zone: String,
    pub control_plane_auth_policy: AuthenticationPolicy,
    pub custom_config_file: String,
    pub stat_name_length: i32,
    pub concurrency: Option<i32>,
    pub proxy_bootstrap_template_path: String,
    pub interception_mode: InboundInterceptionMode,
    pub tracing: Option<Tracing>,
    pub sds: Option<serde_json::Value>,
    pub envoy_access_log_service: Option<RemoteService>,
    pub envoy_metrics_service: Option<RemoteService>,
    pub proxy_metadata: BTreeMap<String, String>,
    pub runtime_values: BTreeMap<String, String>,
    pub status_port: i32,
    pub extra_stat_tags: Vec<String>,
    pub gateway_topology: Option<Topology>,
    pub termination_drain_duration: Option<Duration>,
    pub mesh_id: String,
    pub readiness_probe: Option<ReadinessProbe>,
    pub proxy_stats_matcher: Option<ProxyStatsMatcher>,
    pub hold_application_until_proxy_starts: Option<bool>,
    pub ca_certificates_pem: Vec<String>,
    pub image: Option<ProxyImage>,
    pub private_key_provider: Option<PrivateKeyProvider>,
    pub proxy_headers: Option<ProxyHeaders>,
    pub file_flush_interval: Option<Duration>,
    pub file_flush_min_size_kb: Option<u32>,
    pub stats_flush_interval: Option<Duration>,
    pub stats_eviction_interval: Option<Duration>,
    pub connection_settings: Option<ConnectionSettings>,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            config_path: "./etc/istio/proxy".to_owned(),
            binary_path: "/usr/local/bin/envoy".to_owned(),
            service_cluster: Some("istio-proxy".to_owned()),
            tracing_service_name: None,
            drain_duration: Some(Duration::from_secs(45)),
            parent_shutdown_duration: None,
            discovery_address: "istiod.istio-system.svc:15012".to_owned(),
            discovery_refresh_delay: None,
            zipkin_address: String::new(),
            statsd_udp_address: String::new(),
            envoy_metrics_service_address: String::new(),
            proxy_admin_port: 15000,
            availability_zone: String::new(),
            control_plane_auth_policy: AuthenticationPolicy::MutualTls,
            custom_config_file: String::new(),
            stat_name_length: 189,
            concurrency: None,
            proxy_bootstrap_template_path: String::new(),
            interception_mode: InboundInterceptionMode::default(),
            tracing: None,
            sds: None,
            envoy_access_log_service: None,
            envoy_metrics_service: None,
            proxy_metadata: BTreeMap::new(),
            runtime_values: BTreeMap::new(),
            status_port: 15020,
            extra_stat_tags: Vec::new(),
            gateway_topology: None,
            termination_drain_duration: Some(Duration::from_secs(5)),
            mesh_id: String::new(),
            readiness_probe: None,
            proxy_stats_matcher: None,
            hold_application_until_proxy_starts: None,
            ca_certificates_pem: Vec::new(),
            image: None,
            private_key_provider: None,
            proxy_headers: None,
            file_flush_interval: None,
            file_flush_min_size_kb: None,
            stats_flush_interval: None,
            stats_eviction_interval: None,
            connection_settings: None,
        }
    }
}

message! {
/// Limits and timeouts of client connections. An absent field takes the value of the profile.
pub struct ConnectionSettings {
    pub profile: ConnectionProfile,
    pub listener_per_connection_buffer_limit_bytes: Option<i32>,
    /// istiod reads neither this nor the two limits below.
    pub cluster_per_connection_buffer_limit_bytes: Option<i32>,
    pub listener_connection_limit: Option<i32>,
    pub global_downstream_connection_limit: Option<i32>,
    pub http_idle_timeout: Option<Duration>,
    pub http_max_connection_duration: Option<Duration>,
    pub http_max_stream_duration: Option<Duration>,
    pub http_stream_idle_timeout: Option<Duration>,
    pub http_request_timeout: Option<Duration>,
    pub http_request_headers_timeout: Option<Duration>,
    pub http_drain_timeout: Option<Duration>,
    pub http_max_concurrent_streams: Option<i32>,
    pub http2_initial_stream_window_size: Option<i32>,
    pub http2_initial_connection_window_size: Option<i32>,
    pub http_headers_with_underscores_action: Option<HeadersWithUnderscoresAction>,
    pub http_merge_slashes: Option<bool>,
    pub http_path_with_escaped_slashes_action: Option<PathWithEscapedSlashesAction>,
}

/// Tracing settings of a proxy. The tracers are a oneof.
pub struct Tracing {
    pub zipkin: Option<TracerAddress>,
    pub lightstep: Option<Lightstep>,
    pub datadog: Option<TracerAddress>,
    pub stackdriver: Option<Stackdriver>,
    pub open_census_agent: Option<OpenCensusAgent>,
    pub custom_tags: BTreeMap<String, telemetry::CustomTag>,
    pub max_path_tag_length: u32,
    pub sampling: f64,
    pub tls_settings: Option<ClientTlsSettings>,
    pub enable_istio_tags: Option<bool>,
}

/// Address of a tracer.
pub struct TracerAddress {
    pub address: String,
}

pub struct Lightstep {
    pub address: String,
    pub access_token: String,
}

pub struct Stackdriver {
    pub debug: bool,
    pub max_number_of_attributes: Option<i64>,
    pub max_number_of_annotations: Option<i64>,
    pub max_number_of_message_events: Option<i64>,
}

pub struct OpenCensusAgent {
    pub address: String,
    pub context: Vec<TraceContext>,
}

/// A service that proxies report to.
pub struct RemoteService {
    pub address: String,
    pub tls_settings: Option<ClientTlsSettings>,
    pub tcp_keepalive: Option<TcpKeepalive>,
}

/// Proxies and headers between clients and gateways.
pub struct Topology {
    pub num_trusted_proxies: u32,
    pub forward_client_cert_details: ForwardClientCertDetails,
    pub proxy_protocol: Option<ProxyProtocolConfiguration>,
}

/// PROXY protocol on gateways; enabled if present.
pub struct ProxyProtocolConfiguration {}

/// Selection of Envoy's statistics, by name.
pub struct ProxyStatsMatcher {
    pub inclusion_prefixes: Vec<String>,
    pub inclusion_suffixes: Vec<String>,
    pub inclusion_regexps: Vec<String>,
}

/// Private key provider of Envoy; a oneof.
pub struct PrivateKeyProvider {
    pub cryptomb: Option<KeyProvider>,
    pub qat: Option<KeyProvider>,
}

/// Settings of a private key provider.
pub struct KeyProvider {
    pub poll_delay: Option<Duration>,
    pub fallback: Option<bool>,
}

/// Switches for headers that proxies add by default.
pub struct ProxyHeaders {
    pub forwarded_client_cert: ForwardClientCertDetails,
    pub set_current_client_cert_details: Option<SetCurrentClientCertDetails>,
    pub request_id: Option<DisableHeader>,
    pub server: Option<ServerHeader>,
    pub attempt_count: Option<DisableHeader>,
    pub envoy_debug_headers: Option<DisableHeader>,
    pub metadata_exchange_headers: Option<MetadataExchangeHeaders>,
    pub preserve_http1_header_case: Option<bool>,
    pub x_forwarded_host: Option<EnableHeader>,
    pub x_forwarded_port: Option<EnableHeader>,
}

/// Parts of the client certificate in `x-forwarded-client-cert`.
pub struct SetCurrentClientCertDetails {
    pub subject: Option<bool>,
    pub cert: Option<bool>,
    pub chain: Option<bool>,
    pub dns: Option<bool>,
    pub uri: Option<bool>,
}

/// Switch for a header; `disabled` leaves it out.
pub struct DisableHeader {
    pub disabled: Option<bool>,
}

/// Switch for a header that is off by default.
pub struct EnableHeader {
    pub enabled: Option<bool>,
}

/// Switch for the `server` header, and its value.
pub struct ServerHeader {
    pub disabled: Option<bool>,
    pub value: String,
}

/// Switch for the headers of metadata exchange between proxies.
pub struct MetadataExchangeHeaders {
    pub mode: MetadataExchangeMode,
}
}

enumeration! {
/// Set of default values for [`ConnectionSettings`].
pub enum ConnectionProfile {
    #[default]
    Sidecar,
    /// Gateways with clients from anywhere.
    Edge,
}

/// Action for requests with an underscore in a header name.
pub enum HeadersWithUnderscoresAction {
    #[default]
    HeadersWithUnderscoresAllow,
    HeadersWithUnderscoresRejectRequest,
    HeadersWithUnderscoresDropHeader,
}

/// Action for slashes in paths that are written `%2F`.
pub enum PathWithEscapedSlashesAction {
    #[default]
    KeepUnchanged,
    RejectRequest,
    UnescapeAndRedirect,
    UnescapeAndForward,
}

/// Derivation of the service name in traces.
pub enum TracingServiceName {
    #[default]
    AppLabelAndNamespace,
    CanonicalNameOnly,
    CanonicalNameAndNamespace,
}

/// Authentication of the proxy to the control plane.
pub enum AuthenticationPolicy {
    #[default]
    None,
    MutualTls,
    Inherit,
}

/// Interception of inbound traffic.
pub enum InboundInterceptionMode {
    #[default]
    Redirect,
    Tproxy,
    None,
}

/// Handling of the header `x-forwarded-client-cert`.
pub enum ForwardClientCertDetails {
    #[default]
    Undefined,
    Sanitize,
    ForwardOnly,
    AppendForward,
    SanitizeSet,
    AlwaysForwardOnly,
}

/// Condition for sending the metadata exchange headers.
pub enum MetadataExchangeMode {
    #[default]
    Undefined,
    InMesh,
}

/// Format of the trace context headers.
pub enum TraceContext {
    #[default]
    Unspecified,
    W3cTraceContext,
    GrpcBin,
    CloudTraceContext,
    #[serde(rename = "B3")]
    B3,
}
}
