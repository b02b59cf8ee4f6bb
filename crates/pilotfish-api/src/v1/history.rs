//! What was published lately.

use super::{NotAcknowledged, ObjectName, Page};
use serde::{Deserialize, Serialize};

/// Changes, the newest first: `/api/v1/history`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// A page of them.
    #[serde(flatten)]
    pub page: Page<Change>,
    /// The revision in force.
    pub current: u64,
    /// The oldest revision that `at` can name. Those before are forgotten.
    pub oldest: u64,
    /// Bytes that are kept, about, and how many may be.
    pub bytes: usize,
    /// The budget of bytes.
    pub most_bytes: usize,
}

/// One publication: all that came together. `/api/v1/history/REVISION` has the diffs, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Its revision, by which logs, metrics and `wait` name it. Revisions count anew when the control plane starts.
    pub revision: u64,
    /// When it was published, RFC 3339.
    pub at: String,
    /// In one line.
    pub summary: String,
    /// What changed, at most 100: configuration first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Changed>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// How many proxies it concerned.
    pub proxies: usize,
    /// What became of it.
    pub outcome: Outcome,
    /// Seconds until the last of these proxies had acknowledged it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_seconds: Option<f64>,
    /// How many have not acknowledged it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: usize,
    /// Those that have not, with what they say; in the answer for one revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_proxies: Vec<NotAcknowledged>,
    /// Number of proxies that refused it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: usize,
    /// Some of these, by their connections, each with the type that it refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_by: Vec<String>,
    /// The revision that has taken its place at those that refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<u64>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What became of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Some proxies have not acknowledged it yet.
    #[default]
    Pending,
    /// Every proxy that it concerned has acknowledged it.
    InForce,
    /// Some have not for seconds.
    Late,
    /// Some proxies refused it, and have left or acknowledged a later one since: it never was in force there.
    Refused,
    /// It is not known: too many changes came at once.
    NotWatched,
}

impl Outcome {
    /// In one word, or a few.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InForce => "in force",
            Self::Late => "late",
            Self::Refused => "refused",
            Self::NotWatched => "not watched",
        }
    }
}

/// Something that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// `VirtualService shop/catalog`, `service catalog.shop.svc.cluster.local`, `endpoints of catalog.shop.svc.cluster.local`.
    pub what: String,
    /// `added`, `changed` or `removed`.
    pub action: String,
    /// Where it comes from: a file and line, a cluster, a registry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The object's `metadata.generation`, where its source has one: the `observedGeneration` of its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The objects, or entries of registries, that made it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<ObjectName>,
    /// What differs, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// A unified diff of the object in YAML, with defaults applied; in the answer for one revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
}
