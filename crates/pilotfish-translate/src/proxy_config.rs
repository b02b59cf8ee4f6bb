//! The settings of one proxy: what it was started with, else the mesh-wide default.

use crate::{Cx, Proxy};
use pilotfish_config::mesh::ProxyConfig;
use std::sync::Arc;

/// The settings of a proxy. What it brings along (`PROXY_CONFIG`) stands alone: the injector merged the mesh's settings into it.
#[must_use]
pub fn of(cx: &Cx<'_>, proxy: &Proxy) -> Arc<ProxyConfig> {
    match serde_json::from_str::<ProxyConfig>(&proxy.proxy_config) {
        Ok(config) => Arc::new(config),
        Err(_) => Arc::new(cx.mesh().default_config.clone()),
    }
}
