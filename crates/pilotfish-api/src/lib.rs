//! The JSON views of the admin API: what server, command line and dashboard agree on.
//!
//! Field names follow istiod's debug endpoints where it has them, so that tools written for it can read them. The types
//! stand apart from the model, which stays free to change.

mod registration;
pub mod v1;
mod words;

pub use registration::{Registration, RegistrationRequests, RegistrationStore};
pub use words::counted;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// `/ready`: whether proxies are served. The lists are empty for those who do not see debug pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether every registry handed over its first complete list and the process is not draining.
    pub ready: bool,
    /// The verdict: its causes only for those who see debug pages. `None` before it was made for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<v1::PlaneVerdict>,
    /// What is missing, by name, with the reason where one is known: the first 50.
    pub waiting_for: Vec<String>,
    /// How many are missing.
    #[serde(default)]
    pub waiting_for_count: usize,
    /// What is wrong, in one line each: registries that cannot be read, what proxies refuse, what the analysis found, and objects whose
    /// newest version is not in force. Of each the first 50.
    pub problems: Vec<String>,
    /// How many lines these are without a limit.
    #[serde(default)]
    pub problem_count: usize,
}

/// One registry in `/debug/registryz?registries=true` and on the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registry {
    /// `Kubernetes/Kubernetes`: the kind of the registry and its cluster.
    pub name: String,
    /// Whether its first complete list was read.
    pub synced: bool,
    /// Why it cannot be read now; what was read before stays in force.
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
    /// Its services that lose to those of another registry: at most 1,000 of them.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub losers: Arc<[LosingService]>,
    /// What its source tells about itself; `None` for registries that read objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RegistrySource>,
}

/// How the source of a registry without objects is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrySource {
    /// When the product last answered well, with or without news, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<String>,
    /// Seconds since then: how far the registry may lag behind its product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Requests sent to the product since the start, or messages from one that pushes.
    pub requests: u64,
    /// Sessions that began since the start: each connects and reads everything.
    pub sessions: u64,
    /// Sessions that ended with a failure.
    pub failures: u64,
    /// Answers held back by the guard against mass change since the start.
    pub holds: u64,
    /// The answer that is held back now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldAnswer>,
    /// Objects that it has, for a source that brings objects instead of services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// How many things of the product cannot be used as they are: names that are none, hosts of two services.
    pub problem_count: usize,
    /// The first 100 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A read that lacks most of what a source has, and waits for a second one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldAnswer {
    /// The things that are missing: `endpoints` of a registry, else plurals of kinds.
    #[serde(default)]
    pub of: String,
    /// When it came, RFC 3339.
    pub since: String,
    /// When the second one is asked for, RFC 3339.
    pub until: String,
    /// Number of things in force.
    pub endpoints: usize,
    /// Things that the answer has.
    pub would_leave: usize,
}

impl fmt::Display for HeldAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, until, endpoints, would_leave, .. } = self;
        write!(
            f,
            "a read that leaves {would_leave} of {endpoints} {of} is held back until a second one after {until} confirms it"
        )
    }
}

/// A service of a registry whose host and namespace another registry has, too, and wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LosingService {
    /// The host name.
    pub hostname: String,
    /// The namespace.
    pub namespace: String,
    /// The registry whose service counts, by its name.
    pub winner: String,
    /// Why, and whether the endpoints are used all the same.
    pub reason: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
fn is_false(value: &bool) -> bool {
    !value
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// The name, by which endpoints belong to the port.
    pub name: String,
    /// The number that clients connect to.
    pub port: u32,
    /// The application protocol: `Http`, `Grpc`, `Tcp`, ...; `Unsupported` where none is declared.
    pub protocol: String,
}

