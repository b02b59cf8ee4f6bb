//! ServiceEntry: a service that no other registry knows.

use super::{LabelSelector, WorkloadEntry};
use crate::kinds::message::{enumeration, kind, message};
use pilotfish_model::{Hostname, LabelMap};

/// The label by which a ServiceEntry can ask not to be given addresses.
const AUTO_ALLOCATE: &str = "networking.istio.io/enable-autoallocate-ip";

kind!(ServiceEntry = ServiceEntry;);

message! {
/// Services by host, with their ports and endpoints.
pub struct ServiceEntry {
    pub hosts: Vec<String>,
    pub addresses: Vec<String>,
    pub ports: Vec<ServicePort>,
    pub location: Location,
    pub resolution: Resolution,
    pub endpoints: Vec<WorkloadEntry>,
    pub workload_selector: Option<LabelSelector>,
    pub export_to: Vec<String>,
    pub subject_alt_names: Vec<String>,
    /// The object's `status`, as far as it is read.
    #[serde(skip)]
    pub status: ServiceEntryStatus,
}

/// A port of the service.
pub struct ServicePort {
    pub number: u32,
    pub protocol: String,
    pub name: String,
    pub target_port: u32,
}

/// `status` of a ServiceEntry.
pub struct ServiceEntryStatus {
    pub addresses: Vec<ServiceEntryAddress>,
}

/// An address that was allocated for a host of the entry.
pub struct ServiceEntryAddress {
    pub value: String,
    pub host: String,
}
}

enumeration! {
/// Whether the service is part of the mesh.
pub enum Location {
    #[default]
    MeshExternal,
    MeshInternal,
}

/// How a proxy finds the endpoints.
pub enum Resolution {
    #[default]
    None,
    Static,
    Dns,
    DnsRoundRobin,
    DynamicDns,
}
}

impl ServiceEntry {
    /// True if a host of the entry is given addresses, so that those in the entry's status count: not where
    /// the entry has its own, opts out by a label, or has no resolution that could honour them; and no
    /// wildcard, unless proxies resolve what it stands for.
    #[must_use]
    pub fn takes_addresses(&self, labels: &LabelMap, host: &Hostname) -> bool {
        let refuses = labels.get(AUTO_ALLOCATE).is_some_and(|value| value.eq_ignore_ascii_case("false"));
        let stands_for_many = host.is_wildcard() && self.resolution != Resolution::DynamicDns;
        !refuses && !stands_for_many && self.resolution != Resolution::None && self.addresses.is_empty()
    }
}
