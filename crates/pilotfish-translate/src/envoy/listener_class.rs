//! Which side of the traffic a listener is on.

/// The side of the traffic that a listener, and each of its filters, is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ListenerClass {
    /// To a sidecar's workload.
    Inbound,
    /// From a sidecar's workload.
    Outbound,
    /// Through a gateway.
    Gateway,
}