/// One service in `/debug/registryz`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// What belongs to the service rather than to its host name.
    #[serde(rename = "Attributes")]
    pub attributes: ServiceAttributes,
    /// Its ports in the order written.
    pub ports: Vec<Port>,
    /// When its object was created, RFC 3339; empty where not known.
    pub creation_time: String,
    /// The full host name, as `web.shop.svc.cluster.local`.
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
    /// The kind of its registry: `Kubernetes`, `External`, ...
    pub service_registry: String,
    /// The short name, as `web`; of a ServiceEntry, the host.
    pub name: String,
    /// The namespace that defines it.
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
    /// The object's kind, as in YAML.
    pub kind: String,
    /// The object's namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The cluster that it was read from.
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
    /// IP addresses, one host name, or the path of a Unix socket.
    pub addresses: Vec<String>,
    /// The port number; 0 with a Unix socket.
    pub endpoint_port: u32,
    /// The name of the service port that it belongs to.
    pub service_port_name: String,
    /// Labels of the workload.
    pub labels: BTreeMap<String, String>,
    /// `region/zone/sub_zone`.
    pub locality: String,
    /// The network that it is reached in; empty for the default one.
    pub network: String,
    /// The weight; 0 for none.
    pub lb_weight: u32,
    /// The workload's SPIFFE id; empty without one.
    pub service_account: String,
    /// `Healthy`, `Unhealthy`, `Draining`, `Terminating` or `Unknown`.
    pub health_status: String,
    /// `istio` or `disabled`.
    #[serde(rename = "TLSMode")]
    pub tls_mode: String,
    /// The node that it runs on; empty where not known.
    pub node_name: String,
    /// The name of its Deployment or other workload, for telemetry.
    pub workload_name: String,
    /// The workload's namespace.
    pub namespace: String,
    /// The object that made it.
    pub provenance: Provenance,
}

/// One configuration object in `/debug/configz`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigObject {
    /// The kind, as in YAML.
    pub kind: String,
    /// The API group; empty for Kubernetes' core group.
    pub group: String,
    /// Name, namespace, labels and so on.
    pub metadata: ConfigMetadata,
    /// The `spec` in force, with defaults applied.
    pub spec: serde_json::Value,
}

/// Metadata of a configuration object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMetadata {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`; empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// When its object was created, RFC 3339; empty where not known.
    pub creation_timestamp: String,
    /// File and line, or the cluster that it was read from.
    pub origin: String,
}

/// An object whose newest version is not in force, or that is doubtful.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `error`, `warning` or `info`.
    pub severity: String,
    /// What the analysis calls it, as `IST0101`; empty for what is not of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// File and line, `shop.yaml:12`.
    pub place: String,
    /// `VirtualService shop/catalog`; empty where no object could be read.
    pub object: String,
    /// The path of the field, `spec.http[0].route`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// A correction, where one is likely; else empty.
    pub hint: String,
    /// What is in force now: `last-good`, `dropped`, `closed` or `newest`.
    pub in_force: String,
}

/// `/debug/adsz`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ads {
    /// How many proxies are connected.
    pub total_clients: usize,
    /// The proxies by connection id.
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
    /// The address that it connects from.
    pub address: String,
    /// `delta` or `sotw`.
    pub protocol: String,
    /// By type URL.
    pub watches: BTreeMap<String, Watch>,
}

/// What a proxy subscribes to and was sent of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// Whether it subscribes to all resources of the type.
    pub wildcard: bool,
    /// How many names it subscribes to.
    pub subscribed: usize,
    /// Those names in order, at most 100 of them.
    pub names: Vec<String>,
    /// Nonce of the newest response; empty before the first.
    pub nonce_sent: String,
    /// Nonce of the last response that it acknowledged; empty before the first.
    pub nonce_acked: String,
    /// `SYNCED`, `STALE` (sent, not yet acknowledged), `NOT_SENT` or `ERROR` (refused).
    pub status: String,
    /// RFC 3339; empty before the first response.
    pub last_sent: String,
    /// The proxy's message of its newest NACK, until it acknowledges a later response.
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
