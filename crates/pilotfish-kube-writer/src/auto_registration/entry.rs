//! The WorkloadEntry that a workload of a WorkloadGroup gets. Pure.

use super::annotations;
use k8s_openapi::jiff::Timestamp;
use pilotfish_config::is_object_name;
use pilotfish_config::networking::WorkloadGroup;
use pilotfish_model::Typed;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The longest name of an object.
const LONGEST_NAME: usize = 253;
/// The API of WorkloadEntries and WorkloadGroups.
pub(super) const API: &str = "networking.istio.io/v1";
/// The former label for the locality; workloads do not take it over.
const LOCALITY_LABEL: &str = "istio-locality";
/// What the labels begin with that a workload may say of itself.
const OWN_LABELS: [&str; 3] = ["service.istio.io/", "topology.istio.io/", "topology.kubernetes.io/"];
/// The label of workloads that accept HBONE.
const TUNNEL_LABEL: &str = "networking.istio.io/tunnel";
/// The group that made an entry.
pub(super) const GROUP: &str = "istio.io/autoRegistrationGroup";
/// The annotation of entries that count only while their workload reports healthy.
pub(super) const HEALTH_CHECKS: &str = "proxy.istio.io/health-checks-enabled";

/// Which WorkloadEntry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a proxy's metadata has about its workload when it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationRequest {
    /// `AUTO_REGISTER_GROUP`: the WorkloadGroup that it belongs to; empty for none.
    pub group: String,
    /// `WORKLOAD_ENTRY`: the entry that was made for it by hand; empty for none.
    pub entry: String,
    /// Its namespace.
    pub namespace: String,
    /// Its first address; empty when it has none.
    pub address: String,
    /// Where it connects from, where that is known.
    pub peer: Option<IpAddr>,
    /// `NETWORK`.
    pub network: String,
    /// `region/zone/subzone`, as far as known.
    pub locality: String,
    /// `LABELS`.
    pub labels: BTreeMap<String, String>,
    /// Whether it takes HBONE.
    pub hbone: bool,
    /// Whether it has a readiness probe, so that it reports its health.
    pub health_checks: bool,
}

impl RegistrationRequest {
    /// The entry that it gets from its group. `None` without an address or namespace (such a workload cannot be reached), and
    /// when its metadata makes no valid object name.
    #[must_use]
    pub fn made_entry(&self) -> Option<EntryName> {
        if self.address.is_empty() || self.namespace.is_empty() {
            return None;
        }
        let mut name = format!("{}-{}", self.group, self.address.replace(':', "-"));
        if !self.network.is_empty() {
            name = format!("{name}-{}", self.network);
        }
        // The end distinguishes entries of one group, so a long name is cut at its beginning.
        let too_long = name.chars().count().saturating_sub(LONGEST_NAME);
        let name: String = name.chars().skip(too_long).collect();
        let name = if too_long > 0 { name.trim_start_matches(['-', '.']) } else { &name };
        // What comes from outside becomes part of a path, so nothing but names may pass.
        let is_name = is_object_name(name) && is_object_name(&self.namespace);
        is_name.then(|| EntryName { namespace: self.namespace.as_str().into(), name: name.into() })
    }
}

/// The WorkloadEntry of a workload that belongs to a group, connected to `controller`.
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
        // A group out of a file: no object of the API server owns the entry.
        "" => json!([]),
        uid => json!([{
            "apiVersion": API, "kind": "WorkloadGroup", "name": *meta.key.name, "uid": uid, "controller": true,
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

/// Of the workload itself, as far as these say only where it is and what it is called in telemetry; then of the template, then of the
/// group. Services select workloads by labels: which ones a workload belongs to is for the group to say, not for its proxy.
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
