//! Resource types of xDS, in the order in which a proxy must receive them.

/// A type of xDS resource. The order of the variants is make-before-break: referenced types come before those
/// that refer to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, enum_map::Enum)]
pub enum ResourceType {
    /// Clusters: CDS with message `Cluster`.
    Cluster,
    /// Endpoints: EDS with message `ClusterLoadAssignment`.
    Endpoint,
    /// Listeners: LDS with message `Listener`.
    Listener,
    /// Routes: RDS with message `RouteConfiguration`.
    Route,
    /// Secrets: SDS with message `Secret`.
    Secret,
    /// Extension configurations: ECDS with message `TypedExtensionConfig`.
    ExtensionConfig,
    /// Name table for the DNS proxy of Istio's agent (NDS).
    NameTable,
}

impl ResourceType {
    /// All types in push order. The length is that of the enum, so a missing variant does not compile.
    pub const ALL: [Self; <Self as enum_map::Enum>::LENGTH] = [
        Self::Cluster,
        Self::Endpoint,
        Self::Listener,
        Self::Route,
        Self::Secret,
        Self::ExtensionConfig,
        Self::NameTable,
    ];

    /// Type URL, as in `DiscoveryRequest.type_url`.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::ExtensionConfig => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Self::NameTable => "type.googleapis.com/istio.networking.nds.v1.NameTable",
        }
    }

    /// Type with that URL; `None` for one that is not served.
    #[must_use]
    pub fn from_type_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.type_url() == url)
    }

    /// Short name, as in istiod's metrics: `cds`, `eds`, ...
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Cluster => "cds",
            Self::Endpoint => "eds",
            Self::Listener => "lds",
            Self::Route => "rds",
            Self::Secret => "sds",
            Self::ExtensionConfig => "ecds",
            Self::NameTable => "nds",
        }
    }

    /// True if a request without names means all resources.
    #[must_use]
    pub fn is_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener | Self::NameTable)
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceType;

    #[test]
    fn type_urls_lead_back_to_their_type() {
        for ty in ResourceType::ALL {
            assert_eq!(ResourceType::from_type_url(ty.type_url()), Some(ty));
        }
        assert!(ResourceType::ALL.is_sorted_by(|a, b| a < b), "push order, each type once");
    }
}
