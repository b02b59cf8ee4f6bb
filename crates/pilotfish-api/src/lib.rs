//! The JSON views of the admin API: what server, command line and dashboard agree on.
//!
//! Field names follow istiod's debug endpoints where it has them, so that tools written for it can read them. The types
//! stand apart from the model, which stays free to change.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `/ready`: whether proxies are served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether every registry handed over its first complete list and the process is not draining.
    pub ready: bool,
    /// What is missing, by name, with the reason where one is known.
    pub waiting_for: Vec<String>,
    /// Objects whose newest version is not in force, in one line each.
    pub problems: Vec<String>,
}

/// One registry in `/debug/registryz?registries=true` and on the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registry {
    /// `Kubernetes/Kubernetes`: the kind of the registry and its cluster.
    pub name: String,
    /// Whether its first complete list was taken in.
    pub synced: bool,
    /// Why it cannot be read now; what it said before stays in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Since when it cannot be read, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// Whether readiness went on without its first list, which took too long.
    #[serde(default, skip_serializing_if = "is_false")]
    pub given_up: bool,
    /// Whether it takes the place of the registry of the same name as soon as it is in sync.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replacing: bool,
    /// Services (hosts by namespace).
    pub services: usize,
    /// Endpoints of all services.
    pub endpoints: usize,
    /// Workloads.
    pub workloads: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
fn is_false(value: &bool) -> bool {
    !value
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// The name.
    pub name: String,
    /// The number.
    pub port: u32,
    /// The protocol, as Istio names it.
    pub protocol: String,
}

/// One service in `/debug/registryz`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// What belongs to the service rather than to its host name.
    #[serde(rename = "Attributes")]
    pub attributes: ServiceAttributes,
    /// The ports.
    pub ports: Vec<Port>,
    /// RFC 3339.
    pub creation_time: String,
    /// The host name.
    pub hostname: String,
    /// Virtual addresses by cluster.
    #[serde(rename = "clusterVIPs")]
    pub cluster_vips: BTreeMap<String, Vec<String>>,
    /// The address for clients of other clusters.
    pub default_address: String,
    /// How clients find endpoints, as in `ClientSideLB`.
    #[serde(rename = "Resolution")]
    pub resolution: String,
    /// Whether it lies outside the mesh.
    #[serde(rename = "MeshExternal")]
    pub mesh_external: bool,
    /// The object that made it, and its cluster.
    pub provenance: Provenance,
}

/// What belongs to a service rather than to its host name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceAttributes {
    /// The kind of its registry.
    pub service_registry: String,
    /// The short name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// Labels of the object.
    pub labels: BTreeMap<String, String>,
    /// Where it is visible; empty for the mesh-wide default.
    pub export_to: Vec<String>,
    /// Labels of the workloads that it selects.
    pub label_selectors: BTreeMap<String, String>,
}

/// What made something: an object with the cluster that it was read from, or an entry of a registry that has no objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Provenance {
    /// The kind of the object; empty for what a registry without objects has.
    pub kind: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The cluster.
    pub cluster: String,
    /// The registry, for what a registry without objects has.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub registry: String,
    /// The registry's own id for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
}

/// The endpoints of one service in `/debug/endpointz`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EndpointShards {
    /// Endpoints by registry, as in `Kubernetes/Kubernetes`.
    pub shards: BTreeMap<String, Vec<Endpoint>>,
    /// Identities of all endpoints.
    pub service_accounts: Vec<String>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Endpoint {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its port.
    pub endpoint_port: u32,
    /// The service port that it belongs to.
    pub service_port_name: String,
    /// Labels of the workload.
    pub labels: BTreeMap<String, String>,
    /// `region/zone/sub_zone`.
    pub locality: String,
    /// The network.
    pub network: String,
    /// The weight; 0 for none.
    pub lb_weight: u32,
    /// The identity.
    pub service_account: String,
    /// `Healthy`, `Unhealthy`, `Draining`, `Terminating` or `Unknown`.
    pub health_status: String,
    /// `istio` or `disabled`.
    #[serde(rename = "TLSMode")]
    pub tls_mode: String,
    /// The node.
    pub node_name: String,
    /// The workload.
    pub workload_name: String,
    /// The namespace.
    pub namespace: String,
    /// The object that made it.
    pub provenance: Provenance,
}

/// One configuration object in `/debug/configz`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigObject {
    /// The kind.
    pub kind: String,
    /// The API group; empty for Kubernetes' core group.
    pub group: String,
    /// Name, namespace, labels and so on.
    pub metadata: ConfigMetadata,
    /// The content, with defaults applied.
    pub spec: serde_json::Value,
}

/// Metadata of a configuration object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMetadata {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// RFC 3339.
    pub creation_timestamp: String,
    /// Where it was read: file and line, or cluster.
    pub origin: String,
}

/// An object whose newest version is not in force, or that is doubtful.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `error` or `warning`.
    pub severity: String,
    /// File and line.
    pub place: String,
    /// `VirtualService shop/catalog`; empty where no object could be read.
    pub object: String,
    /// The field.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What is likely meant.
    pub hint: String,
    /// What is in force now: `last-good`, `dropped` or `newest`.
    pub in_force: String,
}

/// `/debug/adsz`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ads {
    /// How many proxies are connected.
    pub total_clients: usize,
    /// The proxies.
    pub clients: Vec<AdsClient>,
}

/// One connected proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdsClient {
    /// `<node id>-<number>`.
    pub connection_id: String,
    /// RFC 3339.
    pub connected_at: String,
    /// The address that it connected from.
    pub address: String,
    /// `delta` or `sotw`.
    pub protocol: String,
    /// By type URL.
    pub watches: BTreeMap<String, Watch>,
}

/// What a proxy asked for and got of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// Whether it asked for all.
    pub wildcard: bool,
    /// How many names it asked for.
    pub subscribed: usize,
    /// The names, up to a limit.
    pub names: Vec<String>,
    /// Nonce of the newest response.
    pub nonce_sent: String,
    /// Nonce that it acknowledged last.
    pub nonce_acked: String,
    /// `SYNCED`, `STALE` (sent, not yet acknowledged), `NOT_SENT` or `ERROR` (refused).
    pub status: String,
    /// RFC 3339; empty before the first response.
    pub last_sent: String,
    /// The proxy's words of the newest refusal.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub last_error: String,
}

/// One proxy in `/debug/syncz`, in istiod's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncStatus {
    /// `CLUSTER_ID`.
    pub cluster_id: String,
    /// The node id's name part.
    pub proxy: String,
    /// `sidecar` or `router`.
    pub proxy_type: String,
    /// `ISTIO_VERSION`.
    pub istio_version: String,
    /// Nonces by `cluster_sent`, `cluster_acked`, `listener_sent`, ...
    #[serde(flatten)]
    pub nonces: BTreeMap<String, String>,
}
