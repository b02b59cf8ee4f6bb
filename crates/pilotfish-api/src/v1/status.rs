//! Whether all is well.

use serde::{Deserialize, Serialize};

/// Whether all is well: `/api/v1/status`. What `/ready` says in lines, in parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The replica that answers: the proxies are those that are connected to it.
    pub replica: String,
    /// Its version.
    pub version: String,
    /// The revision in force.
    pub revision: u64,
    /// The revision of this control plane; empty where it reads the objects of all revisions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub control_plane_revision: String,
    /// Objects that are left to control planes of other revisions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_to_other_revisions: usize,
    /// Whether proxies are served.
    pub ready: bool,
    /// The verdict, with the top causes.
    #[serde(default)]
    pub verdict: super::PlaneVerdict,
    /// What readiness waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
    /// Connected proxies.
    pub proxies: usize,
    /// Those that have not acknowledged something yet.
    pub pending: usize,
    /// Those that refuse something.
    pub rejected: usize,
    /// What they refuse: of at most 20 proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
    /// What is wrong with sources and registries: those that cannot be read, and services that several have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Objects whose newest version is not in force, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    /// Kinds of Istio and the Gateway API that are not served and have objects, with the number of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unserved: Vec<String>,
    /// What the analysis of references found, by its worst level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
pub(super) fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What a proxy refuses of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The proxy.
    pub proxy: String,
    /// The resource type: `clusters`, ...
    pub resource_type: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// The proxy's reason in one line.
    pub reason: String,
    /// The objects that made it, the most suspect first; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<super::ObjectName>,
}

impl Status {
    /// Whether proxies are served, and nothing is refused, unreadable or not in force.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let is_served = self.ready && self.verdict.level == super::PlaneLevel::Well;
        is_served && self.rejected == 0 && self.sources.is_empty() && self.objects.is_empty()
    }
}
