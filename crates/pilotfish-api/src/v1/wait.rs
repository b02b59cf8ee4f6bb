//! Whether proxies have acknowledged a revision.

use super::State;
use serde::{Deserialize, Serialize};

/// Who has acknowledged a revision: `/api/v1/acknowledgements`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledgement {
    /// The revision.
    pub revision: u64,
    /// The revision in force.
    pub current: u64,
    /// Connected proxies.
    pub proxies: usize,
    /// How many of them have acknowledged it, or are not concerned.
    pub acknowledged: usize,
    /// Those that have not, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<NotAcknowledged>,
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
