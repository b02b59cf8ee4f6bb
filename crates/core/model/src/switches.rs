//! Behaviours that newer versions of Istio changed, and that its users may switch back.

use serde::{Deserialize, Serialize};

/// Switches of behaviour, with the defaults and the meaning of istiod's environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Switches {
    /// Endpoints of every service are sent while they are not ready, marked `UNHEALTHY`, and clusters never
    /// panic (`PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS`).
    pub unhealthy_endpoints: bool,
    /// Behind a Gateway whose proxies its controller makes, Istio's Gateways of other namespaces do not count
    /// (`PILOT_ENABLE_STRICT_GATEWAY_MERGING`).
    pub strict_gateway_merging: bool,
    /// Of destinations that several other namespaces have, a Kubernetes Service comes first, then the oldest
    /// service; else the first namespace by name (`PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE`).
    pub best_service_namespace: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self { unhealthy_endpoints: true, strict_gateway_merging: true, best_service_namespace: true }
    }
}
