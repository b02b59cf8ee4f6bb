//! Metrics of the process, with istiod's names for equal measurements.

use crate::ChangeMetrics;
use crate::ca_metrics::CaMetrics;
use crate::catalogue::{Catalogue, MetricDescription};
use crate::flow_metrics::FlowMetrics;
use crate::process_metrics::ProcessMetrics;
use crate::registration_metrics::RegistrationApiMetrics;
use crate::webhook_metrics::WebhookMetrics;
use pilotfish_api as api;
use pilotfish_model::{Kind, World};
use prometheus::core::Collector;
use prometheus::proto::{LabelPair, MetricFamily};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use std::time::{Duration, Instant};

/// Short name of a resource type, such as `cds`, for the label `type`.
pub type XdsType = &'static str;

/// All metrics. Label values come from closed sets; names of nodes and services belong in logs.
pub struct Metrics {
    registry: Registry,
    descriptions: Vec<MetricDescription>,
    started: Instant,
    pub clients: IntGauge,
    /// Sent responses, by type.
    pub pushes: IntCounterVec,
    /// Sent resources, by type; a response may have many, and an empty one none.
    pub resources_sent: IntCounterVec,
    /// Refusals of all types.
    pub rejects: IntCounterVec,
    /// Refusals by type, under istiod's separate names.
    reject_by_type: Vec<(XdsType, IntCounter)>,
    /// Requests with the nonce of an older response.
    pub expired_nonces: IntCounterVec,
    /// Types that clients requested and that are not served to them, by short name.
    pub unknown_types: IntCounterVec,
    /// Streams that were refused or ended with an error, by gRPC status code.
    pub stream_errors: IntCounterVec,
    /// Streams and calls that were refused or ended because of a limit, by limit.
    pub limits_exceeded: IntCounterVec,
    /// Reached limits of the admin server and of the webhooks, by server and limit.
    http_limits_exceeded: IntCounterVec,
    /// Time from a new world to the last response for a proxy.
    pub convergence: Histogram,
    /// Time from marking a stream to its handling by the stream's task.
    pub queue: Histogram,
    /// Size of responses in bytes.
    pub config_size: HistogramVec,
    /// Time to choose, encode and write a response, by type.
    pub push: HistogramVec,
    /// Time to write a response, including the wait for the client.
    pub send: Histogram,
    pub flow: FlowMetrics,
    /// Objects that validation refuses currently.
    pub rejected_configs: IntGauge,
    /// Names of gateways between networks that cannot be resolved currently.
    pub unresolved_gateways: IntGauge,
    pub changes: ChangeMetrics,
    pub kube: KubeMetrics,
    pub secure: SecureMetrics,
    pub ca: CaMetrics,
    /// 1 while the TLS files of the admin API are invalid and older ones stay in force.
    pub admin_tls_files_refused: IntGauge,
    /// 1 while its tokens or rules are invalid and older ones stay in force.
    pub admin_access_refused: IntGauge,
    /// 1 while the rules of issuers of tokens are invalid and older ones stay in force.
    pub jwt_rules_refused: IntGauge,
    /// Trace spans, by result: `sent`, `failed`, `dropped`.
    pub spans: IntCounterVec,
    /// Dropped log lines, as of the last reading.
    log_lines_dropped: IntCounter,
    pub webhooks: WebhookMetrics,
    registries: Registries,
    pub registration_api: RegistrationApiMetrics,
    services: IntGauge,
    virtual_services: IntGauge,
    uptime: Gauge,
    process: ProcessMetrics,
}

/// Metrics of live clusters.
pub struct KubeMetrics {
    /// Watch events, by cluster, kind and event: `listed`, `resumed`, `expired`, `failed`, `slow`.
    pub watches: IntCounterVec,
    /// Number of remote clusters that are read.
    pub remote_clusters: IntGauge,
    /// Number of times that readiness stopped waiting for a remote cluster.
    pub remote_timeouts: IntCounter,
    /// Statuses written, by kind and result: `stored`, `conflict`, `failed`.
    pub status_writes: IntCounterVec,
    /// 1 while this replica is the leader for status writes.
    pub status_leader: IntGauge,
    pub registrations: RegistrationMetrics,
}

