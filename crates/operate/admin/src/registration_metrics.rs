//! Metrics of registration: all zero if registration is disabled.

use pilotfish_api as api;
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use crate::catalogue::Catalogue;

/// Metrics of the listener of the registration API.
pub struct RegistrationApiMetrics {
    pub(crate) registered: RegisteredMetrics,
    /// Ended requests and streams, by method, protocol and gRPC code.
    pub requests: IntCounterVec,
    /// Duration of requests, by method, without streams.
    pub seconds: HistogramVec,
    /// Refusals because of a limit, by limit.
    pub limits_exceeded: IntCounterVec,
    pub connections: IntGauge,
    /// TLS handshakes, by result: `completed`, `failed`.
    pub handshakes: IntCounterVec,
    /// 1 while tokens or rules are invalid and older ones stay in force.
    pub access_refused: IntGauge,
    /// 1 while the certificate files are invalid and older ones stay in force.
    pub files_refused: IntGauge,
}

impl RegistrationApiMetrics {
    pub(crate) fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        Ok(Self {
            registered: RegisteredMetrics::new(r)?,
            requests: r.counters(
                "pilotfish_registration_api_requests_total",
                "Requests of the registration API, by gRPC code",
                &["method", "protocol", "code"],
            )?,
            seconds: r.seconds_by(
                "pilotfish_registration_api_seconds",
                "How long requests took, by method",
                &["method"],
            )?,
            limits_exceeded: r.counters(
                "pilotfish_registration_limits_exceeded",
                "Requests, streams and connections that a limit refused, by limit",
                &["limit"],
            )?,
            connections: r
                .gauge("pilotfish_registration_connections", "Open connections of the registration API")?,
            handshakes: r.counters(
                "pilotfish_registration_tls_handshakes",
                "TLS handshakes of the registration API, by result",
                &["result"],
            )?,
            access_refused: r.gauge(
                "pilotfish_registration_access_refused",
                "1 while tokens or rules cannot be used and those before stay in force",
            )?,
            files_refused: r.gauge(
                "pilotfish_registration_tls_files_refused",
                "1 while TLS files of registration cannot be used and those before stay in force",
            )?,
        })
    }
}

/// Metrics of registered instances.
pub(crate) struct RegisteredMetrics {
    instances: IntGaugeVec,
    /// Gauges with the functions for their values.
    gauges: Vec<(IntGauge, Value)>,
    requests: IntCounterVec,
    /// Counters with the functions for their values.
    counters: Vec<(IntCounter, Value)>,
}

type Value = fn(&api::Registration) -> u64;
/// Name, help and value.
type Figure = (&'static str, &'static str, Value);

const GAUGES: [Figure; 9] = [
    ("pilotfish_registration_services", "Services with a registered instance", |all| all.services as u64),
    ("pilotfish_registration_owners", "Identities with a registered instance", |all| all.owners as u64),
    ("pilotfish_registration_revision", "The revision of the store", |all| all.revision),
    ("pilotfish_registration_preserving", "Services whose lapsed leases are not believed", |all| {
        all.preserving.len() as u64
    }),
    ("pilotfish_registration_watches", "Open watches", |all| all.watches as u64),
    ("pilotfish_registration_history_events", "Changes over which a watch can resume", |all| {
        all.history_events as u64
    }),
    ("pilotfish_registration_history_bytes", "About the bytes of these", |all| all.history_bytes as u64),
    ("pilotfish_registration_store_bytes", "Bytes of the store on the disk", |all| {
        all.store.bytes.unwrap_or_default()
    }),
    ("pilotfish_registration_store_failing", "1 while the store cannot be written", |all| {
        all.store.trouble.is_some().into()
    }),
];

const COUNTERS: [Figure; 3] = [
    ("pilotfish_registration_lapsed_total", "Leases that lapsed", |all| all.lapsed),
    ("pilotfish_registration_expired_total", "Instances removed after a lapse or a drain", |all| all.expired),
    ("pilotfish_registration_preservations_total", "Lapses of a service that were not believed", |all| {
        all.preservations
    }),
];

impl RegisteredMetrics {
    pub(crate) fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        let gauges = GAUGES.iter().map(|(name, help, value)| Ok((r.gauge(name, help)?, *value)));
        let counters = COUNTERS.iter().map(|(name, help, value)| Ok((r.counter(name, help)?, *value)));
        Ok(Self {
            instances: r.register(IntGaugeVec::new(
                Opts::new("pilotfish_registration_instances", "Registered instances, by health"),
                &["health"],
            ))?,
            gauges: gauges.collect::<Result<_, prometheus::Error>>()?,
            requests: r.counters(
                "pilotfish_registration_requests_total",
                "Registrations, renewals and deregistrations, by result; each of a batch counts",
                &["operation", "result"],
            )?,
            counters: counters.collect::<Result<_, prometheus::Error>>()?,
        })
    }

    pub(crate) fn set(&self, all: &api::Registration) {
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        for (health, instances) in &all.instances {
            self.instances.with_label_values(&[health]).set(count(*instances as u64));
        }
        for (gauge, value) in &self.gauges {
            gauge.set(count(value(all)));
        }
        self.requests.reset();
        for api::RegistrationRequests { operation, result, count } in &all.requests {
            self.requests.with_label_values(&[operation, result]).inc_by(*count);
        }
        for (counter, value) in &self.counters {
            counter.reset();
            counter.inc_by(value(all));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;

    #[test]
    fn figures_are_those_of_now() {
        let catalogue = Catalogue::default();
        let metrics = RegisteredMetrics::new(&catalogue).unwrap();
        let requests = api::RegistrationRequests { operation: "renew".into(), result: "ok".into(), count: 7 };
        let all = api::Registration {
            instances: [("healthy".to_owned(), 3), ("lapsed".to_owned(), 1)].into(),
            services: 2,
            lapsed: 5,
            requests: vec![requests],
            store: api::RegistrationStore {
                trouble: Some("full".into()),
                ..api::RegistrationStore::default()
            },
            ..api::Registration::default()
        };
        for _ in 0..2 {
            metrics.set(&all);
        }
        let text = TextEncoder::new().encode_to_string(&catalogue.finish().0.gather()).unwrap();
        for line in [
            "pilotfish_registration_instances{health=\"healthy\"} 3",
            "pilotfish_registration_services 2",
            "pilotfish_registration_lapsed_total 5",
            "pilotfish_registration_store_failing 1",
            "pilotfish_registration_requests_total{operation=\"renew\",result=\"ok\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
