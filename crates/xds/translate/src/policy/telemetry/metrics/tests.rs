use super::*;
use crate::testing::yaml_world;
use pilotfish_model::{LabelMap, World};
use std::sync::Arc;

/// `name -dropped +tags -tags` of all metrics of each filter.
fn shown(world: &Arc<World>, app: &str, class: TrafficClass) -> Vec<Vec<String>> {
    let labels = [("app", app)].into_iter().collect();
    let memo = crate::engine::memo::Memo::new();
    let (current, _) = memo.advance(world.clone(), &pilotfish_model::ChangeSet::default());
    let telemetry = Filters { labels, class };
    let configs = memo.get(&current, &telemetry).0;
    let show = |metric: &MetricConfig| {
        let drop = if metric.drop { " dropped" } else { "" };
        let add: String = metric.dimensions.iter().map(|(tag, value)| format!(" +{tag}={value}")).collect();
        let remove: String = metric.tags_to_remove.iter().map(|tag| format!(" -{tag}")).collect();
        format!("{}{drop}{add}{remove}", metric.name)
    };
    configs.iter().map(|config| config.metrics.iter().map(show).collect()).collect()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Filters {
    labels: LabelMap,
    class: TrafficClass,
}

impl crate::engine::Query for Filters {
    type Output = Vec<PluginConfig>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<PluginConfig> {
        let packed = filters(cx, &"shop".into(), &self.labels, self.class);
        packed.iter().map(|any| prost::Message::decode(&*any.value).unwrap()).collect()
    }
}

#[test]
fn levels_add_to_each_other() {
    let world = yaml_world(
        "
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: mesh, namespace: istio-system}
spec:
  metrics:
  - providers: [{name: prometheus}]
    overrides:
    - match: {metric: REQUEST_COUNT}
      tagOverrides: {host: {value: request.host}, source_app: {operation: REMOVE}}
    - {match: {metric: REQUEST_DURATION, mode: SERVER}, disabled: true}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: plain, namespace: shop}
spec:
  selector: {matchLabels: {app: plain}}
  metrics:
  - overrides:
    - {match: {customMetric: mine, mode: SERVER}, tagOverrides: {team: {value: \"'blue'\"}}}
    - {match: {metric: ALL_METRICS, mode: CLIENT}, disabled: true}
",
    );
    let count = "requests_total +host=request.host -source_app";
    let duration = "request_duration_milliseconds dropped";
    assert_eq!(shown(&world, "web", TrafficClass::Outbound), [vec![count]]);
    assert_eq!(shown(&world, "web", TrafficClass::Inbound), [vec![count, duration]]);
    assert_eq!(shown(&world, "plain", TrafficClass::Inbound), [vec![count, duration, "mine +team='blue'"]]);
    assert!(shown(&world, "plain", TrafficClass::Outbound).is_empty());
    assert!(shown(&world, "plain", TrafficClass::Gateway).is_empty());
}

#[test]
fn nothing_is_measured_without_a_provider() {
    let without = yaml_world("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}");
    assert!(shown(&without, "web", TrafficClass::Inbound).is_empty());
    let unknown = yaml_world(
        "{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: a, namespace: shop},
          spec: {metrics: [{providers: [{name: nobody}]}]}}",
    );
    assert!(shown(&unknown, "web", TrafficClass::Inbound).is_empty());
    let plain = yaml_world(
        "{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: a, namespace: shop},
          spec: {metrics: [{providers: [{name: prometheus}]}]}}",
    );
    assert_eq!(shown(&plain, "web", TrafficClass::Inbound), [Vec::<String>::new()]);
}

#[test]
fn a_later_word_undoes_silence() {
    let world = yaml_world(
        "{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: a, namespace: shop},
          spec: {metrics: [{providers: [{name: prometheus}], overrides: [
            {disabled: true}, {match: {metric: REQUEST_SIZE, mode: SERVER}, disabled: false}]}]}}",
    );
    assert_eq!(shown(&world, "web", TrafficClass::Inbound), [vec!["request_bytes"]]);
    assert!(shown(&world, "web", TrafficClass::Outbound).is_empty());
}
