//! The two forms of xDS, and the limits of a stream of either.

use std::time::Duration;

/// The two forms of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `DeltaAggregatedResources`.
    Delta,
    /// `StreamAggregatedResources`: state of the world.
    Sotw,
}

/// How much one stream may subscribe to, and how long it waits for its client's ACKs.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Names subscribed to, all types together.
    pub subscriptions: usize,
    /// Bytes of those names.
    pub subscription_bytes: usize,
    /// How long listeners and routes wait for new clusters to be acknowledged and to have their endpoints.
    pub warming: Duration,
    /// How long removed clusters are kept for listeners and routes to be acknowledged.
    pub draining: Duration,
    /// How long a client that resumed may take to acknowledge its clusters before its endpoints are sent once more: Envoy
    /// holds that ACK back while a cluster waits for endpoints.
    pub resume_probe: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            subscriptions: 100_000,
            subscription_bytes: 16 << 20,
            warming: Duration::from_secs(5),
            draining: Duration::from_secs(5),
            resume_probe: Duration::from_secs(2),
        }
    }
}
