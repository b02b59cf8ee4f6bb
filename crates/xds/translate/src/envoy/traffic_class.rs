//! Class of proxy traffic that a resource serves.

/// Direction of the traffic that a resource handles: in Istio the class of a listener, and the context of an
/// EnvoyFilter's patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TrafficClass {
    /// To a sidecar's workload.
    Inbound,
    /// From a sidecar's workload.
    Outbound,
    Gateway,
}