/// Writes of WorkloadEntries for connecting workloads, by result.
pub struct RegistrationMetrics {
    pub registered: IntCounter,
    /// Connections recorded in existing entries.
    pub updated: IntCounter,
    /// Disconnections recorded in existing entries.
    pub unregistered: IntCounter,
    pub deleted: IntCounter,
    pub failed: IntCounter,
}

impl RegistrationMetrics {
    fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| r.counter(&format!("auto_registration_{name}_total"), help);
        Ok(Self {
            registered: counter("success", "WorkloadEntries made for workloads that connected")?,
            updated: counter("updates", "Connections noted in WorkloadEntries that were there")?,
            unregistered: counter("unregister", "Disconnections noted in WorkloadEntries")?,
            deleted: counter("deletes", "WorkloadEntries deleted because their workload is gone")?,
            failed: counter("errors", "Failed tries to write a WorkloadEntry")?,
        })
    }
}

impl KubeMetrics {
    fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        const TIMEOUTS: &str = "Remote clusters whose first list did not arrive before the timeout";
        Ok(Self {
            watches: r.counters(
                "pilotfish_kube_watch_events",
                "Events of Kubernetes watches, by cluster, kind and event",
                &["cluster", "kind", "event"],
            )?,
            remote_clusters: r.gauge("istiod_managed_clusters", "Remote clusters that are watched")?,
            remote_timeouts: r.register(IntCounter::new("remote_cluster_sync_timeouts_total", TIMEOUTS))?,
            status_writes: r.counters(
                "pilotfish_status_writes",
                "Statuses written to the API server, by kind and result",
                &["kind", "result"],
            )?,
            status_leader: r.gauge("pilotfish_status_leader", "1 while this replica writes status")?,
            registrations: RegistrationMetrics::new(r)?,
        })
    }

    /// Removes the values of a cluster that is no longer read: the number of cluster ids over time is
    /// unbounded.
    pub fn forget_cluster(&self, cluster: &str) {
        let families = self.watches.collect();
        for metric in families.iter().flat_map(MetricFamily::get_metric) {
            let label = |name: &str| {
                metric.get_label().iter().find(|label| label.name() == name).map_or("", LabelPair::value)
            };
            if label("cluster") == cluster {
                // Fails if the value has been removed.
                let _ = self.watches.remove_label_values(&[cluster, label("kind"), label("event")]);
            }
        }
    }
}

/// Metrics of xDS over TLS. Unauthenticated clients are counted by [`Metrics::stream_errors`] as
/// `UNAUTHENTICATED`, and those with an identity other than their node's as `PERMISSION_DENIED`.
pub struct SecureMetrics {
    /// TLS handshakes, by result: `completed`, `failed`, `timed_out`.
    pub handshakes: IntCounterVec,
    /// Streams with an authenticated client, by method: `certificate`, `token`, `jwt`.
    pub authenticated: IntCounterVec,
    /// 1 while the certificate files are invalid and older ones stay in force.
    pub files_refused: IntGauge,
}

impl SecureMetrics {
    fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        Ok(Self {
            handshakes: r.counters(
                "pilotfish_xds_tls_handshakes",
                "TLS handshakes of xDS, by result",
                &["result"],
            )?,
            authenticated: r.counters(
                "pilotfish_xds_authenticated",
                "Authenticated xDS streams over TLS, by method",
                &["method"],
            )?,
            files_refused: r.gauge(
                "pilotfish_xds_tls_files_refused",
                "1 while TLS files of xDS cannot be used and those before stay in force",
            )?,
        })
    }
}

/// Types whose refusals istiod counts under separate names.
const REJECT_TYPES: [XdsType; 4] = ["cds", "eds", "lds", "rds"];

const UNRESOLVED: &str = "Gateways between networks whose names cannot be resolved";

impl Metrics {
    /// Counts a reached limit of a server (`admin`, `webhooks`).
    pub fn limit_reached(&self, server: &'static str, limit: &'static str) {
        self.http_limits_exceeded.with_label_values(&[server, limit]).inc();
    }

