//! What the dashboard is told as it happens: `/api/v1/events`, a stream of server-sent events, each with the newest of its kind.

use serde::{Deserialize, Serialize};

/// Everything in numbers: the event `overview`, and `/api/v1/overview`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// The version of the control plane.
    pub version: String,
    /// The revision in force.
    pub revision: u64,
    /// The revision of this control plane; empty where it reads the objects of all revisions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub control_plane_revision: String,
    /// Objects that are left to control planes of other revisions.
    #[serde(default, skip_serializing_if = "super::status::is_zero")]
    pub left_to_other_revisions: usize,
    /// Whether proxies are served.
    pub ready: bool,
    /// The verdict, with the top causes.
    #[serde(default)]
    pub verdict: super::PlaneVerdict,
    /// What readiness waits for.
    pub waiting_for: Vec<String>,
    /// Namespaces that have services.
    pub namespaces: usize,
    /// Services.
    pub services: usize,
    /// Services that have endpoints, none of which is healthy.
    pub services_unhealthy: usize,
    /// Services that have no endpoints at all.
    pub services_empty: usize,
    /// Endpoints.
    pub endpoints: usize,
    /// Endpoints that are healthy, or of a health that nobody checks.
    pub healthy: usize,
    /// Connected proxies.
    pub proxies: usize,
    /// Those that have acknowledged the newest of everything.
    pub proxies_synced: usize,
    /// Those that have not acknowledged something yet.
    pub proxies_pending: usize,
    /// Those that refuse something.
    pub proxies_rejected: usize,
    /// A number that differs whenever a proxy comes, goes, or is in another state.
    pub proxies_state: u64,
    /// A number that differs whenever a registry answers, fails, is in sync, or has something else.
    pub registries_state: u64,
    /// Registries.
    pub registries: usize,
    /// Registries that are in sync, and whose source can be read.
    pub registries_well: usize,
    /// Problems that are errors.
    pub errors: usize,
    /// Problems that are warnings.
    pub warnings: usize,
}

/// A change of the configuration on its way to the proxies: one of the event `changes`, and of `/api/v1/changes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeProgress {
    /// Its revision.
    pub revision: u64,
    /// When it was published, in milliseconds since 1970.
    pub at: f64,
    /// What changed, at most 5: `VirtualService shop/catalog`, `endpoints of catalog.shop.svc.cluster.local`.
    pub what: Vec<String>,
    /// How many changed besides.
    pub more: usize,
    /// Proxies that it concerns.
    pub proxies: usize,
    /// How many of them have acknowledged it.
    pub acknowledged: usize,
    /// How many of them refuse what they were sent.
    pub rejected: usize,
    /// Whether all have acknowledged it.
    pub complete: bool,
    /// Seconds until the last acknowledgement; `None` where it is not there yet, and where nobody was concerned or all have left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// What was measured during one second: the event `sample`, and `/api/v1/samples`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// The end of that second, in milliseconds since 1970.
    pub at: f64,
    /// Processors that were busy: 0.5 is half of one.
    pub cpu: f64,
    /// Bytes of memory.
    pub resident: u64,
    /// Connected proxies.
    pub proxies: u64,
    /// Responses each second.
    pub pushes: f64,
    /// Bytes of responses each second.
    pub bytes: f64,
    /// Responses that proxies refused, each second.
    pub rejects: f64,
    /// Changes received from sources, each second.
    pub inbound: f64,
    /// From a new world to the last response of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<Latency>,
    /// Computing what a new world changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<Latency>,
}

/// Times in milliseconds, read from a histogram: no finer than its buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Half of them took no longer.
    pub p50: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
}
