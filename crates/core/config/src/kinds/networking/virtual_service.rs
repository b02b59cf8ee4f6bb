//! VirtualService: routing rules for hosts.

use crate::kinds::message::{enumeration, kind, message};
use crate::{Base64, Duration, StringMatch};
use std::collections::BTreeMap;

kind!(VirtualService = VirtualService;);

/// Maximum number of conditions of HTTP routes in a VirtualService, including its delegates. A route without
/// conditions counts as one.
pub const MAX_CONDITIONS: usize = 16_384;

impl VirtualService {
    /// The conditions of its own HTTP routes.
    #[must_use]
    pub fn conditions(&self) -> usize {
        self.http.iter().map(HttpRoute::conditions).sum()
    }
}

impl HttpRoute {
    /// Its conditions; one for a route that takes every request.
    #[must_use]
    pub fn conditions(&self) -> usize {
        self.r#match.len().max(1)
    }
}

message! {
/// Routes of some hosts.
pub struct VirtualService {
    pub hosts: Vec<String>,
    pub gateways: Vec<String>,
    pub http: Vec<HttpRoute>,
    pub tls: Vec<TlsRoute>,
    pub tcp: Vec<TcpRoute>,
    pub export_to: Vec<String>,
}

/// A service, a subset of it and a port.
pub struct Destination {
    pub host: String,
    pub subset: String,
    pub port: Option<PortSelector>,
}

/// A port by number.
pub struct PortSelector {
    pub number: u32,
}

/// An HTTP route; the first one that matches is used.
pub struct HttpRoute {
    pub name: String,
    pub r#match: Vec<HttpMatchRequest>,
    pub route: Vec<HttpRouteDestination>,
    pub redirect: Option<HttpRedirect>,
    pub direct_response: Option<HttpDirectResponse>,
    pub delegate: Option<Delegate>,
    pub rewrite: Option<HttpRewrite>,
    pub timeout: Option<Duration>,
    pub retries: Option<HttpRetry>,
    pub fault: Option<HttpFaultInjection>,
    pub mirror: Option<Destination>,
    pub mirrors: Vec<HttpMirrorPolicy>,
    #[serde(alias = "mirror_percent")]
    pub mirror_percent: Option<u32>,
    pub mirror_percentage: Option<Percent>,
    pub cors_policy: Option<CorsPolicy>,
    pub headers: Option<Headers>,
}

/// Reference to the VirtualService with the routes below a match.
pub struct Delegate {
    pub name: String,
    pub namespace: String,
}

/// Header operations on requests and responses.
pub struct Headers {
    pub request: Option<HeaderOperations>,
    pub response: Option<HeaderOperations>,
}

/// Headers to set, add and remove.
pub struct HeaderOperations {
    pub set: BTreeMap<String, String>,
    pub add: BTreeMap<String, String>,
    pub remove: Vec<String>,
}

/// A route for TLS connections, by SNI.
pub struct TlsRoute {
    pub r#match: Vec<TlsMatchAttributes>,
    pub route: Vec<RouteDestination>,
}

/// A route for TCP connections.
pub struct TcpRoute {
    pub r#match: Vec<L4MatchAttributes>,
    pub route: Vec<RouteDestination>,
}

/// Conditions on an HTTP request; all that are set must hold.
pub struct HttpMatchRequest {
    pub name: String,
    pub uri: Option<StringMatch>,
    pub scheme: Option<StringMatch>,
    pub method: Option<StringMatch>,
    pub authority: Option<StringMatch>,
    pub headers: BTreeMap<String, StringMatch>,
    pub port: u32,
    pub source_labels: BTreeMap<String, String>,
    pub gateways: Vec<String>,
    pub query_params: BTreeMap<String, StringMatch>,
    pub ignore_uri_case: bool,
    pub without_headers: BTreeMap<String, StringMatch>,
    pub source_namespace: String,
    pub stat_prefix: String,
}

/// Weighted destination of an HTTP route.
pub struct HttpRouteDestination {
    pub destination: Option<Destination>,
    pub weight: i32,
    pub headers: Option<Headers>,
}

/// Weighted destination of a TLS or TCP route.
pub struct RouteDestination {
    pub destination: Option<Destination>,
    pub weight: i32,
}

/// Conditions on a TCP connection.
pub struct L4MatchAttributes {
    pub destination_subnets: Vec<String>,
    pub port: u32,
    pub source_subnet: String,
    pub source_labels: BTreeMap<String, String>,
    pub gateways: Vec<String>,
    pub source_namespace: String,
}

/// Conditions on a TLS connection.
pub struct TlsMatchAttributes {
    pub sni_hosts: Vec<String>,
    pub destination_subnets: Vec<String>,
    pub port: u32,
    pub source_labels: BTreeMap<String, String>,
    pub gateways: Vec<String>,
    pub source_namespace: String,
}

/// Redirect response. `port` and `derive_port` are a oneof.
pub struct HttpRedirect {
    pub uri: String,
    /// Replaces the matched prefix; takes precedence over `uri`.
    pub prefix_rewrite: Option<String>,
    pub authority: String,
    pub port: Option<u32>,
    pub derive_port: Option<RedirectPortSelection>,
    pub scheme: String,
    pub redirect_code: u32,
}

/// Response of the proxy itself.
pub struct HttpDirectResponse {
    pub status: u32,
    pub body: Option<HttpBody>,
}

/// A body; a oneof.
pub struct HttpBody {
    pub string: Option<String>,
    pub bytes: Option<Base64>,
}

/// Changes of path and authority of a forwarded request.
pub struct HttpRewrite {
    pub uri: String,
    pub authority: String,
    pub uri_regex_rewrite: Option<RegexRewrite>,
}

/// A rewrite by regular expression.
pub struct RegexRewrite {
    pub r#match: String,
    pub rewrite: String,
}

/// Retry policy: number of attempts, conditions and backoff.
pub struct HttpRetry {
    pub attempts: i32,
    pub per_try_timeout: Option<Duration>,
    pub retry_on: String,
    pub retry_remote_localities: Option<bool>,
    pub retry_ignore_previous_hosts: Option<bool>,
    pub backoff: Option<Duration>,
}

/// Cross-origin policy (CORS) that the proxy enforces.
pub struct CorsPolicy {
    /// Deprecated form of `allow_origins`, exact matches.
    pub allow_origin: Vec<String>,
    pub allow_origins: Vec<StringMatch>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    pub expose_headers: Vec<String>,
    pub max_age: Option<Duration>,
    pub allow_credentials: Option<bool>,
    pub unmatched_preflights: UnmatchedPreflights,
}

/// Injected delays and errors.
pub struct HttpFaultInjection {
    pub delay: Option<Delay>,
    pub abort: Option<Abort>,
}

/// Delay before a request is forwarded. The two delays are a oneof.
pub struct Delay {
    /// Deprecated form of `percentage`, in whole percents.
    pub percent: i32,
    pub fixed_delay: Option<Duration>,
    pub exponential_delay: Option<Duration>,
    pub percentage: Option<Percent>,
}

/// Error response in place of forwarding. The three errors are a oneof.
pub struct Abort {
    /// Deprecated form of `percentage`, in whole percents.
    pub percent: i32,
    pub http_status: Option<i32>,
    pub grpc_status: Option<String>,
    pub http2_error: Option<String>,
    pub percentage: Option<Percent>,
}

/// A copy of requests sent to another destination.
pub struct HttpMirrorPolicy {
    pub destination: Option<Destination>,
    pub percentage: Option<Percent>,
}

/// Percentage, from 0.0 to 100.0.
#[derive(Copy)]
pub struct Percent {
    pub value: f64,
}
}

enumeration! {
/// Source of a redirect's port.
pub enum RedirectPortSelection {
    #[default]
    FromProtocolDefault,
    FromRequestPort,
}

/// Handling of preflight requests from an origin that is not allowed.
pub enum UnmatchedPreflights {
    #[default]
    Unspecified,
    Forward,
    Ignore,
}
}

/// The names of gRPC's statuses; a status's number is its place in the list.
pub const GRPC_STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
