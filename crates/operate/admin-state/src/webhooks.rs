//! Webhooks in the admin API.

use pilotfish_webhook::Certificates;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for which a missing certificate delays readiness. Without the permission to obtain one, the
/// process still serves proxies.
const PATIENCE: Duration = Duration::from_secs(30);

/// View of the webhooks for the admin API.
pub struct WebhookView {
    certificates: Arc<Certificates>,
    patient_until: Instant,
    template: String,
}

impl WebhookView {
    /// Returns a view that excuses a missing certificate for 30 seconds from now on.
    #[must_use]
    pub fn new(certificates: Arc<Certificates>, template: String) -> Self {
        Self { certificates, patient_until: Instant::now() + PATIENCE, template }
    }

    /// True while the server has no certificate yet, within the time limit: API servers would fail to
    /// connect.
    #[must_use]
    pub(crate) fn is_starting(&self) -> bool {
        !self.certificates.is_served() && Instant::now() < self.patient_until
    }

    /// Returns the template of sidecars.
    #[must_use]
    pub(crate) fn template(&self) -> &str {
        &self.template
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_certificate_delays_readiness_for_a_while_only() {
        let view = |patience| WebhookView {
            certificates: Arc::default(),
            patient_until: Instant::now() + patience,
            template: String::new(),
        };
        assert!(view(PATIENCE).is_starting());
        assert!(!view(Duration::ZERO).is_starting());
    }
}