    /// Number of times that the limit was reached.
    #[must_use]
    pub fn limits_reached(&self, server: &'static str, limit: &'static str) -> u64 {
        self.http_limits_exceeded.with_label_values(&[server, limit]).get()
    }

    /// Registers all metrics, at zero.
    ///
    /// # Errors
    /// If two metrics have one name, which is a bug.
    pub fn new(version: &str) -> Result<Self, prometheus::Error> {
        let catalogue = Catalogue::default();
        let metrics = Self::registered(&catalogue, version)?;
        let (registry, descriptions) = catalogue.finish();
        Ok(Self { registry, descriptions, ..metrics })
    }

    fn registered(r: &Catalogue, version: &str) -> Result<Self, prometheus::Error> {
        info(r, version)?;
        Ok(Self {
            clients: r.gauge("pilot_xds", "Proxies connected over xDS")?,
            pushes: r.counters("pilot_xds_pushes", "Responses sent, by type", &["type"])?,
            resources_sent: r.counters(
                "pilotfish_xds_resources_sent",
                "Resources sent, by type",
                &["type"],
            )?,
            rejects: rejects(r)?,
            reject_by_type: reject_counters(r)?,
            expired_nonces: r.counters("pilot_xds_expired_nonce", "Requests with an old nonce", &["type"])?,
            unknown_types: unknown_types(r)?,
            stream_errors: stream_errors(r)?,
            limits_exceeded: limits_exceeded(r)?,
            http_limits_exceeded: http_limits_exceeded(r)?,
            convergence: r
                .seconds("pilot_proxy_convergence_time", "Seconds from a new world to the last response")?,
            queue: r.seconds("pilot_proxy_queue_time", "Seconds that a proxy's push waited for its task")?,
            config_size: r.sizes_by(
                "pilot_xds_config_size_bytes",
                "Bytes of a response, by type",
                &["type"],
            )?,
            push: r.seconds_by(
                "pilot_xds_push_time",
                "Seconds of choosing, encoding and writing a response, by type",
                &["type"],
            )?,
            send: r.seconds(
                "pilot_xds_send_time",
                "Seconds of writing a response, with what it waited for a slow client",
            )?,
            flow: FlowMetrics::new(r)?,
            rejected_configs: r
                .gauge("pilot_total_rejected_configs", "Objects whose newest version is refused")?,
            unresolved_gateways: r.gauge("pilotfish_unresolved_gateways", UNRESOLVED)?,
            kube: KubeMetrics::new(r)?,
            changes: ChangeMetrics::new(r)?,
            secure: SecureMetrics::new(r)?,
            ca: CaMetrics::new(r)?,
            admin_tls_files_refused: r.gauge("pilotfish_admin_tls_files_refused", ADMIN_TLS_FILES)?,
            admin_access_refused: r.gauge("pilotfish_admin_access_refused", ADMIN_ACCESS)?,
            jwt_rules_refused: r.gauge("pilotfish_jwt_rules_refused", JWT_RULES)?,
            spans: r.counters("pilotfish_otlp_spans_total", SPANS, &["result"])?,
            log_lines_dropped: r.counter("pilotfish_log_lines_dropped", LOG_LINES)?,
            webhooks: WebhookMetrics::new(r)?,
            registries: Registries::new(r)?,
            registration_api: RegistrationApiMetrics::new(r)?,
            services: r.gauge("pilot_services", "Services known")?,
            virtual_services: r.gauge("pilot_virt_services", "VirtualServices known")?,
            uptime: r.float("istiod_uptime_seconds", "Seconds since the start")?,
            process: ProcessMetrics::new(r)?,
            started: Instant::now(),
            registry: Registry::default(),
            descriptions: Vec::new(),
        })
    }

    /// Sets the number of log lines dropped since the start.
    pub fn set_dropped_log_lines(&self, lines: u64) {
        self.log_lines_dropped.inc_by(lines.saturating_sub(self.log_lines_dropped.get()));
    }

