//! ServiceEntry: a service that is in no other registry.

use super::{LabelSelector, WorkloadEntry};
use crate::kinds::message::{enumeration, kind, message};
use pilotfish_model::{Hostname, LabelMap};

/// Label by which a ServiceEntry opts out of address allocation.
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

/// Address allocated for a host of the entry.
pub struct ServiceEntryAddress {
    pub value: String,
    pub host: String,
}
}

enumeration! {
/// Location of the service: inside or outside of the mesh.
pub enum Location {
    #[default]
    MeshExternal,
    MeshInternal,
}

/// Discovery of the service's endpoints by proxies.
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
    /// True if a host of the entry is given addresses, so that those in the entry's status count. It is not
    /// if the entry has addresses, opts out by a label, or has resolution `NONE`; a wildcard host needs
    /// resolution `DYNAMIC_DNS`.
    #[must_use]
    pub fn takes_addresses(&self, labels: &LabelMap, host: &Hostname) -> bool {
        let refuses = labels.get(AUTO_ALLOCATE).is_some_and(|value| value.eq_ignore_ascii_case("false"));
        let stands_for_many = host.is_wildcard() && self.resolution != Resolution::DynamicDns;
        !refuses && !stands_for_many && self.resolution != Resolution::None && self.addresses.is_empty()
    }
}
