//! Catalogue of metrics: each is registered with its description, so that docs/metrics.md can be checked
//! against the list.

use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};
use std::cell::RefCell;

/// Description of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// Name, without the suffixes of a histogram's series.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Help text of `/metrics`.
    pub help: String,
}

/// Registry that also records descriptions.
#[derive(Default)]
pub(crate) struct Catalogue {
    registry: Registry,
    descriptions: RefCell<Vec<MetricDescription>>,
}

/// Histogram bounds in seconds, for operations of a few milliseconds.
pub(crate) const FAST: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0];
/// Histogram bounds in bytes, for responses.
const SIZES: &[f64] = &[1.0, 1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7];

impl Catalogue {
    /// The registry, and the descriptions in alphabetical order.
    pub(crate) fn finish(self) -> (Registry, Vec<MetricDescription>) {
        let mut descriptions = self.descriptions.into_inner();
        descriptions.sort_by(|a, b| a.name.cmp(&b.name));
        (self.registry, descriptions)
    }

    pub(crate) fn register<C: Collector + Clone + 'static>(
        &self,
        metric: Result<C, prometheus::Error>,
    ) -> Result<C, prometheus::Error> {
        let metric = metric?;
        self.registry.register(Box::new(metric.clone()))?;
        let families = metric.collect();
        let kind = match families.first().map(MetricFamily::get_field_type) {
            Some(MetricType::COUNTER) => "counter",
            Some(MetricType::HISTOGRAM) => "histogram",
            _ => "gauge",
        };
        let described = metric.desc().into_iter().map(|description| MetricDescription {
            name: description.fq_name.clone(),
            kind,
            labels: description.variable_labels.clone(),
            help: description.help.clone(),
        });
        self.descriptions.borrow_mut().extend(described);
        Ok(metric)
    }

    pub(crate) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::new(name, help))
    }

    pub(crate) fn float(&self, name: &str, help: &str) -> Result<Gauge, prometheus::Error> {
        self.register(Gauge::new(name, help))
    }

    pub(crate) fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::new(name, help))
    }

    pub(crate) fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    pub(crate) fn seconds(&self, name: &str, help: &str) -> Result<Histogram, prometheus::Error> {
        self.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(FAST.to_vec())))
    }

    pub(crate) fn seconds_by(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(FAST.to_vec()), labels))
    }

    pub(crate) fn sizes_by(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(SIZES.to_vec()), labels))
    }
}
