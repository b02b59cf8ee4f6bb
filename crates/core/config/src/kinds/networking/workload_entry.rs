//! WorkloadEntry: one workload outside of Kubernetes.

use crate::kinds::message::{kind, message};
use std::collections::BTreeMap;

kind!(WorkloadEntry = WorkloadEntry;);

message! {
/// A workload: address, ports, labels, locality. Also the form of a ServiceEntry's inline endpoints.
pub struct WorkloadEntry {
    pub address: String,
    pub ports: BTreeMap<String, u32>,
    pub labels: BTreeMap<String, String>,
    pub network: String,
    pub locality: String,
    pub weight: u32,
    pub service_account: String,
    /// The object's `status`, as far as it is read.
    #[serde(skip)]
    pub status: WorkloadEntryStatus,
}

/// `status` of a WorkloadEntry.
pub struct WorkloadEntryStatus {
    pub conditions: Vec<Condition>,
}

/// One condition, for example `Healthy`.
pub struct Condition {
    pub r#type: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// Labels that a workload must have. Empty matches every workload of the namespace.
pub struct LabelSelector {
    pub labels: BTreeMap<String, String>,
}
}

impl WorkloadEntryStatus {
    /// Value of condition `name`: true for `True`; `None` if the condition is absent.
    #[must_use]
    pub fn condition(&self, name: &str) -> Option<bool> {
        self.conditions.iter().find(|c| c.r#type == name).map(|c| c.status.eq_ignore_ascii_case("true"))
    }
}
