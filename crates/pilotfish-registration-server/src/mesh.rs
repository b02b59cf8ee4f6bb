//! Facts about the mesh beside registrations, which decide who may register what.

/// The mesh that registrations are part of. Asked for each registration, so answers come from memory.
pub trait Mesh: Send + Sync + 'static {
    /// True for the mesh's trust domain and its aliases.
    fn has_trust_domain(&self, domain: &str) -> bool;

    /// True for a namespace that has anything.
    fn has_namespace(&self, namespace: &str) -> bool;

    /// The object that makes a service of the host, for messages; `None` if no object does.
    fn owner_of(&self, host: &str) -> Option<String>;
}

/// A mesh that has nothing else, with the default trust domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMesh;

impl Mesh for NoMesh {
    fn has_trust_domain(&self, domain: &str) -> bool {
        domain == "cluster.local"
    }

    fn has_namespace(&self, _: &str) -> bool {
        false
    }

    fn owner_of(&self, _: &str) -> Option<String> {
        None
    }
}
