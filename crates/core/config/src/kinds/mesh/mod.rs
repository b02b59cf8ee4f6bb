//! Mesh-wide settings: `MeshConfig` with Istio's defaults, and `MeshNetworks`.
//!
//! The types have the fields, names and proto JSON forms of
//! <https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/>. Fields that only istiod's own
//! operation or sidecar injection read are accepted and kept, so that an existing file needs no change.
#![allow(
    missing_docs,
    reason = "fields carry the names and the meaning of Istio's API reference, linked above"
)]

mod cluster_local;
mod extension_provider;
mod mesh_config;
mod networks;
mod proxy_config;

pub use cluster_local::ClusterLocal;
pub use extension_provider::*;
pub use mesh_config::*;
pub use networks::*;
pub use proxy_config::*;

/// The name of the one `MeshConfig` and the one `MeshNetworks` object; they have no namespace.
pub const OBJECT_NAME: &str = "default";
