//! Policies in listeners: access control, access logs, metrics and tracing.

use super::view::ListenerBase;
use crate::engine::{Cx, Query, Refusal, reference};
use crate::envoy::{TrafficClass, filters};
use crate::policy::security::{Filters, FiltersFor, Subject};
use crate::policy::telemetry::access_log::{self, AccessLogs};
use crate::policy::telemetry::tracing::{self, Traced};
use crate::policy::telemetry::{applicable, metrics};
use crate::policy::wasm::{Plugins, Traffic};
use crate::proxy::proxy_config::EffectiveProxyConfig;
use pilotfish_config::extensions::PluginPhase;
use pilotfish_config::telemetry::WorkloadMode;
use pilotfish_model::Origin;
use pilotfish_proto::Any;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use std::sync::Arc;

/// The filters and logs that policies put into the listeners of one class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policies {
    class: TrafficClass,
    security: Arc<Filters>,
    plugins: Plugins,
    metrics: Vec<Any>,
    /// Access logs of requests and connections.
    pub(crate) logs: AccessLogs,
    pub(crate) traced: Traced,
    pub(crate) provenance: Vec<Origin>,
    /// Plugins that the proxy cannot run.
    pub(crate) refused: Vec<Refusal>,
}

/// The policies for the listeners of one class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoliciesOf(pub(crate) Arc<ListenerBase>, pub(crate) TrafficClass);

impl Query for PoliciesOf {
    type Output = Policies;

    fn compute(&self, cx: &Cx<'_>) -> Policies {
        let Self(base, class) = self;
        let (namespace, labels) = (&base.scope.namespace, &base.labels);
        let role = if *class == TrafficClass::Inbound { WorkloadMode::Server } else { WorkloadMode::Client };
        let security = if *class == TrafficClass::Outbound {
            Arc::default()
        } else {
            let (namespace, labels) = (namespace.clone(), labels.clone());
            cx.get(&FiltersFor(Subject { namespace, labels, is_gateway: *class == TrafficClass::Gateway }))
        };
        let telemetries = applicable(cx, namespace, labels);
        let config = cx.get(&EffectiveProxyConfig(base.proxy_config.clone()));
        let plugins = Plugins::of(cx, namespace, labels, base.wasm);
        // Only Istio's Envoy build has the metrics filter.
        let metrics = match base.istio_filters {
            true => metrics::filters(cx, namespace, labels, *class),
            false => Vec::new(),
        };
        let mut provenance = security.provenance.clone();
        provenance.extend(plugins.provenance());
        provenance.extend(telemetries.iter().map(reference));
        Policies {
            logs: access_log::of(cx, &telemetries, role),
            traced: tracing::of(cx, &telemetries, role, &config, &base.tags),
            class: *class,
            security,
            refused: plugins.refused(),
            plugins,
            metrics,
            provenance,
        }
    }
}

impl Policies {
    /// Returns the HTTP filters for a port that precede those of every listener.
    pub(crate) fn http(&self, port: u32) -> Vec<HttpFilter> {
        let plugins = |phase| self.plugins.http(phase, self.traffic(port));
        let security = &*self.security;
        let mut out = security.external_http.clone();
        out.extend(plugins(PluginPhase::Authn));
        out.extend(security.authenticate.clone());
        out.extend(plugins(PluginPhase::Authz));
        out.extend(security.decide_http.iter().cloned());
        out.extend(plugins(PluginPhase::Stats));
        out.extend(plugins(PluginPhase::UnspecifiedPhase));
        out
    }

    /// Returns the metrics filters for requests.
    pub(crate) fn http_metrics(&self) -> impl Iterator<Item = HttpFilter> + '_ {
        self.metrics.iter().map(|config| filters::http_any(metrics::FILTER, config.clone()))
    }

    /// Returns the network filters for a port that precede those of the protocol.
    pub(crate) fn tcp(&self, port: u32) -> Vec<Filter> {
        let plugins = |phase| self.plugins.network(phase, self.traffic(port));
        let security = &*self.security;
        let mut out = security.external_tcp.clone();
        out.extend(plugins(PluginPhase::Authn));
        out.extend(plugins(PluginPhase::Authz));
        out.extend(security.decide_tcp.iter().cloned());
        out.extend(plugins(PluginPhase::Stats));
        out.extend(plugins(PluginPhase::UnspecifiedPhase));
        out.extend(self.tcp_metrics());
        out
    }

    /// Returns the metrics filters for TCP streams.
    pub(crate) fn tcp_metrics(&self) -> impl Iterator<Item = Filter> + '_ {
        self.metrics.iter().map(|config| filters::network_any(metrics::FILTER, config.clone()))
    }

    /// The network filters before a connection manager.
    pub(crate) fn before_http(&self, port: u32) -> Vec<Filter> {
        use PluginPhase::{Authn, Authz, Stats, UnspecifiedPhase};
        let phases = [Authn, Authz, Stats, UnspecifiedPhase].into_iter();
        phases.flat_map(|phase| self.plugins.network(phase, self.traffic(port))).collect()
    }

    fn traffic(&self, port: u32) -> Traffic {
        Traffic { class: self.class, port }
    }
}
