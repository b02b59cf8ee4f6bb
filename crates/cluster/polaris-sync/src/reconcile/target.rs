//! Interface of the reconciler to the other registry.

use crate::reconcile::{DesiredService, Instance, Metadata, Place, ServiceKey};

/// Features and limits of the other registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// True if namespaces must be created.
    pub namespaces: bool,
    /// True if services must be created and have their own metadata.
    pub services: bool,
    /// True if services can have aliases.
    pub aliases: bool,
    /// Maximum number of elements in one call.
    pub batch: usize,
}

/// Capabilities of another registry, and ownership of its instances. Without IO.
///
/// Ownership is recorded in the metadata of instances, and other instances are never changed or deleted. The
/// one implementation is Polaris; one for Consul would have neither namespaces nor aliases and batches of
/// one, and one that writes to a cluster would use labels.
pub trait Target: Send + Sync {
    fn capabilities(&self) -> Capabilities;

    /// Checks the name of a service.
    ///
    /// # Errors
    /// With the reason for rejecting it, in one line.
    fn check_service(&self, key: &ServiceKey) -> Result<(), String>;

    /// Removes from a service what the registry would refuse, so that one invalid label does not prevent its
    /// sync. Returns one line for each removal.
    fn fit_service(&self, service: &mut DesiredService) -> Vec<String>;

    /// Removes from an instance what the registry would refuse, and sets its owner in the metadata,
    /// overriding existing keys. Returns one line for each removal.
    ///
    /// # Errors
    /// When it cannot be registered at all.
    fn fit_instance(&self, place: &Place, instance: &mut Instance) -> Result<Vec<String>, String>;

    /// True if `known` is how the registry shows metadata written as `wanted`. Keys that it hides or adds are
    /// ignored.
    fn same_metadata(&self, wanted: &Metadata, known: &Metadata) -> bool {
        wanted == known
    }

    /// True if the instance with this metadata is ours.
    fn owns(&self, metadata: &Metadata) -> bool;

    /// True if we isolated the instance with this metadata. Isolation without our mark is manual, and stays.
    fn isolated_by_us(&self, metadata: &Metadata) -> bool;

    /// Adds or removes our isolation mark in the metadata of an instance.
    fn mark_isolated(&self, metadata: &mut Metadata, isolated: bool);

    /// Returns the metadata that an instance of ours has from its isolation to its deletion: still ours,
    /// marked as isolated by us, and different from `known`, so that the registry takes the write for a
    /// change.
    fn retired(&self, known: &Metadata) -> Metadata;
}
