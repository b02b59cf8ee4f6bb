//! Metrics of a sync.

use prometheus::core::Collector;
use prometheus::{
    Gauge, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Histogram buckets of request durations in seconds.
const SECONDS: &[f64] = &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// All metrics of a sync. Label values are from closed sets: operations, codes of Polaris and states.
pub struct SyncMetrics {
    registry: Registry,
    requests: HistogramVec,
    /// Elements written, by operation and result: `done`, `transient`, `denied`, `refused`, `missing`.
    pub(crate) elements: IntCounterVec,
    /// Number of objects by state.
    pub(crate) objects: IntGaugeVec,
    /// Passes by extent and result.
    pub(crate) passes: IntCounterVec,
    /// Services that wait for a pass.
    pub queue: IntGauge,
    /// 1 while this replica writes.
    pub leader: IntGauge,
    last_success: Gauge,
}

impl SyncMetrics {
    /// Registers all metrics, at zero.
    ///
    /// # Errors
    /// When two metrics have the same name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let requests = HistogramVec::new(
            HistogramOpts::new("pilotfish_sync_request_seconds", "Requests to the other registry")
                .buckets(SECONDS.to_vec()),
            &["operation", "code"],
        )?;
        registry.register(Box::new(requests.clone()))?;
        let elements =
            counter("pilotfish_sync_elements_total", "Elements written", &["operation", "result"])?;
        let passes = counter("pilotfish_sync_passes_total", "Comparisons", &["extent", "result"])?;
        let objects = IntGaugeVec::new(Opts::new("pilotfish_sync_objects", "Objects by state"), &["state"])?;
        registry.register(Box::new(objects.clone()))?;
        let queue = gauge("pilotfish_sync_queue", "Services that wait for a pass")?;
        let leader = gauge("pilotfish_sync_leader", "1 while this replica writes")?;
        let last_success = Gauge::new(
            "pilotfish_sync_last_success_timestamp_seconds",
            "When everything was last found equal or made so",
        )?;
        registry.register(Box::new(last_success.clone()))?;
        Ok(Self { registry, requests, elements, objects, passes, queue, leader, last_success })
    }

    /// Records a request with its code, or `none` without an answer.
    pub(crate) fn request(&self, operation: &str, code: &str, took: Duration) {
        self.requests.with_label_values(&[operation, code]).observe(took.as_secs_f64());
    }

    pub(crate) fn succeeded(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_success.set(now.as_secs_f64());
    }

    /// Returns the names of all metrics.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        let Self { registry: _, requests, elements, objects, passes, queue, leader, last_success } = self;
        let all: [&dyn Collector; 7] = [requests, elements, objects, passes, queue, leader, last_success];
        all.iter().flat_map(|metric| metric.desc()).map(|description| description.fq_name.clone()).collect()
    }

    /// Returns the metrics in Prometheus text format.
    ///
    /// # Errors
    /// When a metric cannot be written.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
