//! Plan of a change.

use super::Section;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Change to plan: `POST /api/v1/plan`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRequest {
    /// Files whose objects are applied.
    pub files: Vec<PlanFile>,
    /// Objects that are deleted, such as `VirtualService/shop/catalog`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanFile {
    /// File name, for messages.
    pub name: String,
    pub text: String,
}

/// Effects of a planned change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Highest severity of the changes.
    pub severity: Severity,
    /// Revision that is compared with; `None` for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Number of objects that differ.
    pub objects: usize,
    /// Number of proxies with changed resources.
    pub proxies_changed: usize,
    /// Number of evaluated proxies.
    pub proxies: usize,
    /// Number of resources that differ, where equal changes of several proxies count once.
    pub resources: usize,
    /// Dangerous changes, the worst first.
    pub dangers: Vec<Danger>,
    /// Proxies with changed resources, in groups with equal changes.
    pub impact: Vec<Impact>,
    /// Resources that differ between both worlds.
    pub changes: Vec<PlanChange>,
    /// True if the rest of the changes is left out because of the size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Problems of the files: then nothing else is computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<crate::Problem>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No proxy is affected.
    #[default]
    Nothing,
    /// Some resources change, none of them dangerously.
    Changes,
    /// Some resources change in a way that is likely to break traffic or to open it.
    Dangerous,
    Invalid,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Danger {
    /// Description in one line.
    pub what: String,
    /// Number of proxies that it concerns.
    pub proxies: usize,
    /// Some of these proxies, at most 10.
    pub examples: Vec<String>,
}

/// Proxies with equal changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Impact {
    pub proxies: usize,
    /// Their names, at most 100.
    pub names: Vec<String>,
    /// Indexes of their changes in [`Plan::changes`].
    pub changes: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanChange {
    pub section: Section,
    pub name: String,
    /// Action: `added`, `changed` or `removed`.
    pub what: String,
    /// Version before; empty for a new resource.
    pub before: String,
    /// Version after; empty for a removed resource.
    pub after: String,
    /// Number of proxies that receive it.
    pub proxies: usize,
    /// Objects that it is, or was, made from.
    pub made_by: Vec<super::ObjectName>,
    /// Unified diff of Envoy's YAML.
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
