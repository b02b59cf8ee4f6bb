//! Conversion of WorkloadEntries to workloads of the model.

use super::convert::{self, Context};
use crate::labels;
use pilotfish_config::networking::WorkloadEntry;
use pilotfish_model::{LabelMap, Origin, Typed, Workload, WorkloadKey, WorkloadKind};
use std::collections::BTreeMap;
use std::sync::Arc;

const HEALTH_CHECKS: &str = "proxy.istio.io/health-checks-enabled";
const GROUP: &str = "istio.io/autoRegistrationGroup";

/// Returns the key of an entry's workload.
pub(super) fn key(object: &Typed<WorkloadEntry>, context: &Context<'_>) -> WorkloadKey {
    WorkloadKey {
        kind: WorkloadKind::WorkloadEntry,
        namespace: object.namespace().clone(),
        name: object.key().name.clone(),
        cluster: context.settings.cluster.clone(),
    }
}

/// Converts a WorkloadEntry. Labels of its metadata take precedence over those of its `spec`.
pub(super) fn convert(object: &Typed<WorkloadEntry>, context: &Context<'_>) -> Workload {
    let meta = object.meta();
    let of_meta = meta.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    let own_labels = LabelMap::from(&object.labels).with(of_meta);
    let parts = convert::parts(object, &own_labels, object.namespace(), context);
    let named = |name: Option<&str>| name.filter(|name| !name.is_empty()).map(Arc::from);
    let workload_name = named(meta.annotations.get(GROUP).map(String::as_str))
        .or_else(|| named(own_labels.get(labels::WORKLOAD_NAME)));
    let address: Option<Arc<str>> = (!object.address.is_empty()).then(|| object.address.as_str().into());
    Workload {
        key: key(object, context),
        addresses: address.into_iter().collect(),
        ports: Arc::new(ports(&object.ports)),
        labels: parts.labels,
        locality: parts.locality,
        network: parts.network,
        weight: object.weight,
        service_account: labels::text(&object.service_account),
        identity: parts.identity,
        tls_mode: parts.tls_mode,
        node: Arc::default(),
        node_addresses: Arc::default(),
        workload_name: workload_name.unwrap_or_else(|| meta.key.name.clone()),
        hostname: Arc::default(),
        sub_domain: Arc::default(),
        host_network: false,
        ready: is_healthy(object, context.settings.workload_entry_health_checks),
        terminating: false,
        created: meta.created,
        provenance: Origin::object(meta.key.clone(), context.settings.cluster.clone()),
    }
}

fn ports(written: &BTreeMap<String, u32>) -> BTreeMap<Arc<str>, u32> {
    let set = written.iter().filter(|(_, number)| **number > 0);
    set.map(|(name, number)| (name.as_str().into(), *number)).collect()
}

/// True for an entry without health checks, or whose status reports it as healthy.
fn is_healthy(object: &Typed<WorkloadEntry>, checks: bool) -> bool {
    let annotation = object.meta().annotations.get(HEALTH_CHECKS);
    let is_checked =
        annotation.is_some_and(|value| matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"));
    !(checks && is_checked) || object.status.condition("Healthy") == Some(true)
}
