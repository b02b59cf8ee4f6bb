//! Metrics of webhooks: one by result, and those of istiod, which dashboards use.

use crate::catalogue::Catalogue;
use prometheus::{IntCounter, IntCounterVec};

/// Labels of a reviewed object. All values come from closed sets, independent of the client.
#[derive(Clone, Copy, Debug)]
pub struct ReviewedObject {
    pub group: &'static str,
    pub version: &'static str,
    /// Plural name of the kind.
    pub resource: &'static str,
}

pub struct WebhookMetrics {
    reviews: IntCounterVec,
    passed: IntCounterVec,
    failed: IntCounterVec,
    injection: IntCounter,
    injected: IntCounter,
    skipped: IntCounter,
    not_injected: IntCounter,
}

impl WebhookMetrics {
    pub(crate) fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        Ok(Self {
            reviews: r.counters(
                "pilotfish_webhook_reviews",
                "Objects reviewed for API servers, by webhook and result",
                &["webhook", "result"],
            )?,
            passed: r.counters(
                "galley_validation_passed",
                "Objects that validation let pass",
                &["group", "version", "resource"],
            )?,
            failed: r.counters(
                "galley_validation_failed",
                "Objects that validation refused, by reason",
                &["group", "version", "resource", "reason"],
            )?,
            injection: r.counter("sidecar_injection_requests_total", "Pods for which a sidecar was asked")?,
            injected: r.counter("sidecar_injection_success_total", "Pods that got a sidecar")?,
            skipped: r.counter(
                "sidecar_injection_skip_total",
                "Pods that get no sidecar, by their own settings or their namespace's",
            )?,
            not_injected: r.counter(
                "sidecar_injection_failure_total",
                "Pods refused because no sidecar could be made for them",
            )?,
        })
    }

    /// Counts a response of a webhook: `allowed`, `refused` or `error`.
    pub fn reviewed(&self, webhook: &str, result: &str) {
        self.reviews.with_label_values(&[webhook, result]).inc();
    }

    /// Counts a validation: `None` if the object may pass, or else the reason of the refusal.
    pub fn validated(&self, object: &ReviewedObject, refused: Option<&'static str>) {
        let ReviewedObject { group, version, resource } = *object;
        match refused {
            None => self.passed.with_label_values(&[group, version, resource]).inc(),
            Some(reason) => self.failed.with_label_values(&[group, version, resource, reason]).inc(),
        }
    }

    /// Counts an injection: true if the Pod received a sidecar, `None` if it needs none, false if it was
    /// refused.
    pub fn injected(&self, done: Option<bool>) {
        self.injection.inc();
        match done {
            Some(true) => self.injected.inc(),
            Some(false) => self.not_injected.inc(),
            None => self.skipped.inc(),
        }
    }
}
