use serde::{Deserialize, Serialize};

/// Overall status: `/api/v1/status`. Has the content of `/ready` in structured form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Replica that responds: the proxies are those connected to it.
    pub replica: String,
    pub version: String,
    /// World revision in force.
    pub revision: u64,
    /// Revision of this control plane; empty if it reads the objects of all revisions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub control_plane_revision: String,
    /// Number of objects that are left to control planes of other revisions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_to_other_revisions: usize,
    /// True if proxies are served.
    pub ready: bool,
    /// Verdict, with the top causes.
    #[serde(default)]
    pub verdict: super::PlaneVerdict,
    /// Conditions that readiness waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
    /// Number of connected proxies.
    pub proxies: usize,
    /// Number of proxies that have not acknowledged something yet.
    pub pending: usize,
    /// Number of proxies that refuse something.
    pub rejected: usize,
    /// Refusals of at most 20 proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
    /// Problems of sources and registries: unreadable ones, and services in several of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Objects whose newest version is not in force, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    /// Kinds of Istio and the Gateway API that are not served and have objects, with the number of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unserved: Vec<String>,
    /// Findings of the reference analysis, counted by their worst level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
pub(super) fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Refusal of one resource type by a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub proxy: String,
    /// Resource type, such as `clusters`.
    pub resource_type: String,
    /// Time of the refusal, RFC 3339.
    pub since: String,
    /// The proxy's reason in one line.
    pub reason: String,
    /// Objects that it was made from, the likely cause first; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<super::ObjectName>,
}

impl Status {
    /// True if proxies are served, and nothing is refused, unreadable or not in force.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let is_served = self.ready && self.verdict.level == super::PlaneLevel::Well;
        is_served && self.rejected == 0 && self.sources.is_empty() && self.objects.is_empty()
    }
}
