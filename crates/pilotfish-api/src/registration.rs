//! Registration in the admin API.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `/debug/registrationz`: what is registered with this process, and how that goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    /// Where registrations are kept.
    pub store: RegistrationStore,
    /// Whether the store was read, so that everything below is whole.
    pub ready: bool,
    /// The store's revision.
    pub revision: u64,
    /// Services that have an instance.
    pub services: usize,
    /// Instances by their health: `healthy`, `preserved`, `reported`, `lapsed`, `check-failed`, `draining`.
    pub instances: BTreeMap<String, usize>,
    /// Identities that have registered an instance.
    pub owners: usize,
    /// Services of which most leases lapsed together, so that this is not believed: `NAMESPACE/SERVICE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preserving: Vec<String>,
    /// Watches that are open.
    pub watches: usize,
    /// Changes over which a watch can resume.
    pub history_events: usize,
    /// About their bytes.
    pub history_bytes: usize,
    /// What clients asked for since the start.
    pub requests: Vec<RegistrationRequests>,
    /// Leases that lapsed since the start.
    pub lapsed: u64,
    /// Instances that were removed since the start, because their lease had lapsed or their grace time was over.
    pub expired: u64,
    /// How often leases of a service that lapsed together were not believed.
    pub preservations: u64,
}

/// Where registrations are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationStore {
    /// `redb`, `etcd`.
    pub kind: String,
    /// The file, or the addresses.
    pub place: String,
    /// Bytes on the disk, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why it cannot be written now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// How often clients asked for one thing with one result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationRequests {
    /// `register`, `renew`, `deregister`.
    pub operation: String,
    /// `ok`, `unchanged`, `failed`.
    pub result: String,
    /// Each item of a batch counts.
    pub count: u64,
}
