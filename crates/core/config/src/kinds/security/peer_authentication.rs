//! PeerAuthentication: whether workloads accept plain text or ask for mutual TLS.

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
    /// Set in the closed form of a policy with unreadable workloads or ports: all that it could be for
    /// ask for mutual TLS.
    #[serde(skip)]
    pub closed: bool,
}

/// Mutual TLS.
#[derive(Copy)]
pub struct MutualTls {
    pub mode: MutualTlsMode,
}
}

enumeration! {
/// How strict mutual TLS is.
pub enum MutualTlsMode {
    #[default]
    Unset,
    Disable,
    Permissive,
    Strict,
}
}
