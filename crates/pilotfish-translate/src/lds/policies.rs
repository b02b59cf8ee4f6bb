//! What policies put into listeners: who may pass, what is logged and measured.

use super::filters::Side;
use super::view::Base;
use crate::security::{FiltersFor, Subject};
use crate::{Cx, Query};
use pilotfish_model::ObjectRef;
use pilotfish_proto::envoy::config::accesslog::v3::AccessLog;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use std::sync::Arc;

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
    /// What made them.
    pub(crate) provenance: Vec<ObjectRef>,
}

/// The policies of one side of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoliciesOf(pub(crate) Arc<Base>, pub(crate) Side);

impl Query for PoliciesOf {
    type Output = Policies;

    fn compute(&self, cx: &Cx<'_>) -> Policies {
        let Self(base, side) = self;
        let mut policies = Policies::default();
        if *side == Side::Server {
            let subject = Subject {
                namespace: base.scope.namespace.clone(),
                labels: base.labels.clone(),
                is_gateway: false,
            };
            let filters = cx.get(&FiltersFor(subject));
            let http = filters.ask_http.iter().chain(&filters.authenticate).chain(&filters.decide_http);
            policies.http.before_routing = http.cloned().collect();
            let tcp = filters.ask_tcp.iter().chain(&filters.decide_tcp);
            policies.tcp.before_proxy = tcp.cloned().collect();
            policies.provenance.clone_from(&filters.provenance);
        }
        policies
    }
}
