//! Metrics: the filter `istio.stats` with the overrides of Telemetry objects. Requires Istio's Envoy build.

use super::applicable;
use crate::engine::Cx;
use crate::envoy::TrafficClass;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::telemetry::{
    IstioMetric, MetricSelector, Metrics, MetricsOverrides, TagOperation, TagOverride, WorkloadMode,
};
use pilotfish_model::{LabelMap, Namespace};
use pilotfish_proto::istio::{MetricConfig, PluginConfig};
use pilotfish_proto::{Any, any};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the filter, for HTTP and for TCP.
pub(crate) const FILTER: &str = "istio.stats";

/// The configurations of the metrics filters for a proxy's listeners of a class: one for each provider that
/// proxies report to, by name.
#[must_use]
pub(crate) fn filters(
    cx: &Cx<'_>,
    namespace: &Namespace,
    labels: &LabelMap,
    class: TrafficClass,
) -> Vec<Any> {
    let telemetries = applicable(cx, namespace, labels);
    let metrics: Vec<&Metrics> = telemetries.iter().flat_map(|telemetry| &telemetry.metrics).collect();
    let mesh = cx.mesh();
    let merged = merge(&metrics, &mesh);
    let prometheus =
        |name: &str| mesh.extension_provider(name).is_some_and(|provider| provider.prometheus.is_some());
    let reported = merged.iter().filter(|(provider, _)| prometheus(provider));
    reported.filter_map(|(_, provider)| provider.config(class)).map(|config| any(&config)).collect()
}

/// The role of the workload in the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Client,
    Server,
}

impl Role {
    fn of(mode: WorkloadMode) -> &'static [Self] {
        match mode {
            WorkloadMode::Client => &[Self::Client],
            WorkloadMode::Server => &[Self::Server],
            WorkloadMode::ClientAndServer => &[Self::Client, Self::Server],
        }
    }
}

/// Overrides of one provider's metrics.
#[derive(Debug, Default)]
struct Provider {
    /// By role and by metric, as Telemetry names it.
    changes: BTreeMap<(Role, String), Changed>,
    /// Roles in which nothing is reported.
    silent: BTreeSet<Role>,
    interval: Option<pilotfish_config::Duration>,
}

/// Overrides of one metric.
#[derive(Debug, Default)]
struct Changed {
    disabled: bool,
    tags: BTreeMap<String, TagOverride>,
}

/// Merges all metrics settings, by provider. Settings without providers apply to those of the settings
/// before; settings of providers that end up unused are dropped.
fn merge(metrics: &[&Metrics], mesh: &MeshConfig) -> BTreeMap<String, Provider> {
    let names = |metrics: &Metrics| -> Vec<String> {
        metrics.providers.iter().map(|provider| provider.name.clone()).collect()
    };
    let mut current = mesh.default_providers.metrics.clone();
    if metrics.is_empty() {
        return current.into_iter().map(|name| (name, Provider::default())).collect();
    }
    let named = metrics.iter().rev().map(|metrics| names(metrics)).find(|names| !names.is_empty());
    let in_use: BTreeSet<String> = named.unwrap_or_else(|| current.clone()).into_iter().collect();
    let mut out: BTreeMap<String, Provider> = BTreeMap::new();
    for metrics in metrics {
        let named = names(metrics);
        current = if named.is_empty() { current } else { named };
        for name in current.iter().filter(|name| in_use.contains(*name)) {
            let provider = out.entry(name.clone()).or_default();
            provider.interval = metrics.reporting_interval.or(provider.interval);
            metrics.overrides.iter().for_each(|change| provider.apply(change));
        }
    }
    out
}

impl Provider {
    fn apply(&mut self, change: &MetricsOverrides) {
        let selector = change.r#match.clone().unwrap_or_default();
        for role in Role::of(selector.mode) {
            if is_all(&selector) && change.disabled == Some(true) {
                self.silent.insert(*role);
                continue;
            }
            // Any later setting of a metric enables the filter again.
            self.silent.remove(role);
            for metric in selected(&selector) {
                let changed = self.changes.entry((*role, metric)).or_default();
                changed.disabled = change.disabled.unwrap_or(changed.disabled);
                let tags = change.tag_overrides.iter();
                changed.tags.extend(tags.map(|(name, tag)| (name.clone(), tag.clone())));
            }
        }
    }

