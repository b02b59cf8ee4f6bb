//! PeerAuthentication: plaintext and mutual TLS of workloads.

use crate::WorkloadSelector;
use crate::kinds::message::{enumeration, kind, message};
use std::collections::BTreeMap;

kind!(PeerAuthentication = PeerAuthentication;);

message! {
/// Mutual TLS of the selected workloads, and of single ports (by workload port).
pub struct PeerAuthentication {
    pub selector: Option<WorkloadSelector>,
    pub mtls: Option<MutualTls>,
    pub port_level_mtls: BTreeMap<u32, MutualTls>,
    /// True for the closed form of a policy with unreadable workloads or ports: all workloads and ports that
    /// it could select require mutual TLS.
    #[serde(skip)]
    pub closed: bool,
}

#[derive(Copy)]
pub struct MutualTls {
    pub mode: MutualTlsMode,
}
}

enumeration! {
/// Requirement of mutual TLS. `Unset` inherits from the policy with the next wider scope.
pub enum MutualTlsMode {
    #[default]
    Unset,
    Disable,
    Permissive,
    Strict,
}
}
