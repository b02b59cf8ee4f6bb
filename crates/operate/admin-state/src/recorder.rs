//! Metrics recorder: each part of the process reports to its own trait, and all of these are implemented
//! here.

use pilotfish_admin::{Metrics, ReviewedObject};
use pilotfish_admission::LogLimit;
use pilotfish_control_plane::control::{ControlObserver, Inbound, Trigger};
use pilotfish_control_plane::followers::{ChangeObserver, StatusObserver};
use pilotfish_control_plane::history::{History, Refusal};
use pilotfish_control_plane::likely_causes;
use pilotfish_model::Kind;
use pilotfish_proto::ResourceType;
use pilotfish_registration_server as registration;
use pilotfish_registry::Applied;
use pilotfish_xds::{HandshakeResult, Limit, Nack, Push, Recorder};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// API versions with their own metric label. Others are counted as `other`, because clients choose the names.
const VERSIONS: [&str; 6] = ["v1", "v1alpha1", "v1alpha2", "v1alpha3", "v1beta1", "v1beta2"];

/// Envoy's types that are not served, as URL and metric label. Other types are counted as `other`.
const UNKNOWN_TYPES: [(&str, &str); 3] = [
    ("type.googleapis.com/envoy.service.runtime.v3.Runtime", "rtds"),
    ("type.googleapis.com/envoy.config.route.v3.VirtualHost", "vhds"),
    ("type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration", "srds"),
];

/// Recorder of events of all parts of the process in the metrics.
pub struct PrometheusRecorder {
    metrics: Arc<Metrics>,
    /// Rate limit of log lines about refused responses.
    log: LogLimit,
    /// Finds the objects behind refused resources.
    suspects: OnceLock<Box<Suspects>>,
    /// History in which refusals are noted.
    history: OnceLock<Arc<History>>,
}

