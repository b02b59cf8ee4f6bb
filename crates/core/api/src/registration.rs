//! Registration in the admin API.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of registration with this process, `/debug/registrationz`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    pub store: RegistrationStore,
    /// True once the store was read, so that all numbers below are complete.
    pub ready: bool,
    pub revision: u64,
    /// Number of services with an instance.
    pub services: usize,
    /// Instances by their health: `healthy`, `preserved`, `reported`, `lapsed`, `check-failed`, `draining`.
    pub instances: BTreeMap<String, usize>,
    /// Identities that have registered an instance.
    pub owners: usize,
    /// Services of which most leases lapsed together, so that their instances are preserved:
    /// `NAMESPACE/SERVICE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preserving: Vec<String>,
    /// Number of open watches.
    pub watches: usize,
    /// Number of changes over which a watch can resume.
    pub history_events: usize,
    /// Estimated size of those changes in bytes.
    pub history_bytes: usize,
    /// Requests of clients since the start.
    pub requests: Vec<RegistrationRequests>,
    /// Number of leases that lapsed since the start.
    pub lapsed: u64,
    /// Number of instances that were removed since the start because their lease had lapsed or their grace
    /// period was over.
    pub expired: u64,
    /// Number of times that the instances of a service were preserved after their leases lapsed together.
    pub preservations: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationStore {
    /// Kind of the store: `redb` or `etcd`.
    pub kind: String,
    /// Path of the redb file, or addresses of the etcd servers.
    pub place: String,
    /// Bytes on disk, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Reason why it cannot be written now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Number of requests of one operation with one result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationRequests {
    /// One of `register`, `renew` and `deregister`.
    pub operation: String,
    /// One of `ok`, `unchanged` and `failed`.
    pub result: String,
    /// Count, in which each item of a batch counts.
    pub count: u64,
}
