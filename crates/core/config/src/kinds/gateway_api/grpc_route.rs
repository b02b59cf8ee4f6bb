//! GRPCRoute.

use super::{HttpBackendRef, MatchType, ParentReference, RouteFilter, ValueMatch};
use crate::Unread;
use crate::kinds::message::{kind, message};

kind!(GrpcRoute = GrpcRoute;);

message! {
/// gRPC routes of Gateways or Services.
pub struct GrpcRoute {
    pub spec: GrpcRouteSpec,
}

/// `spec` of a GRPCRoute.
pub struct GrpcRouteSpec {
    pub parent_refs: Vec<ParentReference>,
    pub use_default_gateways: Unread,
    pub hostnames: Vec<String>,
    pub rules: Vec<GrpcRouteRule>,
}

/// Matches, filters and backends. Without matches every call matches.
pub struct GrpcRouteRule {
    pub name: Option<String>,
    pub matches: Vec<GrpcRouteMatch>,
    pub filters: Vec<RouteFilter>,
    pub backend_refs: Vec<HttpBackendRef>,
    pub session_persistence: Option<serde_json::Value>,
}

/// Conditions on a call; all must hold.
pub struct GrpcRouteMatch {
    pub method: Option<GrpcMethodMatch>,
    pub headers: Vec<ValueMatch>,
}

/// A condition on service and method.
pub struct GrpcMethodMatch {
    pub r#type: MatchType,
    pub service: Option<String>,
    pub method: Option<String>,
}
}