    /// Returns the filter's configuration for a class of listeners; `None` if it is left out.
    fn config(&self, class: TrafficClass) -> Option<PluginConfig> {
        let inbound = class == TrafficClass::Inbound;
        let role = if inbound { Role::Server } else { Role::Client };
        if self.silent.contains(&role) {
            return None;
        }
        let changes = self.changes.iter().filter(|((of, _), _)| *of == role);
        Some(PluginConfig {
            // External clients choose the host header, so it must not become a metric label.
            disable_host_header_fallback: class != TrafficClass::Outbound,
            tcp_reporting_duration: self.interval.and_then(|interval| interval.0.try_into().ok()),
            metrics: changes.map(|((_, metric), changed)| changed.config(metric)).collect(),
            ..Default::default()
        })
    }
}

impl Changed {
    fn config(&self, metric: &str) -> MetricConfig {
        let removed = |tag: &TagOverride| tag.operation == TagOperation::Remove;
        let kept = self.tags.iter().filter(|(_, tag)| !removed(tag));
        let gone = self.tags.iter().filter(|(_, tag)| removed(tag));
        MetricConfig {
            dimensions: kept.map(|(name, tag)| (name.clone(), tag.value.clone())).collect(),
            name: reported_name(metric).to_owned(),
            tags_to_remove: gone.map(|(name, _)| name.clone()).collect(),
            drop: self.disabled,
            ..Default::default()
        }
    }
}

fn is_all(selector: &MetricSelector) -> bool {
    selector.custom_metric.is_none() && matches!(selector.metric, None | Some(IstioMetric::AllMetrics))
}

/// Returns the metrics of a selector, by their Telemetry names.
fn selected(selector: &MetricSelector) -> Vec<String> {
    if let Some(custom) = &selector.custom_metric {
        return vec![custom.clone()];
    }
    let one = selector.metric.filter(|metric| *metric != IstioMetric::AllMetrics);
    let chosen = NAMES.iter().filter(|(metric, ..)| one.is_none_or(|one| one == *metric));
    chosen.map(|(_, written, _)| (*written).to_owned()).collect()
}

/// Returns the filter's name for a metric.
fn reported_name(written: &str) -> &str {
    NAMES.iter().find(|(_, name, _)| *name == written).map_or(written, |(_, _, reported)| reported)
}

/// Istio's metrics, with their names in Telemetry and in Prometheus.
const NAMES: [(IstioMetric, &str, &str); 10] = [
    (IstioMetric::RequestCount, "REQUEST_COUNT", "requests_total"),
    (IstioMetric::RequestDuration, "REQUEST_DURATION", "request_duration_milliseconds"),
    (IstioMetric::RequestSize, "REQUEST_SIZE", "request_bytes"),
    (IstioMetric::ResponseSize, "RESPONSE_SIZE", "response_bytes"),
    (IstioMetric::TcpOpenedConnections, "TCP_OPENED_CONNECTIONS", "tcp_connections_opened_total"),
    (IstioMetric::TcpClosedConnections, "TCP_CLOSED_CONNECTIONS", "tcp_connections_closed_total"),
    (IstioMetric::TcpSentBytes, "TCP_SENT_BYTES", "tcp_sent_bytes_total"),
    (IstioMetric::TcpReceivedBytes, "TCP_RECEIVED_BYTES", "tcp_received_bytes_total"),
    (IstioMetric::GrpcRequestMessages, "GRPC_REQUEST_MESSAGES", "request_messages_total"),
    (IstioMetric::GrpcResponseMessages, "GRPC_RESPONSE_MESSAGES", "response_messages_total"),
];

#[cfg(test)]
mod tests;