/// Function that returns the objects behind a refusal, the most likely cause first.
type Suspects = dyn Fn(&Nack<'_>) -> Vec<String> + Send + Sync;

impl PrometheusRecorder {
    /// Creates a recorder without a history and without the objects behind refusals.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, log: LogLimit::default(), suspects: OnceLock::new(), history: OnceLock::new() }
    }

    /// Sets the function for the objects in log lines about refusals. It is called only for refusals that are
    /// logged.
    pub fn name_suspects(&self, suspects: impl Fn(&Nack<'_>) -> Vec<String> + Send + Sync + 'static) {
        // There is one control plane, so the value is set once.
        let _ = self.suspects.set(Box::new(suspects));
    }

    /// Sets the history in which refusals are noted.
    pub fn note_refusals(&self, history: &Arc<History>) {
        let _ = self.history.set(history.clone());
    }

    /// Metrics in which the recorder counts.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

impl Recorder for PrometheusRecorder {
    fn connected(&self) {
        self.metrics.clients.inc();
    }

    fn disconnected(&self) {
        self.metrics.clients.dec();
    }

    fn handshake(&self, result: HandshakeResult) {
        self.metrics.secure.handshakes.with_label_values(&[result.as_str()]).inc();
    }

    fn authenticated(&self, method: &'static str) {
        self.metrics.secure.authenticated.with_label_values(&[method]).inc();
    }

    fn pushed(&self, push: Push) {
        let ty = push.ty.short();
        self.metrics.pushes.with_label_values(&[ty]).inc();
        let resources = u64::try_from(push.resources).unwrap_or(u64::MAX);
        self.metrics.resources_sent.with_label_values(&[ty]).inc_by(resources);
        self.metrics.config_size.with_label_values(&[ty]).observe(push.bytes as f64);
    }

    fn push_time(&self, ty: ResourceType, took: Duration) {
        self.metrics.push.with_label_values(&[ty.short()]).observe(took.as_secs_f64());
    }

    fn send_time(&self, _ty: ResourceType, took: Duration) {
        self.metrics.send.observe(took.as_secs_f64());
    }

    fn collection_rejected(&self, connection: &str, type_url: &str, error: &str) {
        self.metrics.reject("mcp");
        let Some(left_out) = self.log.allow(Instant::now()) else { return };
        tracing::warn!(connection, type_url, error, left_out, "another control plane refused configuration");
    }

    fn rejected(&self, nack: &Nack<'_>) {
        let ty = nack.ty.short();
        self.metrics.reject(ty);
        if let Some(history) = self.history.get() {
            history.refused(Refusal::from(nack));
        }
        // Clients can send any number of refusals, even of resources that they never got.
        let Some(left_out) = self.log.allow(Instant::now()) else { return };
        let made_by = self.suspects.get().map(|suspects| suspects(nack)).unwrap_or_default();
        tracing::warn!(
            reason = nack.reason(),
            made_by = likely_causes::in_words(&made_by),
            resources = nack.resources(),
            r#type = ty,
            connection = nack.connection,
            left_out,
            "a proxy refused a response; what it had before stays in force"
        );
    }

    fn expired_nonce(&self, ty: ResourceType) {
        self.metrics.expired_nonces.with_label_values(&[ty.short()]).inc();
    }

    fn queue_time(&self, waited: Duration) {
        self.metrics.queue.observe(waited.as_secs_f64());
    }

    fn converged(&self, after: Duration) {
        self.metrics.convergence.observe(after.as_secs_f64());
    }

    fn stream_error(&self, code: &'static str) {
        self.metrics.stream_errors.with_label_values(&[code]).inc();
    }

    fn limit_exceeded(&self, limit: Limit) {
        self.metrics.limits_exceeded.with_label_values(&[limit.as_str()]).inc();
    }

    fn unknown_type(&self, type_url: &str) {
        // Clients choose the URLs, so unknown ones share a label.
        let known = UNKNOWN_TYPES.iter().find(|(url, _)| type_url == *url);
        let label = known.map_or("other", |(_, short)| short);
        self.metrics.unknown_types.with_label_values(&[label]).inc();
    }
}

impl ControlObserver for PrometheusRecorder {
    fn received(&self, what: Inbound) {
        self.metrics.flow.inbound_updates.with_label_values(&[what.as_str()]).inc();
    }

    fn applied(&self, kind: Kind, what: Applied) {
        let (counters, ty) = match kind {
            Kind::Service => (&self.metrics.flow.registry_events, "Services"),
            Kind::EndpointSlice => (&self.metrics.flow.registry_events, "EndpointSlice"),
            Kind::Pod => (&self.metrics.flow.registry_events, "Pods"),
            Kind::Node => (&self.metrics.flow.registry_events, "Nodes"),
            Kind::Namespace => (&self.metrics.flow.registry_events, "Namespaces"),
            kind => (&self.metrics.flow.config_events, kind.name()),
        };
        for (event, count) in [("add", what.added), ("update", what.updated), ("delete", what.deleted)] {
            if count > 0 {
                counters.with_label_values(&[ty, event]).inc_by(count as u64);
            }
        }
    }

    fn rejected_objects(&self, count: i64) {
        self.metrics.rejected_configs.set(count);
    }

    fn debounced(&self, since: Instant) {
        self.metrics.flow.debounce.observe(since.elapsed().as_secs_f64());
    }

    fn published(&self, why: Trigger) {
        self.metrics.flow.push_triggers.with_label_values(&[why.as_str()]).inc();
    }

    fn computed(&self, since: Instant) {
        self.metrics.flow.publish.observe(since.elapsed().as_secs_f64());
    }

    fn remote_clusters(&self, count: usize) {
        self.metrics.kube.remote_clusters.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn remote_cluster_timed_out(&self) {
        self.metrics.kube.remote_timeouts.inc();
    }

    fn unresolved_gateways(&self, count: usize) {
        self.metrics.unresolved_gateways.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn remote_cluster_removed(&self, cluster: &str) {
        self.metrics.kube.forget_cluster(cluster);
    }
}

impl pilotfish_kube::Observer for PrometheusRecorder {
    fn watch_event(&self, cluster: &str, kind: &str, event: pilotfish_kube::WatchEvent) {
        self.metrics.kube.watches.with_label_values(&[cluster, kind, event.word()]).inc();
    }
}

impl pilotfish_webhook::Observer for PrometheusRecorder {
    fn reviewed(&self, webhook: &'static str, outcome: pilotfish_webhook::Outcome) {
        self.metrics.webhooks.reviewed(webhook, outcome.word());
    }

    fn validated(&self, kind: Kind, version: &str, refused: bool) {
        let object = ReviewedObject {
            group: kind.group(),
            version: VERSIONS.iter().find(|known| **known == version).copied().unwrap_or("other"),
            resource: kind.plural(),
        };
        self.metrics.webhooks.validated(&object, refused.then_some("invalid_resource"));
    }

    fn limit_reached(&self, limit: &'static str) {
        self.metrics.limit_reached("webhooks", limit);
    }

    fn injected(&self, outcome: pilotfish_webhook::Outcome, changed: bool) {
        use pilotfish_webhook::Outcome;
        self.metrics.webhooks.injected(match (outcome, changed) {
            (Outcome::Allowed, true) => Some(true),
            (Outcome::Allowed, false) => None,
            (Outcome::Refused | Outcome::Error, _) => Some(false),
        });
    }
}

impl pilotfish_otlp::Observer for PrometheusRecorder {
    fn spans(&self, outcome: pilotfish_otlp::Outcome, count: usize) {
        self.metrics.spans.with_label_values(&[outcome.word()]).inc_by(count as u64);
    }
}

impl pilotfish_kube_writer::status::WriteObserver for PrometheusRecorder {
    fn written(&self, kind: &'static str, what: pilotfish_kube_writer::status::Written) {
        self.metrics.kube.status_writes.with_label_values(&[kind, what.word()]).inc();
    }
}

impl StatusObserver for PrometheusRecorder {
    fn writes_status(&self, leads: bool) {
        self.metrics.kube.status_leader.set(i64::from(leads));
    }
}

impl ChangeObserver for PrometheusRecorder {
    fn change_published(&self, revision: u64) {
        self.metrics.changes.published(revision);
    }

    fn changes_acknowledged(&self, revision: u64) {
        self.metrics.changes.acknowledged(revision);
    }

    fn change_in_force(&self, after: Duration) {
        self.metrics.changes.in_force(after);
    }

    fn change_late(&self) {
        self.metrics.changes.late();
    }
}

impl pilotfish_kube_writer::auto_registration::EntryObserver for PrometheusRecorder {
    fn entry(&self, what: pilotfish_kube_writer::auto_registration::Written) {
        use pilotfish_kube_writer::auto_registration::Written;
        let counters = &self.metrics.kube.registrations;
        match what {
            Written::Registered => counters.registered.inc(),
            Written::Updated => counters.updated.inc(),
            Written::Unregistered => counters.unregistered.inc(),
            Written::Deleted => counters.deleted.inc(),
            Written::Failed => counters.failed.inc(),
        }
    }
}

impl registration::Recorder for PrometheusRecorder {
    fn request(
        &self,
        method: &'static str,
        protocol: registration::Protocol,
        code: &'static str,
        took: Duration,
    ) {
        let metrics = &self.metrics.registration_api;
        metrics.requests.with_label_values(&[method, protocol.as_str(), code]).inc();
        if !matches!(method, "Watch" | "Heartbeat") {
            metrics.seconds.with_label_values(&[method]).observe(took.as_secs_f64());
        }
    }

    fn limit_exceeded(&self, limit: &str) {
        self.metrics.registration_api.limits_exceeded.with_label_values(&[limit]).inc();
    }

    fn connected(&self) {
        self.metrics.registration_api.connections.inc();
    }

    fn disconnected(&self) {
        self.metrics.registration_api.connections.dec();
    }

    fn handshake(&self, completed: bool) {
        let result = if completed { "completed" } else { "failed" };
        self.metrics.registration_api.handshakes.with_label_values(&[result]).inc();
    }

    fn access_reloaded(&self, succeeded: bool) {
        self.metrics.registration_api.access_refused.set(i64::from(!succeeded));
    }
}
