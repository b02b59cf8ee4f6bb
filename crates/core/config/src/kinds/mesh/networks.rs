//! MeshNetworks: endpoints of each network, and the gateways between networks.

use crate::kinds::message::{kind, message};
use std::collections::BTreeMap;

kind!(MeshNetworks = MeshNetworks;);

message! {
pub struct MeshNetworks {
    pub networks: BTreeMap<String, Network>,
}

pub struct Network {
    pub endpoints: Vec<NetworkEndpoints>,
    pub gateways: Vec<IstioNetworkGateway>,
}

/// Endpoints of the network, by address block or by registry; a oneof.
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
