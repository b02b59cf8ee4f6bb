//! EnvoyFilters: patches on finished resources.
//!
//! ```text
//! objects ─▶ PatchesIn(namespace): parsed values ─┐
//! proxy: namespace, labels, version, metadata ────┴▶ Patches: those that match, in order ─▶ clusters.rs,
//!                                                                            listeners.rs, routes.rs
//! ```
//!
//! Structure (which listener, which filter, where to insert) is handled on Envoy's types. Values are merged
//! by descriptors, so a patch may hold any message that Envoy knows. A patch that cannot be read, or that
//! makes something that Envoy refuses (`judge.rs`), costs that patch only.

mod applied;
mod clusters;
mod filters;
mod insert;
mod judge;
mod layer;
mod listeners;
mod merge;
mod names;
mod parse;
mod routes;
mod select;
mod value;
mod version;

pub(crate) use applied::Patched;
pub(crate) use clusters::{added_clusters, patch_cluster};
pub(crate) use layer::Layer;
pub(crate) use listeners::{added_listeners, patch_listener};
pub use parse::check_object;
pub(crate) use routes::{ServicePorts, patch_routes};
pub(crate) use select::{MAX_PATCH_BYTES, MAX_PATCHES, Patches, Subject};

use crate::envoy::TrafficClass;
use pilotfish_config::networking::PatchContext;

/// Returns true if a patch context includes a class of traffic.
fn is_for(context: PatchContext, class: TrafficClass) -> bool {
    match context {
        PatchContext::Any => true,
        PatchContext::SidecarInbound => class == TrafficClass::Inbound,
        PatchContext::SidecarOutbound => class == TrafficClass::Outbound,
        PatchContext::Gateway => class == TrafficClass::Gateway,
        PatchContext::Waypoint => false,
    }
}

#[cfg(test)]
mod tests;
