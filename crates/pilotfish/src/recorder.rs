//! What is measured: each part of the process reports to a trait of its own, and all of them are implemented here.

use crate::control::{ControlObserver, Inbound, Trigger};
use pilotfish_admin::Metrics;
use pilotfish_proto::ResourceType;
use pilotfish_xds::{HandshakeResult, Nack, Push, Recorder};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records in the metrics what parts of the process report.
pub(crate) struct PrometheusRecorder(pub(crate) Arc<Metrics>);

impl Recorder for PrometheusRecorder {
    fn connected(&self) {
        self.0.clients.inc();
    }

    fn disconnected(&self) {
        self.0.clients.dec();
    }

    fn handshake(&self, result: HandshakeResult) {
        self.0.secure.handshakes.with_label_values(&[result.as_str()]).inc();
    }

    fn authenticated(&self, method: &'static str) {
        self.0.secure.authenticated.with_label_values(&[method]).inc();
    }

    fn pushed(&self, push: Push) {
        let ty = push.ty.short();
        self.0.pushes.with_label_values(&[ty]).inc();
        let resources = u64::try_from(push.resources).unwrap_or(u64::MAX);
        self.0.resources_sent.with_label_values(&[ty]).inc_by(resources);
        self.0.config_size.with_label_values(&[ty]).observe(push.bytes as f64);
    }

    fn send_time(&self, _ty: ResourceType, waited: Duration) {
        self.0.send.observe(waited.as_secs_f64());
    }

    fn rejected(&self, nack: &Nack<'_>) {
        let ty = nack.ty.short();
        self.0.reject(ty);
        tracing::warn!(
            reason = nack.reason(),
            resources = nack.resources(),
            r#type = ty,
            connection = nack.connection,
            "a proxy refused a response; what it had before stays in force"
        );
    }

    fn expired_nonce(&self, ty: ResourceType) {
        self.0.expired_nonces.with_label_values(&[ty.short()]).inc();
    }

    fn queue_time(&self, waited: Duration) {
        self.0.queue.observe(waited.as_secs_f64());
    }

    fn converged(&self, after: Duration) {
        self.0.convergence.observe(after.as_secs_f64());
    }

    fn stream_error(&self, code: &'static str) {
        self.0.stream_errors.with_label_values(&[code]).inc();
    }

    fn unknown_type(&self, type_url: &str) {
        tracing::debug!(type_url, "a proxy subscribed to a type that is not served");
    }
}

impl ControlObserver for PrometheusRecorder {
    fn received(&self, what: Inbound) {
        self.0.inbound_updates.with_label_values(&[what.as_str()]).inc();
    }

    fn rejected_objects(&self, count: i64) {
        self.0.rejected_configs.set(count);
    }

    fn debounced(&self, since: Instant) {
        self.0.debounce.observe(since.elapsed().as_secs_f64());
    }

    fn published(&self, why: Trigger) {
        self.0.push_triggers.with_label_values(&[why.as_str()]).inc();
    }

    fn computed(&self, since: Instant) {
        self.0.publish.observe(since.elapsed().as_secs_f64());
    }

    fn remote_clusters(&self, count: usize) {
        self.0.kube.remote_clusters.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn remote_cluster_timed_out(&self) {
        self.0.kube.remote_timeouts.inc();
    }

    fn unresolved_gateways(&self, count: usize) {
        self.0.unresolved_gateways.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn remote_cluster_removed(&self, cluster: &str) {
        self.0.kube.forget_cluster(cluster);
    }
}

impl pilotfish_kube::Observer for PrometheusRecorder {
    fn watch_event(&self, cluster: &str, kind: &str, event: pilotfish_kube::WatchEvent) {
        self.0.kube.watches.with_label_values(&[cluster, kind, event.word()]).inc();
    }
}

impl pilotfish_webhook::Observer for PrometheusRecorder {
    fn reviewed(&self, webhook: &'static str, outcome: pilotfish_webhook::Outcome) {
        self.0.webhook_reviews.with_label_values(&[webhook, outcome.word()]).inc();
    }
}

impl pilotfish_kube_writer::status::WriteObserver for PrometheusRecorder {
    fn written(&self, kind: &'static str, what: pilotfish_kube_writer::status::Written) {
        self.0.kube.status_writes.with_label_values(&[kind, what.word()]).inc();
    }
}

impl pilotfish_kube_writer::auto_registration::EntryObserver for PrometheusRecorder {
    fn entry(&self, what: pilotfish_kube_writer::auto_registration::Written) {
        use pilotfish_kube_writer::auto_registration::Written;
        let counters = &self.0.kube.registrations;
        match what {
            Written::Registered => counters.registered.inc(),
            Written::Updated => counters.updated.inc(),
            Written::Unregistered => counters.unregistered.inc(),
            Written::Deleted => counters.deleted.inc(),
            Written::Failed => counters.failed.inc(),
        }
    }
}
