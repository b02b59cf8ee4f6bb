//! `telemetry.istio.io`: access logs, metrics and traces of workloads. v1 and v1alpha1 are read alike.
//!
//! The types have the fields, names and proto JSON forms of
//! <https://istio.io/latest/docs/reference/config/telemetry/>.
#![allow(
    missing_docs,
    reason = "fields carry the names and the meaning of Istio's API reference, linked above"
)]

use crate::kinds::message::{enumeration, kind, message};
use crate::{Duration, PolicyTargetReference, WorkloadSelector};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

kind!(Telemetry = Telemetry;);

message! {
/// Telemetry of the selected workloads.
pub struct Telemetry {
    pub selector: Option<WorkloadSelector>,
    pub target_ref: Option<PolicyTargetReference>,
    pub target_refs: Vec<PolicyTargetReference>,
    pub tracing: Vec<Tracing>,
    pub metrics: Vec<Metrics>,
    pub access_logging: Vec<AccessLogging>,
}

/// Sampling, providers and tags of traces.
pub struct Tracing {
    pub r#match: Option<TracingSelector>,
    pub providers: Vec<ProviderRef>,
    pub random_sampling_percentage: Option<f64>,
    pub disable_span_reporting: Option<bool>,
    pub custom_tags: BTreeMap<String, CustomTag>,
    pub use_request_id_for_trace_sampling: Option<bool>,
    pub enable_istio_tags: Option<bool>,
    pub disable_context_propagation: Option<bool>,
}

/// Role of the workload in the traced traffic.
pub struct TracingSelector {
    pub mode: WorkloadMode,
}

/// An extension provider of the mesh config, by name.
pub struct ProviderRef {
    pub name: String,
}

/// A fixed tag value.
pub struct Literal {
    pub value: String,
}

/// A tag value from the proxy's environment.
pub struct Environment {
    pub name: String,
    pub default_value: String,
}

/// A tag value from a request header.
pub struct RequestHeader {
    pub name: String,
    pub default_value: String,
}

/// A tag value from a format string.
pub struct Formatter {
    pub value: String,
}

/// Providers of metrics, and changes to single metrics.
pub struct Metrics {
    pub providers: Vec<ProviderRef>,
    pub overrides: Vec<MetricsOverrides>,
    pub reporting_interval: Option<Duration>,
}

/// Changes to the selected metrics.
pub struct MetricsOverrides {
    pub r#match: Option<MetricSelector>,
    pub disabled: Option<bool>,
    pub tag_overrides: BTreeMap<String, TagOverride>,
}

/// Metrics to change. `metric` and `custom_metric` are a oneof.
pub struct MetricSelector {
    pub metric: Option<IstioMetric>,
    pub custom_metric: Option<String>,
    pub mode: WorkloadMode,
}

/// Tag to set or remove.
pub struct TagOverride {
    pub operation: TagOperation,
    pub value: String,
}

/// Providers and filter of access logs.
pub struct AccessLogging {
    pub r#match: Option<LogSelector>,
    pub providers: Vec<ProviderRef>,
    pub disabled: Option<bool>,
    pub filter: Option<LogFilter>,
}

/// Role of the workload in the logged traffic.
pub struct LogSelector {
    pub mode: WorkloadMode,
}

/// CEL expression; only requests that satisfy it are logged.
pub struct LogFilter {
    pub expression: String,
}
}

/// Source of a tag's value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CustomTag {
    /// Written as `{}`; rejected by validation.
    #[default]
    #[serde(rename = "")]
    Unset,
    Literal(Literal),
    Environment(Environment),
    Header(RequestHeader),
    Formatter(Formatter),
}

enumeration! {
/// The role of the workload in the traffic.
pub enum WorkloadMode {
    #[default]
    ClientAndServer,
    Client,
    Server,
}

pub enum IstioMetric {
    #[default]
    AllMetrics,
    RequestCount,
    RequestDuration,
    RequestSize,
    ResponseSize,
    TcpOpenedConnections,
    TcpClosedConnections,
    TcpSentBytes,
    TcpReceivedBytes,
    GrpcRequestMessages,
    GrpcResponseMessages,
}

pub enum TagOperation {
    #[default]
    Upsert,
    Remove,
}
}
