//! WorkloadEntry for a workload of a WorkloadGroup. Pure.

use super::annotations::{self, GROUP, HEALTH_CHECKS};
use k8s_openapi::jiff::Timestamp;
use pilotfish_config::is_object_name;
use pilotfish_config::networking::WorkloadGroup;
use pilotfish_model::Typed;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum length of an object name.
const LONGEST_NAME: usize = 253;
/// API version of WorkloadEntries and WorkloadGroups.
pub(super) const API: &str = "networking.istio.io/v1";
/// Legacy label for the locality; not copied to entries.
const LOCALITY_LABEL: &str = "istio-locality";
/// Prefixes of labels that a workload may set itself.
const OWN_LABELS: [&str; 3] = ["service.istio.io/", "topology.istio.io/", "topology.kubernetes.io/"];
/// Label of workloads that accept HBONE.
const TUNNEL_LABEL: &str = "networking.istio.io/tunnel";

/// Name of a WorkloadEntry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Metadata of a connecting proxy about its workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationRequest {
    /// `AUTO_REGISTER_GROUP`: its WorkloadGroup; empty for none.
    pub group: String,
    /// `WORKLOAD_ENTRY`: its existing entry, made by hand; empty for none.
    pub entry: String,
    pub namespace: String,
    /// First address; empty without one.
    pub address: String,
    /// Peer address of its connection, if known.
    pub peer: Option<IpAddr>,
    /// `NETWORK` of the metadata.
    pub network: String,
    /// Locality as `region/zone/subzone`, as far as known.
    pub locality: String,
    /// `LABELS` of the metadata.
    pub labels: BTreeMap<String, String>,
    /// True if it accepts HBONE.
    pub hbone: bool,
    /// True if it has a readiness probe, so that it reports its health.
    pub health_checks: bool,
}

impl RegistrationRequest {
    /// Entry to create for its group. `None` without an address or namespace (such a workload cannot be
    /// reached), and if its metadata makes no valid object name.
    #[must_use]
    pub fn made_entry(&self) -> Option<EntryName> {
        if self.address.is_empty() || self.namespace.is_empty() {
            return None;
        }
        let mut name = format!("{}-{}", self.group, self.address.replace(':', "-"));
        if !self.network.is_empty() {
            name = format!("{name}-{}", self.network);
        }
        // The end distinguishes entries of one group, so a long name is shortened at its beginning.
        let too_long = name.chars().count().saturating_sub(LONGEST_NAME);
        let name: String = name.chars().skip(too_long).collect();
        let name = if too_long > 0 { name.trim_start_matches(['-', '.']) } else { &name };
        // Untrusted input becomes part of a URL path, so only object names are accepted.
        let is_name = is_object_name(name) && is_object_name(&self.namespace);
        is_name.then(|| EntryName { namespace: self.namespace.as_str().into(), name: name.into() })
    }
}

/// WorkloadEntry of a workload that belongs to a group, connected to `controller`.
pub(super) fn make(
    name: &EntryName,
    group: &Typed<WorkloadGroup>,
    request: &RegistrationRequest,
    controller: &str,
    connected_at: Timestamp,
) -> Value {
    let labels = labels(group, request);
    let mut annotations = BTreeMap::from([(GROUP.to_owned(), request.group.clone())]);
    if let Some(metadata) = &group.metadata {
        annotations.extend(metadata.annotations.clone());
    }
    if request.health_checks {
        annotations.insert(HEALTH_CHECKS.to_owned(), "true".to_owned());
    }
    annotations.insert(annotations::CONTROLLER.to_owned(), controller.to_owned());
    annotations.insert(annotations::CONNECTED_AT.to_owned(), connected_at.to_string());
    let meta = group.meta();
    let owners = match &*meta.uid {
        // A group from a file: there is no owner in the API server.
        "" => json!([]),
        uid => json!([{
            "apiVersion": API,
            "kind": "WorkloadGroup",
            "name": *meta.key.name,
            "uid": uid,
            "controller": true,
        }]),
    };
    json!({
        "apiVersion": API,
        "kind": "WorkloadEntry",
        "metadata": {
            "name": *name.name,
            "namespace": *name.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owners,
        },
        "spec": spec(group, request, &labels),
    })
}

/// Labels of the template and the group, and those of the workload itself that only state its locality or its
/// name for telemetry. Services select workloads by labels, so the group decides to which ones a workload
/// belongs, not its proxy.
fn labels(group: &Typed<WorkloadGroup>, request: &RegistrationRequest) -> BTreeMap<String, String> {
    let is_its_own = |key: &str| OWN_LABELS.iter().any(|prefix| key.starts_with(prefix));
    let own = request.labels.iter().filter(|(key, _)| is_its_own(key));
    let mut labels: BTreeMap<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    if let Some(template) = &group.template {
        labels.extend(template.labels.clone());
    }
    if let Some(metadata) = &group.metadata {
        labels.extend(metadata.labels.clone());
    }
    labels.remove(LOCALITY_LABEL);
    if request.hbone {
        labels.entry(TUNNEL_LABEL.to_owned()).or_insert_with(|| "http".to_owned());
    }
    labels
}

fn spec(
    group: &Typed<WorkloadGroup>,
    request: &RegistrationRequest,
    labels: &BTreeMap<String, String>,
) -> Value {
    let template = group.template.clone().unwrap_or_default();
    let first = |own: &str, other: String| if own.is_empty() { other } else { own.to_owned() };
    let mut spec = Map::from_iter([("address".to_owned(), json!(request.address))]);
    let mut add = |field: &str, value: Value, is_set: bool| {
        if is_set {
            spec.insert(field.to_owned(), value);
        }
    };
    let network = first(&request.network, template.network);
    let locality = first(&request.locality, template.locality);
    add("labels", json!(labels), !labels.is_empty());
    add("ports", json!(template.ports), !template.ports.is_empty());
    add("network", json!(network), !network.is_empty());
    add("locality", json!(locality), !locality.is_empty());
    add("weight", json!(template.weight), template.weight > 0);
    add("serviceAccount", json!(template.service_account), !template.service_account.is_empty());
    Value::Object(spec)
}
