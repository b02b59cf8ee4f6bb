//! Checks of mesh config and mesh networks.

pub(super) mod extension_provider;
pub(super) mod mesh_config;
