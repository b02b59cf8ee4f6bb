//! MeshNetworks: which endpoints are on which network, and the gateways between networks.

use crate::kinds::message::{kind, message};
use std::collections::BTreeMap;

kind!(MeshNetworks = MeshNetworks;);

message! {
/// Networks by name.
pub struct MeshNetworks {
    pub networks: BTreeMap<String, Network>,
}

/// One network.
pub struct Network {
    pub endpoints: Vec<NetworkEndpoints>,
    pub gateways: Vec<IstioNetworkGateway>,
}

/// Which endpoints are on the network; a oneof.
pub struct NetworkEndpoints {
    pub from_cidr: Option<String>,
    pub from_registry: Option<String>,
}

/// A gateway into the network. The service name and the address are a oneof.
pub struct IstioNetworkGateway {
    pub registry_service_name: Option<String>,
    pub address: Option<String>,
    pub port: u32,
    pub locality: String,
}
}
