//! The two forms of xDS.

/// The two forms of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `DeltaAggregatedResources`.
    Delta,
    /// `StreamAggregatedResources`: state of the world.
    Sotw,
}