    /// Sets the states of registries. Values of removed registries are dropped.
    pub fn set_registries(&self, registries: &[api::Registry]) {
        self.registries.reset();
        let Registries { failing, synced, services, endpoints, .. } = &self.registries;
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        for registry in registries {
            let name = &[registry.name.as_str()];
            // A replacement has the name of the registry that it replaces: the value is 1 if either fails.
            let failing = failing.with_label_values(name);
            failing.set(failing.get().max(i64::from(registry.failing_since.is_some())));
            if registry.replacing {
                continue;
            }
            synced.with_label_values(name).set(i64::from(registry.synced));
            services.with_label_values(name).set(count(registry.services));
            endpoints.with_label_values(name).set(count(registry.endpoints));
            if let Some(source) = &registry.source {
                self.registries.set_source(name, source);
            }
        }
    }

    /// Sets the time since the last sign of life of each source.
    pub fn set_source_silence(&self, sources: &[(String, Duration)]) {
        self.registries.silence.reset();
        for (source, silent_for) in sources {
            self.registries.silence.with_label_values(&[source.as_str()]).set(silent_for.as_secs_f64());
        }
    }

    /// Sets the numbers of registrations with this process.
    pub fn set_registration(&self, all: &api::Registration) {
        self.registration_api.registered.set(all);
    }

    /// Counts a response that a proxy refused.
    pub fn reject(&self, ty: XdsType) {
        self.rejects.with_label_values(&[ty]).inc();
        if let Some((_, counter)) = self.reject_by_type.iter().find(|(known, _)| *known == ty) {
            counter.inc();
        }
    }

    /// Descriptions of all metrics, by name.
    #[must_use]
    pub fn descriptions(&self) -> &[MetricDescription] {
        &self.descriptions
    }

