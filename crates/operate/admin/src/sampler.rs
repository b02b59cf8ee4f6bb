//! Measurements of the last second, from the difference of two readings of the metrics.

use crate::Metrics;
use crate::process_metrics::Usage;
use pilotfish_api::v1::{Latency, Sample};
use prometheus::Histogram;
use prometheus::core::{Collector, Metric};
use prometheus::proto::MetricFamily;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One reading of monotonic values.
#[derive(Clone, Debug, Default)]
struct Reading {
    cpu: f64,
    pushes: f64,
    bytes: f64,
    rejects: f64,
    inbound: f64,
    convergence: Buckets,
    publish: Buckets,
}

/// Buckets of a histogram: upper bound, and cumulative count.
type Buckets = Vec<(f64, u64)>;

/// Source of samples from repeated readings of the metrics.
pub struct Sampler {
    before: Reading,
    at: Instant,
}

impl Sampler {
    /// Takes the first reading.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        Self { before: read(metrics, &Usage::read()), at: Instant::now() }
    }

    /// Takes a reading and returns the difference from the last one.
    pub fn next(&mut self, metrics: &Metrics) -> Sample {
        let usage = Usage::read();
        let (now, reading) = (Instant::now(), read(metrics, &usage));
        let before = std::mem::replace(&mut self.before, reading.clone());
        let seconds = now.duration_since(std::mem::replace(&mut self.at, now)).as_secs_f64().max(0.001);
        let rate = |now: f64, before: f64| round((now - before).max(0.0) / seconds);
        Sample {
            at: millis(SystemTime::now()),
            cpu: rate(reading.cpu, before.cpu),
            resident: u64::try_from(usage.resident).unwrap_or(0),
            proxies: u64::try_from(metrics.clients.get()).unwrap_or(0),
            pushes: rate(reading.pushes, before.pushes),
            bytes: rate(reading.bytes, before.bytes),
            rejects: rate(reading.rejects, before.rejects),
            inbound: rate(reading.inbound, before.inbound),
            convergence: latency(&before.convergence, &reading.convergence),
            publish: latency(&before.publish, &reading.publish),
        }
    }
}

/// Milliseconds since 1970, as in JavaScript.
#[must_use]
pub fn millis(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).map_or(0.0, |since| (since.as_secs_f64() * 1_000.0).round())
}

fn read(metrics: &Metrics, usage: &Usage) -> Reading {
    let counted = |families: Vec<MetricFamily>| -> f64 {
        families
            .iter()
            .flat_map(MetricFamily::get_metric)
            .map(|metric| metric.get_counter().get_value())
            .sum()
    };
    let sizes = metrics.config_size.collect();
    let sizes = sizes.iter().flat_map(MetricFamily::get_metric);
    Reading {
        cpu: usage.cpu,
        pushes: counted(metrics.pushes.collect()),
        bytes: sizes.map(|metric| metric.get_histogram().get_sample_sum()).sum(),
        rejects: counted(metrics.rejects.collect()),
        inbound: counted(metrics.flow.inbound_updates.collect()),
        convergence: buckets(&metrics.convergence),
        publish: buckets(&metrics.flow.publish),
    }
}

fn buckets(histogram: &Histogram) -> Buckets {
    let metric = histogram.metric();
    let histogram = metric.get_histogram();
    let all = histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    all.chain([(f64::INFINITY, histogram.get_sample_count())]).collect()
}

/// Quantiles of the values between two readings; `None` without values.
fn latency(before: &Buckets, after: &Buckets) -> Option<Latency> {
    let counts: Buckets = after
        .iter()
        .zip(before)
        .map(|((bound, after), (_, before))| (*bound, after.saturating_sub(*before)))
        .collect();
    let total = counts.last().map_or(0, |(_, count)| *count);
    (total > 0).then(|| Latency { p50: quantile(&counts, total, 0.5), p99: quantile(&counts, total, 0.99) })
}

/// Quantile as in Prometheus: linear within a bucket; values above the last bound count as that bound.
fn quantile(counts: &Buckets, total: u64, part: f64) -> f64 {
    let rank = total as f64 * part;
    let (mut lower, mut below) = (0.0, 0_u64);
    for (bound, count) in counts {
        if *count as f64 >= rank {
            if bound.is_infinite() {
                break;
            }
            let share = (rank - below as f64) / (count - below).max(1) as f64;
            return round((lower + (bound - lower) * share) * 1_000.0);
        }
        (lower, below) = (*bound, *count);
    }
    round(lower * 1_000.0)
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_tells_what_came_since_the_last() {
        let metrics = Metrics::new("1").unwrap();
        metrics.convergence.observe(9.0);
        let mut sampler = Sampler::new(&metrics);
        assert_eq!(sampler.next(&metrics).convergence, None, "what was before does not count");
        for _ in 0..100 {
            metrics.convergence.observe(0.0015);
            metrics.pushes.with_label_values(&["cds"]).inc();
        }
        metrics.config_size.with_label_values(&["cds"]).observe(5_000.0);
        let sample = sampler.next(&metrics);
        let latency = sample.convergence.unwrap();
        assert!((1.0..=2.0).contains(&latency.p50) && latency.p50 < latency.p99, "{latency:?}");
        assert!(sample.pushes > 0.0 && sample.bytes > sample.pushes, "{sample:?}");
        assert_eq!(sampler.next(&metrics).pushes, 0.0);
    }

    #[test]
    fn what_is_above_all_bounds_counts_as_the_last() {
        let metrics = Metrics::new("1").unwrap();
        let mut sampler = Sampler::new(&metrics);
        metrics.flow.publish.observe(100.0);
        assert_eq!(sampler.next(&metrics).publish, Some(Latency { p50: 30_000.0, p99: 30_000.0 }));
    }
}
