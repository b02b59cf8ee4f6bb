//! Live events of the dashboard: `/api/v1/events`, a stream of server-sent events, each with the newest state
//! of its kind.

use serde::{Deserialize, Serialize};

/// Overview in numbers: the event `overview`, and `/api/v1/overview`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Version of the control plane.
    pub version: String,
    /// World revision in force.
    pub revision: u64,
    /// Revision of this control plane; empty if it reads the objects of all revisions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub control_plane_revision: String,
    /// Number of objects that are left to control planes of other revisions.
    #[serde(default, skip_serializing_if = "super::status::is_zero")]
    pub left_to_other_revisions: usize,
    /// True if proxies are served.
    pub ready: bool,
    /// Verdict, with the top causes.
    #[serde(default)]
    pub verdict: super::PlaneVerdict,
    /// Conditions that readiness waits for.
    pub waiting_for: Vec<String>,
    /// Number of namespaces with services.
    pub namespaces: usize,
    pub services: usize,
    /// Number of services with endpoints, but no healthy one.
    pub services_unhealthy: usize,
    /// Number of services without endpoints.
    pub services_empty: usize,
    pub endpoints: usize,
    /// Number of endpoints that are healthy or without a health check.
    pub healthy: usize,
    /// Number of connected proxies.
    pub proxies: usize,
    /// Number of proxies that are in sync.
    pub proxies_synced: usize,
    /// Number of proxies that have not acknowledged something yet.
    pub proxies_pending: usize,
    /// Number of proxies that refuse something.
    pub proxies_rejected: usize,
    /// Number that changes whenever a proxy connects, disconnects, or changes its state.
    pub proxies_state: u64,
    /// Number that changes whenever a registry responds, fails, is in sync, or has other content.
    pub registries_state: u64,
    pub registries: usize,
    /// Number of registries that are in sync, with readable sources.
    pub registries_well: usize,
    /// Number of problems that are errors.
    pub errors: usize,
    /// Number of problems that are warnings.
    pub warnings: usize,
}

/// A configuration change on its way to the proxies: in the event `changes`, and in `/api/v1/changes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeProgress {
    pub revision: u64,
    /// Time of the publication, in milliseconds since 1970.
    pub at: f64,
    /// Changed objects and facts, at most 5: `VirtualService shop/catalog`, `endpoints of
    /// catalog.shop.svc.cluster.local`.
    pub what: Vec<String>,
    /// Number of further changes.
    pub more: usize,
    /// Number of proxies that it concerns.
    pub proxies: usize,
    /// Number of proxies that have acknowledged it.
    pub acknowledged: usize,
    /// Number of proxies that refuse it.
    pub rejected: usize,
    /// True if all have acknowledged it.
    pub complete: bool,
    /// Seconds until the last acknowledgement; `None` before that, and if no proxy was concerned or all have
    /// disconnected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Measurements of one second: the event `sample`, and `/api/v1/samples`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// End of that second, in milliseconds since 1970.
    pub at: f64,
    /// Number of busy processors: 0.5 is half of one.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Number of connected proxies.
    pub proxies: u64,
    /// xDS responses sent per second.
    pub pushes: f64,
    /// Bytes of responses per second.
    pub bytes: f64,
    /// Refused responses per second.
    pub rejects: f64,
    /// Changes received from sources per second.
    pub inbound: f64,
    /// Time from a new world to the last response for a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<Latency>,
    /// Time to compute the effects of a new world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<Latency>,
}

/// Quantiles in milliseconds, with the resolution of a histogram's buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}
