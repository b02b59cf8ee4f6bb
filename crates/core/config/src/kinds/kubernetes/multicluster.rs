//! ServiceExport and ServiceImport of the multi-cluster services API.

use super::TransportProtocol;
use crate::kinds::message::{kind, message};
use serde::{Deserialize, Serialize};

kind! {
    ServiceExport = ServiceExport;
    ServiceImport = ServiceImport;
}

message! {
/// Makes the Service of the same name known in every cluster.
pub struct ServiceExport {}

/// A Service that other clusters export.
pub struct ServiceImport {
    pub spec: ServiceImportSpec,
}

/// `spec` of a ServiceImport.
pub struct ServiceImportSpec {
    pub r#type: ServiceImportType,
    pub ips: Vec<String>,
    pub ports: Vec<ServiceImportPort>,
}

/// A port of the imported Service.
pub struct ServiceImportPort {
    pub name: String,
    pub protocol: TransportProtocol,
    pub port: u16,
    pub app_protocol: Option<String>,
}
}

/// Type of the imported Service: with a virtual IP (`ClusterSetIP`), or headless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum ServiceImportType {
    #[default]
    #[serde(rename = "ClusterSetIP")]
    ClusterSetIp,
    Headless,
}
