//! What policies put into listeners: who may pass, what is logged and measured.

use super::filters::{self, Side};
use super::view::Base;
use crate::security::{FiltersFor, Subject};
use crate::telemetry::metrics;
use crate::wasm::{Plugins, Traffic};
use crate::{Cx, Query};
use pilotfish_config::extensions::PluginPhase;
use pilotfish_model::ObjectRef;
use pilotfish_proto::envoy::config::accesslog::v3::AccessLog;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use std::sync::Arc;

/// What policies put into an HTTP connection manager.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HttpPolicies {
    /// Filters that ask somebody else whether a request passes.
    ask: Vec<HttpFilter>,
    /// Filters that find out who made a request.
    authenticate: Vec<HttpFilter>,
    /// Filters that decide whether a request passes.
    decide: Vec<HttpFilter>,
    /// Plugins, between the others.
    plugins: Arc<Plugins>,
    /// Filters that measure.
    pub(crate) telemetry: Vec<HttpFilter>,
    /// Where requests are logged.
    pub(crate) access_log: Vec<AccessLog>,
}

/// What policies put before a TCP proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TcpPolicies {
    /// Filters that ask somebody else whether a connection passes.
    ask: Vec<Filter>,
    /// Filters that decide whether a connection passes.
    decide: Vec<Filter>,
    /// Plugins, between the others.
    plugins: Arc<Plugins>,
    /// Filters that measure.
    pub(crate) telemetry: Vec<Filter>,
    /// Where connections are logged.
    pub(crate) access_log: Vec<AccessLog>,
}

impl HttpPolicies {
    /// The filters that a request passes before it is routed, in the order of Istio.
    pub(crate) fn before_routing(&self, traffic: Traffic) -> Vec<HttpFilter> {
        let plugins = |phase| self.plugins.http(phase, traffic);
        let mut list = self.ask.clone();
        list.extend(plugins(PluginPhase::Authn));
        list.extend(self.authenticate.iter().cloned());
        list.extend(plugins(PluginPhase::Authz));
        list.extend(self.decide.iter().cloned());
        list.extend(plugins(PluginPhase::Stats));
        list.extend(plugins(PluginPhase::UnspecifiedPhase));
        list
    }
}

impl TcpPolicies {
    /// The filters that a connection passes before it is proxied, in the order of Istio.
    pub(crate) fn before_proxy(&self, traffic: Traffic) -> Vec<Filter> {
        let plugins = |phase| self.plugins.network(phase, traffic);
        let mut list = self.ask.clone();
        list.extend(plugins(PluginPhase::Authn));
        list.extend(plugins(PluginPhase::Authz));
        list.extend(self.decide.iter().cloned());
        list.extend(plugins(PluginPhase::Stats));
        list.extend(plugins(PluginPhase::UnspecifiedPhase));
        list.extend(self.telemetry.iter().cloned());
        list
    }

    /// The plugins that look at a connection before requests are found in it.
    pub(crate) fn before_http(&self, traffic: Traffic) -> Vec<Filter> {
        const PHASES: [PluginPhase; 4] =
            [PluginPhase::Authn, PluginPhase::Authz, PluginPhase::Stats, PluginPhase::UnspecifiedPhase];
        PHASES.into_iter().flat_map(|phase| self.plugins.network(phase, traffic)).collect()
    }
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
        if *side != Side::Client {
            let subject = Subject {
                namespace: base.scope.namespace.clone(),
                labels: base.labels.clone(),
                is_gateway: *side == Side::Gateway,
            };
            let filters = cx.get(&FiltersFor(subject));
            policies.http.ask.clone_from(&filters.ask_http);
            policies.http.authenticate.extend(filters.authenticate.iter().cloned());
            policies.http.decide.clone_from(&filters.decide_http);
            policies.tcp.ask.clone_from(&filters.ask_tcp);
            policies.tcp.decide.clone_from(&filters.decide_tcp);
            policies.provenance.clone_from(&filters.provenance);
        }
        // Modules are fetched by Istio's agent, and only Istio's Envoy measures.
        if base.istio_filters {
            policies.extend(cx, base, *side);
        }
        policies
    }
}

impl Policies {
    /// Adds plugins and metrics.
    fn extend(&mut self, cx: &Cx<'_>, base: &Base, side: Side) {
        let plugins = Arc::new(Plugins::of(cx, &base.scope.namespace, &base.labels));
        self.provenance.extend(plugins.provenance());
        self.http.plugins = plugins.clone();
        self.tcp.plugins = plugins;
        let stats = metrics::filters(cx, &base.scope.namespace, &base.labels, side.class());
        self.http.telemetry =
            stats.iter().map(|any| filters::http_any(metrics::FILTER, any.clone())).collect();
        self.tcp.telemetry =
            stats.into_iter().map(|any| filters::network_any(metrics::FILTER, any)).collect();
    }
}
