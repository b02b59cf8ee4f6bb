//! What the engine has to know of the other registry.

use crate::{DesiredService, Instance, Metadata, Place, ServiceKey};

/// What the other registry has, and how much of it goes into one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Namespaces that have to be made.
    pub namespaces: bool,
    /// Services that have to be made, with metadata of their own.
    pub services: bool,
    /// Further names of services.
    pub aliases: bool,
    /// Most elements of one call.
    pub batch: usize,
}

/// Another registry: what it can hold, and whose an instance is. Knows no sockets.
///
/// Instances belong to us when their metadata says so, and nothing else is ever changed or deleted. The one implementation is Polaris; one
/// for Consul would have neither namespaces nor aliases and batches of one, and one that writes to a cluster would own by labels.
pub trait Target: Send + Sync {
    /// What it has.
    fn capabilities(&self) -> Capabilities;

    /// Whether a service can have this name.
    ///
    /// # Errors
    /// Why it cannot, in one line.
    fn check_service(&self, key: &ServiceKey) -> Result<(), String>;

    /// Takes out of a service what the registry would refuse, so that one odd label does not cost the service. Returns what
    /// it took, one line each.
    fn fit_service(&self, service: &mut DesiredService) -> Vec<String>;

    /// Takes out of an instance what the registry would refuse, and then writes whose it is, over whatever else the metadata says.
    /// Returns what it took, one line each.
    ///
    /// # Errors
    /// When it cannot be registered at all.
    fn fit_instance(&self, place: &Place, instance: &mut Instance) -> Result<Vec<String>, String>;

    /// True if the registry shows metadata that was written as `wanted` as `known`. Keys that it hides from readers, or adds
    /// itself, do not count.
    fn same_metadata(&self, wanted: &Metadata, known: &Metadata) -> bool {
        wanted == known
    }

    /// Whether the instance with this metadata is ours.
    fn owns(&self, metadata: &Metadata) -> bool;

    /// Whether we have isolated the instance with this metadata. Isolation without our mark is a person's, and stays.
    fn isolated_by_us(&self, metadata: &Metadata) -> bool;

    /// Writes into the metadata of an instance that we isolate it, or takes that out.
    fn mark_isolated(&self, metadata: &mut Metadata, isolated: bool);

    /// Returns the metadata that an instance of ours has from its isolation to its deletion: still ours, marked as isolated by
    /// us, and different from `known`, so that the registry takes the write for a change.
    fn retired(&self, known: &Metadata) -> Metadata;
}