    /// Metrics in the text format of Prometheus.
    ///
    /// # Errors
    /// If a value cannot be written as text.
    pub fn encode(&self, world: &World) -> Result<String, prometheus::Error> {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.services.set(count(world.service_count()));
        self.virtual_services.set(count(world.objects(Kind::VirtualService).count()));
        self.uptime.set(self.started.elapsed().as_secs_f64());
        self.process.read();
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

const ADMIN_TLS_FILES: &str =
    "1 while TLS files of the admin API cannot be used and those before stay in force";
const ADMIN_ACCESS: &str =
    "1 while tokens or rules of the admin API cannot be used and those before stay in force";
const JWT_RULES: &str = "1 while --jwt-rules cannot be used and the rules before stay in force";
const SPANS: &str = "Spans of traces, by what became of them";
const LOG_LINES: &str = "Lines of the log that were dropped because it was not read in time or not writable";
const LAG: &str = "Seconds since the product of a registry last answered well";

/// State of each registry, by its name.
struct Registries {
    failing: IntGaugeVec,
    synced: IntGaugeVec,
    services: IntGaugeVec,
    endpoints: IntGaugeVec,
    lag: GaugeVec,
    held: IntGaugeVec,
    problems: IntGaugeVec,
    objects: IntGaugeVec,
    silence: GaugeVec,
    requests: IntCounterVec,
    failures: IntCounterVec,
    holds: IntCounterVec,
}

impl Registries {
    fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        let gauges =
            |name: &str, help: &str| r.register(IntGaugeVec::new(Opts::new(name, help), &["registry"]));
        let counters = |name: &str, help: &str| r.counters(name, help, &["registry"]);
        Ok(Self {
            failing: gauges("pilotfish_registry_failing", "1 while a source of a registry cannot be read")?,
            synced: gauges("pilotfish_registry_synced", "1 once the first complete list was read")?,
            services: gauges("pilotfish_registry_services", "Services of a registry")?,
            endpoints: gauges("pilotfish_registry_endpoints", "Endpoints of a registry")?,
            lag: r
                .register(GaugeVec::new(Opts::new("pilotfish_registry_lag_seconds", LAG), &["registry"]))?,
            held: gauges(
                "pilotfish_registry_guard_held",
                "1 while an answer that takes away too much is held back",
            )?,
            problems: gauges(
                "pilotfish_registry_problems",
                "Things of a product that cannot be used as they are",
            )?,
            silence: source_silence(r)?,
            requests: counters(
                "pilotfish_registry_requests_total",
                "Requests to a product, or messages from it",
            )?,
            objects: gauges("pilotfish_registry_objects", "Objects that a registry without services brings")?,
            failures: counters(
                "pilotfish_registry_session_failures_total",
                "Sessions with a product that failed",
            )?,
            holds: counters("pilotfish_registry_guard_holds_total", "Answers that were held back")?,
        })
    }

    /// Drops all values, including those of removed registries.
    fn reset(&self) {
        let Self { failing, synced, services, endpoints, held, problems, objects, .. } = self;
        for gauges in [failing, synced, services, endpoints, held, problems, objects] {
            gauges.reset();
        }
        self.lag.reset();
        for counters in [&self.requests, &self.failures, &self.holds] {
            counters.reset();
        }
    }

    /// Sets the values that the source of a registry reports.
    fn set_source(&self, name: &[&str; 1], source: &api::RegistrySource) {
        if let Some(lag) = source.lag_seconds {
            self.lag.with_label_values(name).set(lag);
        }
        if let Some(objects) = source.objects {
            self.objects.with_label_values(name).set(i64::try_from(objects).unwrap_or(i64::MAX));
        }
        self.held.with_label_values(name).set(i64::from(source.held.is_some()));
        self.problems.with_label_values(name).set(i64::try_from(source.problem_count).unwrap_or(i64::MAX));
        self.requests.with_label_values(name).inc_by(source.requests);
        self.failures.with_label_values(name).inc_by(source.failures);
        self.holds.with_label_values(name).inc_by(source.holds);
    }
}

fn source_silence(r: &Catalogue) -> Result<GaugeVec, prometheus::Error> {
    const HELP: &str = "Seconds since a source gave a sign of life";
    r.register(GaugeVec::new(Opts::new("pilotfish_source_silent_seconds", HELP), &["source"]))
}

fn limits_exceeded(r: &Catalogue) -> Result<IntCounterVec, prometheus::Error> {
    const HELP: &str = "Streams and calls refused or ended by a limit, by limit";
    r.counters("pilotfish_xds_limits_exceeded", HELP, &["limit"])
}

fn http_limits_exceeded(r: &Catalogue) -> Result<IntCounterVec, prometheus::Error> {
    const HELP: &str = "Connections and requests that a limit refused or ended, by server and limit";
    r.counters("pilotfish_http_limits_exceeded", HELP, &["server", "limit"])
}

fn rejects(r: &Catalogue) -> Result<IntCounterVec, prometheus::Error> {
    r.counters("pilot_total_xds_rejects", "Responses refused by proxies, by type", &["type"])
}

fn unknown_types(r: &Catalogue) -> Result<IntCounterVec, prometheus::Error> {
    let help = "Types that clients asked for and that are not served to them";
    r.counters("pilotfish_xds_unknown_types", help, &["type"])
}

fn stream_errors(r: &Catalogue) -> Result<IntCounterVec, prometheus::Error> {
    let help = "Streams refused or ended with an error, by gRPC status";
    r.counters("pilot_total_xds_internal_errors", help, &["code"])
}

fn reject_counters(r: &Catalogue) -> Result<Vec<(XdsType, IntCounter)>, prometheus::Error> {
    let counter = |ty: XdsType| {
        Ok((ty, r.counter(&format!("pilot_xds_{ty}_reject"), &format!("Refused {ty} responses"))?))
    };
    REJECT_TYPES.into_iter().map(counter).collect()
}

/// Gauges with versions as labels, whose value is always 1.
fn info(r: &Catalogue, version: &str) -> Result<(), prometheus::Error> {
    let pilot = IntGaugeVec::new(Opts::new("pilot_info", "The version of this process"), &["version"]);
    r.register(pilot)?.with_label_values(&[version]).set(1);
    let build =
        IntGaugeVec::new(Opts::new("istio_build", "The build of this process"), &["component", "tag"]);
    r.register(build)?.with_label_values(&["pilot", version]).set(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Metrics;
    use pilotfish_api as api;
    use pilotfish_model::World;
    use std::time::Duration;

    #[test]
    fn metrics_have_istiods_names() {
        let metrics = Metrics::new("1.2.3").unwrap();
        metrics.pushes.with_label_values(&["cds"]).inc();
        metrics.reject("cds");
        metrics.set_dropped_log_lines(3);
        metrics.set_dropped_log_lines(5);
        let text = metrics.encode(&World::default()).unwrap();
        for line in
            ["pilot_xds 0", "pilot_xds_pushes{type=\"cds\"} 1", "pilot_xds_cds_reject 1", "pilot_services 0"]
        {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(
            text.contains("pilot_info{version=\"1.2.3\"} 1")
                && text.contains("\npilotfish_log_lines_dropped 5\n")
        );
    }

    #[test]
    fn silence_is_of_the_sources_that_are_there() {
        let metrics = Metrics::new("1.2.3").unwrap();
        let silent = |sources: &[(&str, u64)]| {
            let sources =
                sources.iter().map(|(name, seconds)| ((*name).to_owned(), Duration::from_secs(*seconds)));
            metrics.set_source_silence(&sources.collect::<Vec<_>>());
            let text = metrics.encode(&World::default()).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("pilotfish_source_silent_seconds"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let line = |name: &str, seconds: u64| {
            format!("pilotfish_source_silent_seconds{{source=\"{name}\"}} {seconds}")
        };
        assert_eq!(silent(&[("cluster", 31), ("files", 0)]), [line("cluster", 31), line("files", 0)]);
        assert_eq!(silent(&[("files", 2)]), [line("files", 2)]);
    }

    #[test]
    fn registries_fail_and_go() {
        let metrics = Metrics::new("1").unwrap();
        let registry = |name: &str, since: Option<&str>| api::Registry {
            name: name.to_owned(),
            failing_since: since.map(str::to_owned),
            ..api::Registry::default()
        };
        let lines = |all: &[api::Registry]| {
            metrics.set_registries(all);
            let text = metrics.encode(&World::default()).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("pilotfish_registry_failing"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(&[registry("a", None), registry("b", Some("noon"))]),
            ["pilotfish_registry_failing{registry=\"a\"} 0", "pilotfish_registry_failing{registry=\"b\"} 1"]
        );
        assert_eq!(lines(&[registry("a", None)]), ["pilotfish_registry_failing{registry=\"a\"} 0"]);
    }

    #[test]
    fn sources_of_registries_tell_about_themselves() {
        let metrics = Metrics::new("1").unwrap();
        let source = api::RegistrySource {
            lag_seconds: Some(1.5),
            requests: 7,
            failures: 2,
            holds: 1,
            held: Some(api::HeldAnswer::default()),
            problem_count: 3,
            ..api::RegistrySource::default()
        };
        let registry = api::Registry { name: "a".into(), source: Some(source), ..api::Registry::default() };
        for _ in 0..2 {
            metrics.set_registries(std::slice::from_ref(&registry));
        }
        let text = metrics.encode(&World::default()).unwrap();
        for (name, value) in [
            ("lag_seconds", "1.5"),
            ("requests_total", "7"),
            ("session_failures_total", "2"),
            ("guard_holds_total", "1"),
            ("guard_held", "1"),
            ("problems", "3"),
        ] {
            let line = format!("pilotfish_registry_{name}{{registry=\"a\"}} {value}");
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[test]
    fn a_cluster_that_is_gone_leaves_no_counters() {
        let metrics = Metrics::new("1").unwrap();
        for cluster in ["c1", "c2", "c\"3"] {
            for event in ["listed", "failed"] {
                metrics.kube.watches.with_label_values(&[cluster, "pods", event]).inc();
            }
        }
        metrics.kube.forget_cluster("c1");
        metrics.kube.forget_cluster("c\"3");
        metrics.kube.forget_cluster("never seen");
        use prometheus::core::Collector;
        let families = metrics.kube.watches.collect();
        assert_eq!(families[0].get_metric().len(), 2, "those of c2 are left");
    }
}
