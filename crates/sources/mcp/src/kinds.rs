//! Kinds that are transferred by MCP: their type URLs and message types.

use pilotfish_model::Kind;

/// Type URL of mesh config, which is not a Kubernetes kind.
pub const MESH_CONFIG: &str = "core/v1alpha1/MeshConfig";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpKind {
    pub kind: Kind,
    /// Version in the type URL, since Istio 1.24.
    pub version: &'static str,
    /// Version in the type URL, until Istio 1.23.
    pub old_version: &'static str,
    /// Full name of the message.
    pub message: &'static str,
}

const fn of(kind: Kind, version: &'static str, old_version: &'static str, message: &'static str) -> McpKind {
    McpKind { kind, version, old_version, message }
}

/// All kinds, in the order of their requests: mesh config first, then by name.
pub const KINDS: &[McpKind] = &[
    of(Kind::MeshConfig, "v1alpha1", "v1alpha1", "istio.mesh.v1alpha1.MeshConfig"),
    of(Kind::AuthorizationPolicy, "v1", "v1beta1", "istio.security.v1beta1.AuthorizationPolicy"),
    of(Kind::DestinationRule, "v1", "v1alpha3", "istio.networking.v1alpha3.DestinationRule"),
    of(Kind::EnvoyFilter, "v1alpha3", "v1alpha3", "istio.networking.v1alpha3.EnvoyFilter"),
    of(Kind::Gateway, "v1", "v1alpha3", "istio.networking.v1alpha3.Gateway"),
    of(Kind::PeerAuthentication, "v1", "v1beta1", "istio.security.v1beta1.PeerAuthentication"),
    of(Kind::ProxyConfig, "v1beta1", "v1beta1", "istio.networking.v1beta1.ProxyConfig"),
    of(Kind::RequestAuthentication, "v1", "v1beta1", "istio.security.v1beta1.RequestAuthentication"),
    of(Kind::ServiceEntry, "v1", "v1alpha3", "istio.networking.v1alpha3.ServiceEntry"),
    of(Kind::Sidecar, "v1", "v1alpha3", "istio.networking.v1alpha3.Sidecar"),
    of(Kind::Telemetry, "v1", "v1alpha1", "istio.telemetry.v1alpha1.Telemetry"),
    of(Kind::VirtualService, "v1", "v1alpha3", "istio.networking.v1alpha3.VirtualService"),
    of(Kind::WasmPlugin, "v1alpha1", "v1alpha1", "istio.extensions.v1alpha1.WasmPlugin"),
    of(Kind::WorkloadEntry, "v1", "v1alpha3", "istio.networking.v1alpha3.WorkloadEntry"),
    of(Kind::WorkloadGroup, "v1", "v1alpha3", "istio.networking.v1alpha3.WorkloadGroup"),
];

impl McpKind {
    /// Entry of a kind; `None` for one that is not transferred by MCP.
    #[must_use]
    pub fn of(kind: Kind) -> Option<&'static Self> {
        KINDS.iter().find(|entry| entry.kind == kind)
    }

    /// Kind of a type URL in any of its spellings; `None` for another URL.
    #[must_use]
    pub fn of_type_url(url: &str) -> Option<&'static Self> {
        let mut parts = url.split('/');
        let (group, version, name) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || url == MESH_CONFIG {
            return (url == MESH_CONFIG).then(|| Self::of(Kind::MeshConfig)).flatten();
        }
        let entry = Self::of(Kind::find(group, name)?)?;
        let versions = pilotfish_config::served(entry.kind)?.versions;
        versions.contains(&version).then_some(entry)
    }

    /// Type URL for requests.
    #[must_use]
    pub fn type_url(&self, old: bool) -> String {
        if self.kind == Kind::MeshConfig {
            return MESH_CONFIG.to_owned();
        }
        let version = if old { self.old_version } else { self.version };
        format!("{}/{version}/{}", self.kind.group(), self.kind.name())
    }

    /// True if a message of that full name has the kind's content, in any version: they are equal on the
    /// wire.
    #[must_use]
    pub fn is_message(&self, name: &str) -> bool {
        let parts = |name: &str| -> Option<(String, String)> {
            let (package, message) = name.rsplit_once('.')?;
            let (group, _version) = package.rsplit_once('.')?;
            Some((group.to_owned(), message.to_owned()))
        };
        name == self.message || parts(name).is_some_and(|found| Some(found) == parts(self.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_in_both_spellings_and_has_a_message() {
        for entry in KINDS {
            for old in [false, true] {
                assert_eq!(McpKind::of_type_url(&entry.type_url(old)), Some(entry));
            }
            assert!(pilotfish_proto::istio_api::pool().get_message_by_name(entry.message).is_some());
        }
        assert_eq!(
            McpKind::of(Kind::ServiceEntry).unwrap().type_url(true),
            "networking.istio.io/v1alpha3/ServiceEntry"
        );
        assert_eq!(McpKind::of(Kind::Telemetry).unwrap().type_url(false), "telemetry.istio.io/v1/Telemetry");
    }

    #[test]
    fn other_type_urls_are_no_kind() {
        for url in [
            "",
            "nonsense",
            "core/v1alpha1/MeshNetworks",
            "mesh.istio.io/v1alpha1/MeshConfig",
            "networking.istio.io/v2/ServiceEntry",
            "networking.istio.io/v1/ServiceEntry/x",
            "/v1/Service",
            "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        ] {
            assert_eq!(McpKind::of_type_url(url), None, "{url}");
        }
    }

    #[test]
    fn the_version_of_a_message_does_not_matter() {
        let entry = McpKind::of(Kind::ServiceEntry).unwrap();
        assert!(entry.is_message("istio.networking.v1alpha3.ServiceEntry"));
        assert!(entry.is_message("istio.networking.v1.ServiceEntry"));
        assert!(!entry.is_message("istio.networking.v1alpha3.Sidecar"));
        assert!(!entry.is_message("istio.security.v1.ServiceEntry"));
        assert!(!entry.is_message("ServiceEntry"));
    }
}
