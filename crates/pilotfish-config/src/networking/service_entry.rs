//! ServiceEntry: a service that no other registry knows.

use super::{LabelSelector, WorkloadEntry};
use crate::message::{enumeration, kind, message};

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
