//! The settings of one proxy: what it was started with, else the mesh-wide default.

use crate::engine::{Cx, Query};
use crate::proxy::Proxy;
use pilotfish_config::mesh::ProxyConfig;
use std::sync::Arc;

/// The settings in force for proxies that bring these along (`PROXY_CONFIG` as JSON text; empty for none).
/// They stand alone: the injector merged the mesh's settings into them. Only connection settings are the
/// mesh's where the proxy has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EffectiveProxyConfig(pub Arc<str>);

impl Query for EffectiveProxyConfig {
    type Output = ProxyConfig;

    fn compute(&self, cx: &Cx<'_>) -> ProxyConfig {
        if self.0.is_empty() {
            return cx.mesh().default_config.clone();
        }
        let mesh = cx.mesh();
        let mut own: ProxyConfig = serde_json::from_str(&self.0).unwrap_or_else(|error| {
            tracing::warn!(%error, "PROXY_CONFIG of a node cannot be read: the mesh's settings are used");
            mesh.default_config.clone()
        });
        let of_mesh = || mesh.default_config.connection_settings.clone();
        own.connection_settings = own.connection_settings.take().or_else(of_mesh);
        own
    }
}

/// Returns those of a proxy's own settings that have these names. A text that is not a JSON
/// object is returned as it is.
#[must_use]
pub(crate) fn narrowed(own: &Arc<str>, names: &[&str]) -> Arc<str> {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(own) {
        Ok(mut settings) => {
            settings.retain(|name, _| names.contains(&name.as_str()));
            serde_json::Value::Object(settings).to_string().into()
        }
        Err(_) => own.clone(),
    }
}

/// The settings of a proxy.
#[must_use]
pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Arc<ProxyConfig> {
    cx.get(&EffectiveProxyConfig(proxy.proxy_config.clone()))
}
