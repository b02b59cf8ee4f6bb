//! What policies put into listeners: who may pass, what is logged and measured.

use super::filters::Side;
use super::view::Base;
use crate::Cx;
use pilotfish_proto::envoy::config::accesslog::v3::AccessLog;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

/// What policies put into an HTTP connection manager.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HttpPolicies {
    /// Filters that decide whether a request passes.
    pub(crate) before_routing: Vec<HttpFilter>,
    /// Filters that measure.
    pub(crate) telemetry: Vec<HttpFilter>,
    /// Where requests are logged.
    pub(crate) access_log: Vec<AccessLog>,
}

/// What policies put before a TCP proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TcpPolicies {
    /// Filters that decide whether a connection passes.
    pub(crate) before_proxy: Vec<Filter>,
    /// Filters that measure.
    pub(crate) telemetry: Vec<Filter>,
    /// Where connections are logged.
    pub(crate) access_log: Vec<AccessLog>,
}

/// What policies say of one side of a proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Policies {
    /// Of requests.
    pub(crate) http: HttpPolicies,
    /// Of streams.
    pub(crate) tcp: TcpPolicies,
    /// Of connections that no filter chain takes.
    pub(crate) listener_log: Vec<AccessLog>,
}

impl Policies {
    /// The policies of one side of a proxy.
    pub(crate) fn of(_cx: &Cx<'_>, _base: &Base, _side: Side) -> Self {
        Self::default()
    }
}
