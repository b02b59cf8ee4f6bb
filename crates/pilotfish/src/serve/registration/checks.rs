//! Active health checks of registered instances: passes instances to the checks, and results to the
//! registrar.

use pilotfish_admission::LogLimit;
use pilotfish_registration::{CheckResult, InstanceKey, Registrar, ServiceKey, ServicesChanged};
use pilotfish_registration_checks::{CheckHandle, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Feed of registered instances to the checks; ends when dropped.
pub(super) struct CheckFeed {
    registrar: Registrar,
    checks: CheckHandle,
    /// Instances with checks that were passed on, by service.
    told: BTreeMap<ServiceKey, BTreeSet<Arc<str>>>,
}

impl CheckFeed {
    pub(super) fn new(registrar: Registrar, checks: CheckHandle) -> Self {
        Self { registrar, checks, told: BTreeMap::new() }
    }

    pub(super) async fn run(mut self) {
        let mut changes = self.registrar.service_changes();
        loop {
            match changes.next().await {
                ServicesChanged::All => {
                    let mut all: BTreeSet<ServiceKey> = self.told.keys().cloned().collect();
                    all.extend(self.registrar.services());
                    all.iter().for_each(|key| self.tell(key));
                }
                ServicesChanged::Some(keys) => keys.iter().for_each(|key| self.tell(key)),
            }
        }
    }

    fn tell(&mut self, key: &ServiceKey) {
        let mut now = BTreeSet::new();
        for view in self.registrar.service(key) {
            if !view.record.instance.checks.is_empty() {
                now.insert(view.record.instance.key.id.clone());
                self.checks.set(view.record);
            }
        }
        let before = self.told.remove(key).unwrap_or_default();
        for id in before.difference(&now) {
            self.checks.remove(&InstanceKey::new(key.namespace.clone(), key.service.clone(), id.clone()));
        }
        if !now.is_empty() {
            self.told.insert(key.clone(), now);
        }
    }
}

/// Converts the verdict of a check for the registrar. Logging is rate-limited, because clients can cause any
/// number of verdicts.
pub(super) fn result(verdict: Verdict, log: &LogLimit) -> CheckResult {
    if let Some(left_out) = log.allow(Instant::now()) {
        match &verdict.failure {
            Some(failure) => {
                tracing::warn!(
                    instance = %verdict.key, %failure, left_out,
                    "a registered instance fails its check"
                );
            }
            None => {
                tracing::info!(
                    instance = %verdict.key, left_out,
                    "a registered instance passes its checks again"
                )
            }
        }
    }
    CheckResult { key: verdict.key, revision: verdict.revision, has_failed: verdict.failure.is_some() }
}
