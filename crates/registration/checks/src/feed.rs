//! Active health checks of registered instances: passes instances to the checks, and results to the
//! registrar.

use crate::{CheckHandle, CheckRunner, Verdict};
use pilotfish_admission::LogLimit;
use pilotfish_registration::{CheckResult, InstanceKey, Registrar, ServiceKey, ServicesChanged};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Feed of registered instances to the checks; ends when dropped.
pub struct CheckFeed {
    registrar: Registrar,
    checks: CheckHandle,
    /// Instances with checks that were passed on, by service.
    passed_on: BTreeMap<ServiceKey, BTreeSet<Arc<str>>>,
}

impl CheckFeed {
    /// Returns a feed of the registrar's instances.
    #[must_use]
    pub fn new(registrar: Registrar, checks: CheckHandle) -> Self {
        Self { registrar, checks, passed_on: BTreeMap::new() }
    }

    /// Passes on each change of an instance with checks. Does not return.
    pub async fn run(mut self) {
        let mut changes = self.registrar.service_changes();
        loop {
            match changes.next().await {
                ServicesChanged::All => {
                    let mut all: BTreeSet<ServiceKey> = self.passed_on.keys().cloned().collect();
                    all.extend(self.registrar.services());
                    all.iter().for_each(|key| self.pass_on(key));
                }
                ServicesChanged::Some(keys) => keys.iter().for_each(|key| self.pass_on(key)),
            }
        }
    }

    fn pass_on(&mut self, key: &ServiceKey) {
        let mut now = BTreeSet::new();
        for view in self.registrar.service(key) {
            if !view.record.instance.checks.is_empty() {
                now.insert(view.record.instance.key.id.clone());
                self.checks.set(view.record);
            }
        }
        let before = self.passed_on.remove(key).unwrap_or_default();
        for id in before.difference(&now) {
            self.checks.remove(&InstanceKey::new(key.namespace.clone(), key.service.clone(), id.clone()));
        }
        if !now.is_empty() {
            self.passed_on.insert(key.clone(), now);
        }
    }
}

/// Runs the checks, logs their results, and reports them to the registrar. Does not return.
pub async fn report_checks(runner: CheckRunner, registrar: Registrar) {
    let log = LogLimit::default();
    runner.run(|verdict| registrar.report_checks([result(verdict, &log)])).await;
}

/// Converts the verdict of a check for the registrar. Logging is rate-limited, because clients can cause any
/// number of verdicts.
fn result(verdict: Verdict, log: &LogLimit) -> CheckResult {
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
