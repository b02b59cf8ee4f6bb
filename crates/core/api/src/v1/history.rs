//! History of publications.

use super::{NotAcknowledged, ObjectName, Page};
use serde::{Deserialize, Serialize};

/// Changes, the newest first: `/api/v1/history`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    #[serde(flatten)]
    pub page: Page<Change>,
    /// World revision in force.
    pub current: u64,
    /// Oldest stored revision, for `at`.
    pub oldest: u64,
    /// Estimated bytes of the stored history.
    pub bytes: usize,
    /// Maximum bytes of the stored history.
    pub most_bytes: usize,
}

/// One publication, with all changes that were merged. `/api/v1/history/REVISION` has the diffs as well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Revision, by which logs, metrics and `wait` refer to it. Revisions start again when the control plane
    /// restarts.
    pub revision: u64,
    /// Time of the publication, RFC 3339.
    pub at: String,
    /// Summary in one line.
    pub summary: String,
    /// Changed objects and facts, at most 100: configuration first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Changed>,
    /// Number of further changes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// Number of proxies that it concerned.
    pub proxies: usize,
    pub outcome: Outcome,
    /// Seconds until the last of these proxies acknowledged it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_seconds: Option<f64>,
    /// Number of proxies that have not acknowledged it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: usize,
    /// Proxies that have not acknowledged it, with their messages; in the response for one revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_proxies: Vec<NotAcknowledged>,
    #[serde(flatten)]
    pub refusals: Refusals,
}

/// Refusals of a change, and what became of it at the refusing proxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusals {
    /// Number of proxies that refused it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: usize,
    /// Some of the refusing proxies, by connection, with the refused type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_by: Vec<String>,
    /// Revision that superseded it at the refusing proxies: it never was in force there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<u64>,
    /// Later revision with which the refusing proxies accepted it: it is in force there since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_with: Option<u64>,
    /// True if the refusing proxies have disconnected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Outcome of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Some proxies have not acknowledged it yet.
    #[default]
    Pending,
    /// Every proxy that it concerned has acknowledged it.
    InForce,
    /// Some proxies have not acknowledged it within seconds.
    Late,
    /// Some proxies refused it, and no connected proxy has accepted it since: they have disconnected, or a
    /// later revision replaced it.
    Refused,
    /// Unknown: too many changes came at once.
    NotWatched,
}

impl Outcome {
    /// Name of the outcome in listings.
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

/// A changed object or fact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// Subject: `VirtualService shop/catalog`, `service catalog.shop.svc.cluster.local`, `endpoints of
    /// catalog.shop.svc.cluster.local`.
    pub what: String,
    /// `added`, `changed` or `removed`.
    pub action: String,
    /// Source: a file and line, a cluster, a registry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// `metadata.generation` of the object, if its source has one: the `observedGeneration` of its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Objects or registry entries that define it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<ObjectName>,
    /// Short description of the difference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Unified diff of the object in YAML, with defaults applied; in the response for one revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
}
