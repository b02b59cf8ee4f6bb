//! HTTPRoute.

use super::{HttpBackendRef, ParentReference, RouteFilter};
use crate::kinds::message::{kind, message};
use crate::{Duration, Unread};
use serde::{Deserialize, Serialize};

kind!(HttpRoute = HttpRoute;);

message! {
/// HTTP routes of Gateways or Services.
pub struct HttpRoute {
    pub spec: HttpRouteSpec,
}

/// A header or a query parameter that a request must have.
pub struct ValueMatch {
    pub r#type: MatchType,
    pub name: String,
    pub value: String,
}

/// Timeouts of a request with its retries, and of one attempt.
pub struct HttpRouteTimeouts {
    pub request: Option<Duration>,
    pub backend_request: Option<Duration>,
}

/// Retry policy: statuses, number of attempts and backoff.
pub struct HttpRouteRetry {
    pub codes: Vec<u16>,
    pub attempts: Option<i32>,
    pub backoff: Option<Duration>,
}
}

/// `spec` of an HTTPRoute. Without rules everything matches (and has no backend).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpRouteSpec {
    pub parent_refs: Vec<ParentReference>,
    pub use_default_gateways: Unread,
    pub hostnames: Vec<String>,
    pub rules: Vec<HttpRouteRule>,
}

impl Default for HttpRouteSpec {
    fn default() -> Self {
        Self {
            parent_refs: Vec::new(),
            use_default_gateways: Unread,
            hostnames: Vec::new(),
            rules: vec![HttpRouteRule::default()],
        }
    }
}

/// Matches, filters and backends. Without matches every path matches.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpRouteRule {
    pub name: Option<String>,
    pub matches: Vec<HttpRouteMatch>,
    pub filters: Vec<RouteFilter>,
    pub backend_refs: Vec<HttpBackendRef>,
    pub timeouts: Option<HttpRouteTimeouts>,
    pub retry: Option<HttpRouteRetry>,
    pub session_persistence: Option<serde_json::Value>,
}

impl Default for HttpRouteRule {
    fn default() -> Self {
        Self {
            name: None,
            matches: vec![HttpRouteMatch::default()],
            filters: Vec::new(),
            backend_refs: Vec::new(),
            timeouts: None,
            retry: None,
            session_persistence: None,
        }
    }
}

/// Conditions on a request; all must hold. Without a path every path matches.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpRouteMatch {
    pub path: HttpPathMatch,
    pub headers: Vec<ValueMatch>,
    pub query_params: Vec<ValueMatch>,
    pub method: Option<String>,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct HttpPathMatch {
    pub r#type: PathMatchType,
    pub value: String,
}

impl Default for HttpPathMatch {
    fn default() -> Self {
        Self { r#type: PathMatchType::PathPrefix, value: "/".to_owned() }
    }
}

/// Operator of a path match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum PathMatchType {
    Exact,
    #[default]
    PathPrefix,
    RegularExpression,
}

/// Operator of a match on a header, query parameter or gRPC method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum MatchType {
    #[default]
    Exact,
    RegularExpression,
}
