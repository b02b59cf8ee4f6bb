//! The settings of a proxy: its own where it sends any, else those of the mesh.

use crate::{Cx, Query};
use pilotfish_config::mesh::ProxyConfig;
use std::sync::Arc;

/// The settings in force for proxies that send these (JSON text; empty for none).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EffectiveProxyConfig(pub(super) Arc<str>);

impl Query for EffectiveProxyConfig {
    type Output = ProxyConfig;

    fn compute(&self, cx: &Cx<'_>) -> ProxyConfig {
        if self.0.is_empty() {
            return cx.mesh().default_config.clone();
        }
        serde_json::from_str(&self.0).unwrap_or_else(|error| {
            tracing::warn!(%error, "PROXY_CONFIG of a node cannot be read: the mesh's settings are used");
            cx.mesh().default_config.clone()
        })
    }
}
