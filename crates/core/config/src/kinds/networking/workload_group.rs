//! WorkloadGroup: template for workloads that register themselves.

use super::WorkloadEntry;
use crate::kinds::message::{kind, message};
use std::collections::BTreeMap;

kind!(WorkloadGroup = WorkloadGroup;);

message! {
/// The template of the group's WorkloadEntries.
pub struct WorkloadGroup {
    pub metadata: Option<GroupMeta>,
    pub template: Option<WorkloadEntry>,
    pub probe: Option<ReadinessProbe>,
}

/// Metadata of created WorkloadEntries.
pub struct GroupMeta {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// Readiness check. The methods are a oneof.
pub struct ReadinessProbe {
    pub initial_delay_seconds: i32,
    pub timeout_seconds: i32,
    pub period_seconds: i32,
    pub success_threshold: i32,
    pub failure_threshold: i32,
    pub http_get: Option<HttpHealthCheck>,
    pub tcp_socket: Option<TcpHealthCheck>,
    pub exec: Option<ExecHealthCheck>,
    pub grpc: Option<GrpcHealthCheck>,
}

/// Ready when an HTTP GET succeeds.
pub struct HttpHealthCheck {
    pub path: String,
    pub port: u32,
    pub host: String,
    pub scheme: String,
    pub http_headers: Vec<HttpHeader>,
}

/// A header of the probe.
pub struct HttpHeader {
    pub name: String,
    pub value: String,
}

/// Ready when a connection can be made.
pub struct TcpHealthCheck {
    pub host: String,
    pub port: u32,
}

/// Ready when a command exits with 0.
pub struct ExecHealthCheck {
    pub command: Vec<String>,
}

/// Ready when the gRPC health service reports SERVING.
pub struct GrpcHealthCheck {
    pub port: u32,
    pub service: String,
}
}
