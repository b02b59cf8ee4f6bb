//! JSON of services and their instances.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Result code and HTTP status of success.
pub const SUCCESS: i64 = 200;
/// Error code for a connection that the server does not know, or not yet.
pub const UNREGISTERED: i64 = 301;

/// A service with its instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceInfo {
    /// `NAME` or `GROUP@@NAME`, as the server sends it.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub group_name: String,
    /// Required: an answer without hosts is invalid, not empty.
    pub hosts: Vec<Host>,
    /// Time of the answer on the server, in milliseconds.
    #[serde(default)]
    pub last_ref_time: i64,
    /// True if so few instances are healthy that clients should use all of them.
    #[serde(default)]
    pub reach_protection_threshold: bool,
    /// Names of the clusters that were asked for; empty for all.
    #[serde(default, deserialize_with = "nullable")]
    pub clusters: String,
    /// Time in milliseconds after which a client without pushes asks again.
    #[serde(default)]
    pub cache_millis: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub checksum: String,
    #[serde(default = "yes")]
    pub valid: bool,
}

/// An instance of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    pub ip: String,
    pub port: u32,
    #[serde(default = "one")]
    pub weight: f64,
    #[serde(default = "yes")]
    pub healthy: bool,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub cluster_name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub metadata: BTreeMap<String, Option<String>>,
    /// Unique id in the form `IP#PORT#CLUSTER#GROUP@@SERVICE`.
    #[serde(default, deserialize_with = "nullable")]
    pub instance_id: String,
    #[serde(default = "yes")]
    pub ephemeral: bool,
    /// Service with its group, in the form `GROUP@@NAME`.
    #[serde(default, deserialize_with = "nullable")]
    pub service_name: String,
}

const fn one() -> f64 {
    1.0
}

const fn yes() -> bool {
    true
}

/// Decodes null, which Java writes for unset fields, as the default.
///
/// # Errors
/// When the value is neither null nor of this type.
pub fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
