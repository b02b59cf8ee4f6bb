//! Metrics of changes on their way from sources to a world.

use crate::catalogue::Catalogue;
use prometheus::{Histogram, IntCounterVec};

pub struct FlowMetrics {
    /// Published worlds, by kind of change.
    pub push_triggers: IntCounterVec,
    /// Changes received from sources, by kind.
    pub inbound_updates: IntCounterVec,
    /// Kubernetes objects of registries that were added, updated or deleted, by kind and event.
    pub registry_events: IntCounterVec,
    /// Other objects that were added, updated or deleted, by kind and event.
    pub config_events: IntCounterVec,
    /// Time from the first change to the published world.
    pub debounce: Histogram,
    /// Time to compute the effects of a new world.
    pub publish: Histogram,
}

impl FlowMetrics {
    pub(crate) fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        Ok(Self {
            push_triggers: r.counters(
                "pilot_push_triggers",
                "Worlds published, by what changed",
                &["type"],
            )?,
            inbound_updates: r.counters(
                "pilot_inbound_updates",
                "Changes received from sources, by kind",
                &["type"],
            )?,
            registry_events: r.counters(
                "pilot_k8s_reg_events",
                "Services, EndpointSlices, Pods, Nodes and Namespaces that changed, by kind and event",
                &["type", "event"],
            )?,
            config_events: r.counters(
                "pilot_k8s_cfg_events",
                "Other objects that changed, by kind and event",
                &["type", "event"],
            )?,
            debounce: r
                .seconds("pilot_debounce_time", "Seconds from the first change to the published world")?,
            publish: r
                .seconds("pilot_pushcontext_init_seconds", "Seconds of computing what a new world changes")?,
        })
    }
}
