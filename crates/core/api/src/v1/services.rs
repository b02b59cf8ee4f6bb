//! Rows of services and endpoints.

use crate::Provenance;
use serde::{Deserialize, Serialize};

/// A service of one namespace: `/api/v1/services`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    pub host: String,
    /// Namespace that defines it.
    pub namespace: String,
    pub registry: String,
    pub ports: Vec<ServicePort>,
    /// Endpoint discovery of clients.
    pub resolution: String,
    pub addresses: Vec<String>,
    /// Namespaces that see it; empty for the mesh-wide default, `*` for all, `~` for none.
    pub export_to: Vec<String>,
    pub endpoints: usize,
    /// Number of endpoints that are healthy or without a health check.
    pub healthy: usize,
    /// Object or entry that defines it.
    pub provenance: Provenance,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    pub name: String,
    /// Port number that clients connect to.
    pub number: u32,
    pub protocol: String,
}

/// An endpoint of a service: `/api/v1/endpoints`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointRow {
    /// Host name of the service.
    pub host: String,
    /// Namespace of the service.
    pub namespace: String,
    /// IP address, host name, or path of a Unix socket; empty if it is reached through a gateway only.
    pub address: String,
    /// Port; 0 for a Unix socket.
    pub port: u32,
    /// Name of its service port.
    pub port_name: String,
    /// `Healthy`, `Unhealthy`, `Draining`, `Terminating` or `Unknown`.
    pub health: String,
    pub locality: String,
    /// Network; empty for the default one.
    pub network: String,
    /// Load balancing weight; 0 without one.
    pub weight: u32,
    /// TLS mode: `istio` or `disabled`.
    pub tls: String,
    /// Registry with its cluster, such as `Kubernetes/Kubernetes`.
    pub registry: String,
    /// Name of its Deployment or other workload.
    pub workload: String,
    /// Object or entry that defines it.
    pub provenance: Provenance,
}
