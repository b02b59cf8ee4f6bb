//! Descriptors of Istio's API: the configuration kinds as messages, for MCP.

use prost_reflect::DescriptorPool;
use std::io::Read;
use std::sync::LazyLock;

static PACKED: &[u8] = include_bytes!("../descriptors/istio.fds.gz");

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(PACKED).read_to_end(&mut bytes).expect("the committed set unpacks: tested");
    DescriptorPool::decode(&bytes[..]).expect("the committed set decodes: tested")
});

/// Messages of Istio's kinds, of mesh config and of MCP. Unpacked on first use.
#[must_use]
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_set_has_the_kinds() {
        for name in [
            "istio.mcp.v1alpha1.Resource",
            "istio.mesh.v1alpha1.MeshConfig",
            "istio.networking.v1alpha3.ServiceEntry",
            "istio.networking.v1beta1.ProxyConfig",
            "istio.security.v1beta1.AuthorizationPolicy",
            "istio.telemetry.v1alpha1.Telemetry",
            "istio.extensions.v1alpha1.WasmPlugin",
        ] {
            assert!(super::pool().get_message_by_name(name).is_some(), "{name}");
        }
    }
}
