//! JSON views of the admin API, shared by server, command line and dashboard.
//!
//! Field names follow istiod's debug endpoints where those exist, so that its tools can read them. The types
//! are separate from the model, which stays free to change.

mod registration;
pub mod v1;
mod words;

pub use registration::{Registration, RegistrationRequests, RegistrationStore};
pub use words::{causes, counted};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Readiness, `/ready`. The lists are empty for clients that may not see debug pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// True if every registry completed its initial list and the process is not draining.
    pub ready: bool,
    /// Verdict, with causes only for clients that may see debug pages. `None` before it was first computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<v1::PlaneVerdict>,
    /// Conditions that are not met, with the reason if it is known: the first 50.
    pub waiting_for: Vec<String>,
    /// Number of conditions that are not met.
    #[serde(default)]
    pub waiting_for_count: usize,
    /// Problems, one line each: unreadable registries, refusals of proxies, findings of the analysis, and
    /// objects whose newest version is not in force. The first 50 of each kind.
    pub problems: Vec<String>,
    /// Total number of problem lines.
    #[serde(default)]
    pub problem_count: usize,
}

/// One registry in `/debug/registryz?registries=true` and on the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registry {
    /// Name with kind and cluster, such as `Kubernetes/Kubernetes`.
    pub name: String,
    /// True if its initial list is complete.
    pub synced: bool,
    /// Reason why it cannot be read now; earlier data stays in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Time since which it cannot be read, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// True if readiness stopped waiting for its initial list after a timeout.
    #[serde(default, skip_serializing_if = "is_false")]
    pub given_up: bool,
    /// True if it will replace the registry of the same name once it is in sync.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replacing: bool,
    /// Services (hosts by namespace).
    pub services: usize,
    pub endpoints: usize,
    pub workloads: usize,
    /// Services that lose to those of another registry, at most 1,000.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub losers: Arc<[LosingService]>,
    /// State of its source; `None` for registries that read objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RegistrySource>,
}

/// State of the source of a registry without objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrySource {
    /// Time of the last successful response, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<String>,
    /// Seconds since then: an upper bound for the lag of the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Number of requests sent since the start, or of messages from a source that pushes.
    pub requests: u64,
    /// Number of sessions since the start: each connects and reads everything.
    pub sessions: u64,
    /// Number of failed sessions.
    pub failures: u64,
    /// Responses held back by the guard against mass change since the start.
    pub holds: u64,
    /// Response that is held back now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldAnswer>,
    /// Number of its objects, for a source of objects instead of services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// Number of unusable entries, such as invalid names and hosts with two services.
    pub problem_count: usize,
    /// First 100 unusable entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A read that lacks most of what a source has, and waits for a second one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldAnswer {
    /// Kind of the missing entries: `endpoints` for a registry, or else the plural of an object kind.
    #[serde(default)]
    pub of: String,
    /// Time of the read, RFC 3339.
    pub since: String,
    /// Time of the second read, RFC 3339.
    pub until: String,
    /// Number of entries in force.
    pub endpoints: usize,
    /// Number of entries in the response.
    pub would_leave: usize,
}

impl fmt::Display for HeldAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, until, endpoints, would_leave, .. } = self;
        write!(
            f,
            "a read that leaves {would_leave} of {endpoints} {of} is held back until a second one after \
             {until} confirms it"
        )
    }
}

/// A service that loses to a service of another registry with the same host and namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LosingService {
    pub hostname: String,
    pub namespace: String,
    /// Name of the registry whose service is used.
    pub winner: String,
    /// Reason, and use of the losing service's endpoints.
    pub reason: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
fn is_false(value: &bool) -> bool {
    !value
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Name that endpoints refer to.
    pub name: String,
    /// Port number that clients connect to.
    pub port: u32,
    /// Application protocol: `Http`, `Grpc`, `Tcp`, ...; `Unsupported` if it is not declared.
    pub protocol: String,
}

/// One service in `/debug/registryz`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Attributes of the service that do not belong to its host name.
    #[serde(rename = "Attributes")]
    pub attributes: ServiceAttributes,
    /// Ports in the order written.
    pub ports: Vec<Port>,
    /// Creation time of its object, RFC 3339; empty if it is unknown.
    pub creation_time: String,
    /// Full host name, such as `web.shop.svc.cluster.local`.
    pub hostname: String,
    /// Virtual addresses by cluster.
    #[serde(rename = "clusterVIPs")]
    pub cluster_vips: BTreeMap<String, Vec<String>>,
    /// Address for clients of other clusters.
    pub default_address: String,
    /// Endpoint discovery of clients, such as `ClientSideLB`.
    #[serde(rename = "Resolution")]
    pub resolution: String,
    /// True if it is outside the mesh.
    #[serde(rename = "MeshExternal")]
    pub mesh_external: bool,
    /// Object that defines it, and its cluster.
    pub provenance: Provenance,
}

