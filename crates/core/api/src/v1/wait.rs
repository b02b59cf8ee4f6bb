//! Acknowledgements of a revision by proxies.

use super::State;
use serde::{Deserialize, Serialize};

/// Acknowledgements of a revision: `/api/v1/acknowledgements`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledgement {
    pub revision: u64,
    /// True if all changes up to the revision are meant, and not those of the revision alone.
    #[serde(default)]
    pub everything: bool,
    /// World revision in force.
    pub current: u64,
    /// Replica that responds. It knows the proxies connected to it, and has its own revisions.
    #[serde(default)]
    pub replica: String,
    /// Number of connected proxies.
    pub proxies: usize,
    /// Number of proxies that it concerns.
    #[serde(default)]
    pub concerned: usize,
    /// Number of proxies that have acknowledged it, or are not concerned.
    pub acknowledged: usize,
    /// Proxies that have not acknowledged it, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<NotAcknowledged>,
    /// Outcome of the revision, as in the history; `None` while `missing` names proxies, and for revisions
    /// that are no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<super::Outcome>,
    #[serde(flatten)]
    pub refusals: super::Refusals,
    /// State of the object, if the query names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<WaitedObject>,
}

/// State of an object that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitedObject {
    pub name: super::ObjectName,
    /// True if the object exists.
    pub known: bool,
    /// `metadata.generation` of the version in force; `None` if its source has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Source: a file, or a cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Problems of its newest version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Similar names, if it does not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
}

/// A proxy that has not acknowledged a revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotAcknowledged {
    pub proxy: String,
    /// Resource type, such as `clusters`.
    pub resource_type: String,
    /// State of the type: `pending` or `rejected`.
    pub state: State,
    /// Time since which it has that state, RFC 3339.
    pub since: String,
    /// Its message, if it refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
