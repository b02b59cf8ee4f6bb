//! Between a registrar and checks: what is registered goes in, and what checks say comes back.

use crate::{CheckHandle, CheckRunner, Verdict};
use pilotfish_registration::{CheckResult, InstanceKey, Registrar, ServiceKey, ServicesChanged};
use std::collections::{BTreeSet, HashMap};

/// Checks what is registered, and reports to the registrar, for ever.
pub async fn check_instances(registrar: Registrar, handle: CheckHandle, runner: CheckRunner) {
    let followed = registrar.clone();
    let tell = move |Verdict { key, revision, failure }| {
        match &failure {
            Some(why) => tracing::debug!(instance = %key, %why, "an active check fails"),
            None => tracing::debug!(instance = %key, "active checks do not fail any more"),
        }
        registrar.report_checks([CheckResult { key, revision, has_failed: failure.is_some() }]);
    };
    tokio::join!(follow(&followed, &handle), runner.run(tell));
}

/// Follows services, and says what of them is to be checked.
async fn follow(registrar: &Registrar, handle: &CheckHandle) {
    let mut changes = registrar.service_changes();
    let mut known: HashMap<ServiceKey, BTreeSet<InstanceKey>> = HashMap::new();
    loop {
        let services: BTreeSet<ServiceKey> = match changes.next().await {
            ServicesChanged::All => known.keys().cloned().chain(registrar.services()).collect(),
            ServicesChanged::Some(services) => services,
        };
        for service in services {
            let checked = checked(registrar, &service, handle);
            let before = match checked.is_empty() {
                true => known.remove(&service),
                false => known.insert(service, checked.clone()),
            };
            before.unwrap_or_default().difference(&checked).for_each(|key| handle.remove(key));
        }
    }
}

/// Says which instances of a service are to be checked. Returns their names.
fn checked(registrar: &Registrar, service: &ServiceKey, handle: &CheckHandle) -> BTreeSet<InstanceKey> {
    let views = registrar.service(service).into_iter();
    let with_checks = views.filter(|view| !view.record.instance.checks.is_empty());
    with_checks
        .map(|view| {
            let key = view.record.instance.key.clone();
            handle.set(view.record);
            key
        })
        .collect()
}