/// Attributes of a service that do not belong to its host name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceAttributes {
    /// Kind of its registry: `Kubernetes`, `External`, ...
    pub service_registry: String,
    /// Short name, such as `web`; for a ServiceEntry, the host.
    pub name: String,
    /// Namespace that defines it.
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    /// Visibility; empty for the mesh-wide default.
    pub export_to: Vec<String>,
    /// Labels of the selected workloads.
    pub label_selectors: BTreeMap<String, String>,
}

/// Origin: an object with the cluster that it was read from, or an entry of a registry without objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Provenance {
    /// Object kind, as in YAML.
    pub kind: String,
    /// Object namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
    /// Cluster that it was read from.
    pub cluster: String,
    /// Registry, for entries of a registry without objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub registry: String,
    /// Id of the entry in the registry.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
}

/// Endpoints of one service in `/debug/endpointz`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EndpointShards {
    /// Endpoints by registry, as in `Kubernetes/Kubernetes`.
    pub shards: BTreeMap<String, Vec<Endpoint>>,
    /// Identities of all endpoints.
    pub service_accounts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Endpoint {
    /// IP addresses, one host name, or the path of a Unix socket.
    pub addresses: Vec<String>,
    /// Port number; 0 for a Unix socket.
    pub endpoint_port: u32,
    /// Name of its service port.
    pub service_port_name: String,
    pub labels: BTreeMap<String, String>,
    pub locality: String,
    /// Network that it is reached in; empty for the default one.
    pub network: String,
    /// Load balancing weight; 0 without one.
    pub lb_weight: u32,
    /// SPIFFE id of the workload; empty without one.
    pub service_account: String,
    /// `Healthy`, `Unhealthy`, `Draining`, `Terminating` or `Unknown`.
    pub health_status: String,
    /// TLS mode: `istio` or `disabled`.
    #[serde(rename = "TLSMode")]
    pub tls_mode: String,
    /// Node that it runs on; empty if it is unknown.
    pub node_name: String,
    /// Name of its Deployment or other workload, for telemetry.
    pub workload_name: String,
    pub namespace: String,
    /// Object that defines it.
    pub provenance: Provenance,
}

/// One configuration object in `/debug/configz`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigObject {
    /// Kind, as in YAML.
    pub kind: String,
    /// API group; empty for Kubernetes' core group.
    pub group: String,
    pub metadata: ConfigMetadata,
    /// `spec` in force, with defaults applied.
    pub spec: serde_json::Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMetadata {
    pub name: String,
    /// `metadata.namespace`; empty for cluster-scoped kinds.
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Creation time of its object, RFC 3339; empty if it is unknown.
    pub creation_timestamp: String,
    /// File and line, or the cluster that it was read from.
    pub origin: String,
}

/// An object whose newest version is not in force, or that has warnings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `error`, `warning` or `info`.
    pub severity: String,
    /// Code of the analysis, such as `IST0101`; empty for other problems.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// File and line, such as `shop.yaml:12`.
    pub place: String,
    /// Object name, such as `VirtualService shop/catalog`; empty if no object could be read.
    pub object: String,
    /// Path of the field, such as `spec.http[0].route`.
    pub path: String,
    pub message: String,
    /// Likely correction, or empty.
    pub hint: String,
    /// Configuration in force: `last-good`, `dropped`, `closed` or `newest`.
    pub in_force: String,
}

/// Response of `/debug/adsz`, in istiod's format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ads {
    /// Number of connected proxies.
    pub total_clients: usize,
    /// Proxies by connection id.
    pub clients: Vec<AdsClient>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdsClient {
    /// Id of the stream: `<node id>-<number>`.
    pub connection_id: String,
    /// Time of its connection, RFC 3339.
    pub connected_at: String,
    pub address: String,
    /// Variant of xDS: `delta` or `sotw`.
    pub protocol: String,
    /// Metadata of the node; for a single proxy only.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// Subscriptions by type URL.
    pub watches: BTreeMap<String, Watch>,
}

/// Subscription and responses of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// True for all resources of the type.
    pub wildcard: bool,
    /// Number of subscribed names.
    pub subscribed: usize,
    /// Subscribed names in order, at most 100.
    pub names: Vec<String>,
    /// Nonce of the newest response; empty before the first.
    pub nonce_sent: String,
    /// Nonce of the last response that it acknowledged; empty before the first.
    pub nonce_acked: String,
    /// `SYNCED`, `STALE` (sent, not yet acknowledged), `NOT_SENT` or `ERROR` (refused).
    pub status: String,
    /// Time of the last response, RFC 3339; empty before the first.
    pub last_sent: String,
    /// Message of the newest NACK, until a later response is acknowledged.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub last_error: String,
}

/// One proxy in `/debug/syncz`, in istiod's format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncStatus {
    /// Cluster of the proxy (`CLUSTER_ID` in its node's metadata).
    pub cluster_id: String,
    /// Name part of the node id.
    pub proxy: String,
    /// Type of the proxy: `sidecar` or `router`.
    pub proxy_type: String,
    /// Version of the proxy (`ISTIO_VERSION` in its node's metadata).
    pub istio_version: String,
    /// Nonces by `cluster_sent`, `cluster_acked`, `listener_sent`, ...
    #[serde(flatten)]
    pub nonces: BTreeMap<String, String>,
}
