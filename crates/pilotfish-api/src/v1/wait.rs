//! Whether proxies have acknowledged a revision.

use super::State;
use serde::{Deserialize, Serialize};

/// Who has acknowledged a revision: `/api/v1/acknowledgements`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledgement {
    /// The revision.
    pub revision: u64,
    /// Whether everything up to the revision is meant, and not what it changed alone.
    #[serde(default)]
    pub everything: bool,
    /// The revision in force.
    pub current: u64,
    /// The replica that answers. It knows of the proxies that are connected to it, and counts revisions of its own.
    #[serde(default)]
    pub replica: String,
    /// Connected proxies.
    pub proxies: usize,
    /// How many of them it concerns.
    #[serde(default)]
    pub concerned: usize,
    /// How many of them have acknowledged it, or are not concerned.
    pub acknowledged: usize,
    /// Those that have not, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<NotAcknowledged>,
    /// What was read of the object, where one is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<WaitedObject>,
}

/// What was read of an object that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitedObject {
    /// The object.
    pub name: super::ObjectName,
    /// Whether it is there.
    pub known: bool,
    /// The `metadata.generation` of the version that is in force; `None` where its source gives it none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Where it was read: a file, or a cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// What is wrong with its newest version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The names that are near, where it is not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
}

/// A proxy that has not acknowledged a revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotAcknowledged {
    /// The proxy.
    pub proxy: String,
    /// The resource type: `clusters`, ...
    pub resource_type: String,
    /// `pending` or `rejected`.
    pub state: State,
    /// Since when, RFC 3339.
    pub since: String,
    /// What it says, where it refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
