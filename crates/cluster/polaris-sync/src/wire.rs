//! The used fields of server answers. Unset fields are `null` or absent.

use crate::reconcile::Text;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Decodes `null` as the default.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// Any answer: of a write, a query or a login.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    #[serde(deserialize_with = "or_default")]
    pub(crate) code: u32,
    #[serde(deserialize_with = "or_default")]
    pub(crate) info: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) amount: usize,
    /// The service of a Discover answer.
    pub(crate) service: Option<Service>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) responses: Vec<Element>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) namespaces: Vec<Namespace>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) services: Vec<Service>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) instances: Vec<Instance>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) aliases: Vec<Alias>,
    pub(crate) user: Option<User>,
}

/// Result of one element of a batch. Polaris omits the code if another element was refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Element {
    pub(crate) code: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) info: String,
    pub(crate) namespace: Option<Namespace>,
    pub(crate) service: Option<Service>,
    pub(crate) instance: Option<Instance>,
    pub(crate) alias: Option<Alias>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Namespace {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    #[serde(deserialize_with = "or_default")]
    pub(crate) namespace: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) metadata: BTreeMap<Text, Text>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) ports: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) owners: Text,
    /// Revision; in Discover answers that of the instances.
    #[serde(deserialize_with = "or_default")]
    pub(crate) revision: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Alias {
    #[serde(deserialize_with = "or_default")]
    pub(crate) namespace: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) service: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) alias_namespace: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) alias: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) owners: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) comment: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Instance {
    #[serde(deserialize_with = "or_default")]
    pub(crate) namespace: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) service: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) host: Text,
    pub(crate) port: Option<u16>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) protocol: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) version: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) weight: u32,
    #[serde(deserialize_with = "or_default")]
    pub(crate) healthy: bool,
    #[serde(deserialize_with = "or_default")]
    pub(crate) isolate: bool,
    #[serde(rename = "healthCheck")]
    pub(crate) health_check: Option<HealthCheck>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) metadata: BTreeMap<Text, Text>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) revision: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HealthCheck {
    pub(crate) heartbeat: Option<Heartbeat>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Heartbeat {
    pub(crate) ttl: Option<u8>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct User {
    #[serde(deserialize_with = "or_default")]
    pub(crate) auth_token: String,
}
