pub(crate) mod nack;
pub(crate) mod node;
pub(crate) mod wire;

/// Variants of the xDS protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Delta,
    /// `StreamAggregatedResources`: state of the world.
    Sotw,
}
