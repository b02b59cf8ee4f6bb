//! What a change would do.

use super::Section;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is to be planned: `POST /api/v1/plan`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRequest {
    /// Files whose objects are applied.
    pub files: Vec<PlanFile>,
    /// Objects that are deleted: `VirtualService/shop/catalog`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
}

/// A file of objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanFile {
    /// Its name, for messages.
    pub name: String,
    /// Its YAML.
    pub text: String,
}

/// What would change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The worst of it.
    pub severity: Severity,
    /// The revision that is compared with; `None` for folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Objects that differ.
    pub objects: usize,
    /// Proxies that get something else.
    pub proxies_changed: usize,
    /// All proxies that were looked at.
    pub proxies: usize,
    /// Resources that differ, each counted once for all proxies that get the same.
    pub resources: usize,
    /// What is dangerous, the worst first.
    pub dangers: Vec<Danger>,
    /// The proxies that get something else, with what, in groups that get the same.
    pub impact: Vec<Impact>,
    /// The resources that differ.
    pub changes: Vec<PlanChange>,
    /// Whether the rest of the changes is left out because it would be too much.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// What is wrong with the files: then nothing else is computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<crate::Problem>,
}

/// How grave a plan is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No proxy gets anything else.
    #[default]
    Nothing,
    /// Something changes.
    Changes,
    /// Something changes that is likely to break traffic or to open it.
    Dangerous,
    /// The files have errors.
    Invalid,
}

/// One dangerous change.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Danger {
    /// What it is, in one line.
    pub what: String,
    /// Proxies that it concerns.
    pub proxies: usize,
    /// Some of them, at most 10.
    pub examples: Vec<String>,
}

/// Proxies that get the same changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Impact {
    /// How many there are.
    pub proxies: usize,
    /// Their names, at most 100.
    pub names: Vec<String>,
    /// The places in [`Plan::changes`] of what they get.
    pub changes: Vec<usize>,
}

/// One resource that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanChange {
    /// Its kind.
    pub section: Section,
    /// Its name.
    pub name: String,
    /// `added`, `changed` or `removed`.
    pub what: String,
    /// The version before; empty where it is new.
    pub before: String,
    /// The version after; empty where it goes.
    pub after: String,
    /// Proxies that get it.
    pub proxies: usize,
    /// The objects that make it, or made it.
    pub made_by: Vec<super::ObjectName>,
    /// A unified diff of Envoy's YAML.
    pub diff: String,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Changes => "changes",
            Self::Dangerous => "dangerous",
            Self::Invalid => "invalid",
        })
    }
}
