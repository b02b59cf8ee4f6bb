//! Extension providers: named external authorizers, tracers, access logs and metrics.

use super::TraceContext;
use crate::Duration;
use crate::kinds::message::{enumeration, message};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

message! {
/// A named provider. The fields besides the name are a oneof.
pub struct ExtensionProvider {
    pub name: String,
    pub envoy_ext_authz_http: Option<EnvoyExternalAuthorizationHttpProvider>,
    pub envoy_ext_authz_grpc: Option<EnvoyExternalAuthorizationGrpcProvider>,
    pub zipkin: Option<ZipkinTracingProvider>,
    pub lightstep: Option<LightstepTracingProvider>,
    pub datadog: Option<DatadogTracingProvider>,
    pub stackdriver: Option<StackdriverProvider>,
    pub opencensus: Option<OpenCensusAgentTracingProvider>,
    pub skywalking: Option<SkyWalkingTracingProvider>,
    pub opentelemetry: Option<OpenTelemetryTracingProvider>,
    pub prometheus: Option<PrometheusMetricsProvider>,
    pub envoy_file_access_log: Option<EnvoyFileAccessLogProvider>,
    pub envoy_http_als: Option<EnvoyHttpGrpcV3LogProvider>,
    pub envoy_tcp_als: Option<EnvoyTcpGrpcV3LogProvider>,
    pub envoy_otel_als: Option<EnvoyOpenTelemetryLogProvider>,
    pub sds: Option<SdsProvider>,
}

/// Limit on the body of requests that is sent to an authorizer.
pub struct EnvoyExternalAuthorizationRequestBody {
    pub max_request_bytes: u32,
    pub allow_partial_message: bool,
    pub pack_as_bytes: bool,
}

/// An authorizer over HTTP.
pub struct EnvoyExternalAuthorizationHttpProvider {
    pub service: String,
    pub port: u32,
    pub timeout: Option<Duration>,
    pub path_prefix: String,
    pub fail_open: bool,
    pub clear_route_cache: bool,
    pub status_on_error: String,
    /// Deprecated form of `include_request_headers_in_check`.
    pub include_headers_in_check: Vec<String>,
    pub include_request_headers_in_check: Vec<String>,
    pub include_additional_headers_in_check: BTreeMap<String, String>,
    pub include_request_body_in_check: Option<EnvoyExternalAuthorizationRequestBody>,
    pub headers_to_upstream_on_allow: Vec<String>,
    pub headers_to_downstream_on_deny: Vec<String>,
    pub headers_to_downstream_on_allow: Vec<String>,
}

/// An authorizer over gRPC.
pub struct EnvoyExternalAuthorizationGrpcProvider {
    pub service: String,
    pub port: u32,
    pub timeout: Option<Duration>,
    pub fail_open: bool,
    pub clear_route_cache: bool,
    pub status_on_error: String,
    pub include_request_body_in_check: Option<EnvoyExternalAuthorizationRequestBody>,
}

pub struct ZipkinTracingProvider {
    pub service: String,
    pub port: u32,
    pub max_tag_length: u32,
    #[serde(rename = "enable64bitTraceId")]
    pub enable_64bit_trace_id: bool,
    pub path: String,
    pub timeout: Option<Duration>,
    pub headers: Vec<HttpHeader>,
    pub trace_context_option: TraceContextOption,
}

pub struct LightstepTracingProvider {
    pub service: String,
    pub port: u32,
    pub access_token: String,
    pub max_tag_length: u32,
}

pub struct DatadogTracingProvider {
    pub service: String,
    pub port: u32,
    pub max_tag_length: u32,
}

pub struct SkyWalkingTracingProvider {
    pub service: String,
    pub port: u32,
    pub access_token: String,
}

/// Stackdriver, for traces, metrics and logs.
pub struct StackdriverProvider {
    pub debug: bool,
    pub max_number_of_attributes: Option<i64>,
    pub max_number_of_annotations: Option<i64>,
    pub max_number_of_message_events: Option<i64>,
    pub max_tag_length: u32,
    pub logging: Option<StackdriverLogging>,
}

/// Labels of log entries in Stackdriver.
pub struct StackdriverLogging {
    pub labels: BTreeMap<String, String>,
}

pub struct OpenCensusAgentTracingProvider {
    pub service: String,
    pub port: u32,
    pub context: Vec<TraceContext>,
    pub max_tag_length: u32,
}

/// Prometheus. It scrapes the proxies, so there is nothing to set.
pub struct PrometheusMetricsProvider {}

/// Access logs into a file.
pub struct EnvoyFileAccessLogProvider {
    pub path: String,
    pub log_format: Option<LogFormat>,
    pub omit_empty_values: bool,
}

/// A text or an object of labels; in files a oneof, in OpenTelemetry logs both.
pub struct LogFormat {
    pub text: Option<String>,
    pub labels: Option<Map<String, Value>>,
}

/// HTTP access logs over gRPC.
pub struct EnvoyHttpGrpcV3LogProvider {
    pub service: String,
    pub port: u32,
    pub log_name: String,
    pub filter_state_objects_to_log: Vec<String>,
    pub additional_request_headers_to_log: Vec<String>,
    pub additional_response_headers_to_log: Vec<String>,
    pub additional_response_trailers_to_log: Vec<String>,
}

/// TCP access logs over gRPC.
pub struct EnvoyTcpGrpcV3LogProvider {
    pub service: String,
    pub port: u32,
    pub log_name: String,
    pub filter_state_objects_to_log: Vec<String>,
}

/// Access logs to OpenTelemetry.
pub struct EnvoyOpenTelemetryLogProvider {
    pub service: String,
    pub port: u32,
    pub log_name: String,
    pub log_format: Option<LogFormat>,
}

/// An OpenTelemetry tracer; `http` and `grpc` are a oneof.
pub struct OpenTelemetryTracingProvider {
    pub service: String,
    pub port: u32,
    pub max_tag_length: u32,
    pub http: Option<HttpService>,
    pub grpc: Option<GrpcService>,
    pub resource_detectors: Option<ResourceDetectors>,
    pub dynatrace_sampler: Option<DynatraceSampler>,
    pub service_attribute_enrichment: ServiceAttributeEnrichment,
}

/// OTLP exporter over HTTP.
pub struct HttpService {
    pub path: String,
    pub timeout: Option<Duration>,
    pub headers: Vec<HttpHeader>,
}

/// OTLP exporter over gRPC.
pub struct GrpcService {
    pub timeout: Option<Duration>,
    pub initial_metadata: Vec<HttpHeader>,
}

/// A header with a fixed value, or one from the proxy's environment; a oneof.
pub struct HttpHeader {
    pub name: String,
    pub value: Option<String>,
    pub env_name: Option<String>,
}

/// Detectors of the OpenTelemetry resource attributes of spans.
pub struct ResourceDetectors {
    pub environment: Option<EnvironmentResourceDetector>,
    pub dynatrace: Option<DynatraceResourceDetector>,
}

/// Reads attributes from the environment variable `OTEL_RESOURCE_ATTRIBUTES`.
pub struct EnvironmentResourceDetector {}

/// Reads attributes from Dynatrace's enrichment files.
pub struct DynatraceResourceDetector {}

/// Sampler that applies the sampling rate of a Dynatrace environment.
pub struct DynatraceSampler {
    pub tenant: String,
    pub cluster_id: i32,
    pub root_spans_per_minute: u32,
    pub http_service: Option<DynatraceApi>,
}

/// Address of Dynatrace's sampling API.
pub struct DynatraceApi {
    pub service: String,
    pub port: u32,
    pub http: Option<HttpService>,
}

/// A Secret Discovery Service.
pub struct SdsProvider {
    pub name: String,
    pub service: String,
    pub port: u32,
}
}

enumeration! {
/// Source of the service name of a span.
pub enum ServiceAttributeEnrichment {
    /// The cluster of the proxy's node.
    #[default]
    IstioCanonical,
    /// Annotations, labels and names of the workload, as OpenTelemetry's conventions for Kubernetes have it.
    OtelSemanticConventions,
}

/// The headers that Zipkin reads and writes.
pub enum TraceContextOption {
    #[default]
    #[serde(rename = "USE_B3")]
    UseB3,
    #[serde(rename = "USE_B3_WITH_W3C_PROPAGATION")]
    UseB3WithW3cPropagation,
}
}
