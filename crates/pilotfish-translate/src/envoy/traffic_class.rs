//! Which traffic of a proxy a resource is for.

/// The traffic that a resource is for: Istio calls it the class of a listener, and the context of an EnvoyFilter's patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TrafficClass {
    /// To a sidecar's workload.
    Inbound,
    /// From a sidecar's workload.
    Outbound,
    /// Through a gateway.
    Gateway,
}
