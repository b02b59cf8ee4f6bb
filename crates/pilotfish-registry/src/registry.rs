//! The contract of a registry that reads objects: objects in, model changes out, no IO.

use pilotfish_config::mesh::{MeshConfig, MeshNetworks};
use pilotfish_model::{
    Endpoint, Kind, KindSpec, NetworkGateway, Object, ObjectKey, Origin, Service, ServiceKey, ShardKey,
    Typed, Workload, WorkloadKey,
};
use std::sync::Arc;

/// What happened to one object of a source.
#[derive(Clone, Debug)]
pub enum ObjectEvent {
    /// It appeared or changed; this is how it is now.
    Applied(Object),
    /// It is gone.
    Deleted(ObjectKey),
}

impl ObjectEvent {
    /// Which object.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Applied(object) => object.key(),
            Self::Deleted(key) => key,
        }
    }

    /// How the object is now; `None` when it is gone.
    #[must_use]
    pub fn object(&self) -> Option<&Object> {
        match self {
            Self::Applied(object) => Some(object),
            Self::Deleted(_) => None,
        }
    }

    /// How the object is now, as its type; `None` when it is gone or of another kind.
    #[must_use]
    pub fn typed<T: KindSpec>(&self) -> Option<Typed<T>> {
        self.object().and_then(Object::typed)
    }
}

/// A workload of one registry, as the others see it. Selection crosses registries this way: ServiceEntries select Pods,
/// Kubernetes Services select WorkloadEntries.
#[derive(Clone, Debug)]
pub struct WorkloadChange {
    /// Which workload.
    pub key: WorkloadKey,
    /// How it is now; `None` when it is gone.
    pub workload: Option<Arc<Workload>>,
    /// The registry that it belongs to. Two registries may know a workload of the same key.
    pub from: ShardKey,
}

/// The mesh-wide settings, which reach every registry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// Istio's MeshConfig; `None` stands for its defaults.
    pub config: Option<Typed<MeshConfig>>,
    /// Istio's MeshNetworks.
    pub networks: Option<Typed<MeshNetworks>>,
    /// The trust domain of a cluster that has one of its own; empty stands for the default.
    pub own_trust_domain: Option<Arc<str>>,
}

impl Mesh {
    /// The trust domain of identities.
    #[must_use]
    pub fn trust_domain(&self) -> Arc<str> {
        let of_all = || self.config.as_ref().map_or("", |config| &config.trust_domain);
        let written = self.own_trust_domain.as_deref().unwrap_or_else(of_all);
        if written.is_empty() { "cluster.local".into() } else { written.into() }
    }
}

/// A host that stands for a Service in all clusters (ServiceImport), as one cluster has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The Service for which it stands.
    pub service: ServiceKey,
    /// The addresses of the host in this cluster, sorted; never empty.
    pub addresses: Arc<[Arc<str>]>,
    /// The ServiceImport.
    pub provenance: Origin,
}

/// One change of what a registry has, whole-valued by key.
#[derive(Clone, Debug)]
pub enum RegistryUpdate {
    /// The registry's services of a host and namespace, in order; empty when it has none any more.
    Services(ServiceKey, Arc<[Arc<Service>]>),
    /// The registry's endpoints of a service; `None` when it no longer knows the service.
    Endpoints(ServiceKey, Option<Arc<[Arc<Endpoint>]>>),
    /// One of its workloads; `None` when it is gone.
    Workload(WorkloadKey, Option<Arc<Workload>>),
    /// What a host stands for in this cluster; `None` when it is not imported any more.
    Import(ServiceKey, Option<Import>),
    /// All of its gateways between networks.
    Gateways(Arc<[NetworkGateway]>),
}

/// An object that a registry does not put in force, because of what objects are together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedObject {
    /// Kind, namespace and name.
    pub key: ObjectKey,
    /// File and line, or the cluster.
    pub origin: Arc<str>,
    /// The reason, with figures.
    pub message: String,
}

/// What differs when a registry settles.
#[derive(Debug, Default)]
pub struct RegistryOutput {
    /// The changes, in any order: no two of one key.
    pub updates: Vec<RegistryUpdate>,
}

impl RegistryOutput {
    /// Adds a change.
    pub fn push(&mut self, update: RegistryUpdate) {
        self.updates.push(update);
    }
}

/// A service registry that reads objects, as a state machine without IO. One with a source of its own needs none: its source
/// sends [`crate::RegistryBatch`]es.
///
/// Inputs only note what changed; [`Registry::settle`] then computes what follows from all of them at once, so a thousand
/// objects that arrive together cost one pass. The result must not depend on the order of the inputs.
pub trait Registry: Send {
    /// Which shard of every service is this registry's.
    fn shard(&self) -> &ShardKey;

    /// Another registry in the same state, for those who ask what would be. It costs pointers.
    fn copy(&self) -> Box<dyn Registry>;

    /// The objects that were not put in force when it settled last.
    fn refused(&self) -> Arc<[RefusedObject]> {
        Arc::default()
    }

    /// The kinds of objects of its feed that it wants to see.
    fn kinds(&self) -> &'static [Kind] {
        &[]
    }

    /// An object of one of its kinds changed.
    fn apply(&mut self, _event: &ObjectEvent) {}

    /// A workload of another registry changed.
    fn workload(&mut self, _change: &WorkloadChange) {}

    /// The mesh-wide settings changed.
    fn mesh(&mut self, _mesh: &Mesh) {}

    /// Computes what follows from the inputs since the last call, and adds what differs from before.
    fn settle(&mut self, out: &mut RegistryOutput);
}
