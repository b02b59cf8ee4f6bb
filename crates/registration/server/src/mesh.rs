//! Facts about the mesh that authorization of registrations depends on.

/// The mesh that registrations are part of. Called for each registration, so implementations answer from
/// memory.
pub trait Mesh: Send + Sync + 'static {
    /// True for the mesh's trust domain and its aliases.
    fn has_trust_domain(&self, domain: &str) -> bool;

    /// True for a namespace that has any object or service.
    fn has_namespace(&self, namespace: &str) -> bool;

    /// Returns the object that defines a service of the host, for messages; `None` if there is none.
    fn owner_of(&self, host: &str) -> Option<String>;
}

/// A mesh without other content, with the default trust domain.
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
