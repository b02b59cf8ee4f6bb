//! Services and endpoints, one row each.

use crate::Provenance;
use serde::{Deserialize, Serialize};

/// A service of one namespace: `/api/v1/services`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    /// The host name.
    pub host: String,
    /// The namespace that defines it.
    pub namespace: String,
    /// The type of its registry.
    pub registry: String,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// How clients find endpoints.
    pub resolution: String,
    /// Its virtual addresses.
    pub addresses: Vec<String>,
    /// The namespaces that see it; empty for the mesh-wide default, `*` for all, `~` for none.
    pub export_to: Vec<String>,
    /// How many endpoints it has.
    pub endpoints: usize,
    /// How many of them are healthy, or of a health that nobody checks.
    pub healthy: usize,
    /// What made it.
    pub provenance: Provenance,
}

/// A port of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name.
    pub name: String,
    /// The number that clients connect to.
    pub number: u32,
    /// The application protocol.
    pub protocol: String,
}

/// An endpoint of a service: `/api/v1/endpoints`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointRow {
    /// The service's host name.
    pub host: String,
    /// The service's namespace.
    pub namespace: String,
    /// IP address, host name, or the path of a Unix socket; empty where only a gateway reaches it.
    pub address: String,
    /// The port; 0 with a Unix socket.
    pub port: u32,
    /// The name of the service port that it belongs to.
    pub port_name: String,
    /// `Healthy`, `Unhealthy`, `Draining`, `Terminating` or `Unknown`.
    pub health: String,
    /// `region/zone/sub_zone`.
    pub locality: String,
    /// The network; empty for the default one.
    pub network: String,
    /// The weight; 0 for none.
    pub weight: u32,
    /// `istio` or `disabled`.
    pub tls: String,
    /// The registry with its cluster: `Kubernetes/Kubernetes`.
    pub registry: String,
    /// The name of its Deployment or other workload.
    pub workload: String,
    /// What made it.
    pub provenance: Provenance,
}
