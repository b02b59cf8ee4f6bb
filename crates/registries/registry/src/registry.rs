//! The contract of a registry that reads objects: objects in, model changes out, no IO.

use pilotfish_config::mesh::{MeshConfig, MeshNetworks};
use pilotfish_model::{
    Endpoint, Kind, KindSpec, NetworkGateway, Object, ObjectKey, Origin, Service, ServiceKey, ShardKey,
    Typed, Workload, WorkloadKey,
};
use std::sync::Arc;

/// Event of one object of a source.
#[derive(Clone, Debug)]
pub enum ObjectEvent {
    /// The object is new or changed; its current state.
    Applied(Object),
    Deleted(ObjectKey),
}

impl ObjectEvent {
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Applied(object) => object.key(),
            Self::Deleted(key) => key,
        }
    }

    /// Returns the current object; `None` after a deletion.
    #[must_use]
    pub fn object(&self) -> Option<&Object> {
        match self {
            Self::Applied(object) => Some(object),
            Self::Deleted(_) => None,
        }
    }

    /// Returns the current object as its type; `None` after a deletion or for another kind.
    #[must_use]
    pub fn typed<T: KindSpec>(&self) -> Option<Typed<T>> {
        self.object().and_then(Object::typed)
    }
}

/// Change of a workload, as sent to other registries. It lets ServiceEntries select Pods, and Kubernetes
/// Services select WorkloadEntries.
#[derive(Clone, Debug)]
pub struct WorkloadChange {
    pub key: WorkloadKey,
    /// Current state; `None` after a removal.
    pub workload: Option<Arc<Workload>>,
    /// Registry of the workload. Two registries may have a workload with the same key.
    pub from: ShardKey,
}

/// Mesh-wide settings, which are sent to every registry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// Istio's MeshConfig; `None` stands for its defaults.
    pub config: Option<Typed<MeshConfig>>,
    pub networks: Option<Typed<MeshNetworks>>,
    /// Trust domain of a cluster with its own; empty stands for the default.
    pub own_trust_domain: Option<Arc<str>>,
}

impl Mesh {
    /// Returns the trust domain of identities.
    #[must_use]
    pub fn trust_domain(&self) -> Arc<str> {
        let of_all = || self.config.as_ref().map_or("", |config| &config.trust_domain);
        let written = self.own_trust_domain.as_deref().unwrap_or_else(of_all);
        if written.is_empty() { "cluster.local".into() } else { written.into() }
    }
}

/// Host below `clusterset.local` for a Service of all clusters (ServiceImport), as imported into one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Service behind the host.
    pub service: ServiceKey,
    /// Addresses of the host in this cluster, sorted; never empty.
    pub addresses: Arc<[Arc<str>]>,
    /// Origin of the ServiceImport.
    pub provenance: Origin,
}

/// Change of a registry's content, with the complete value of a key.
#[derive(Clone, Debug)]
pub enum RegistryUpdate {
    /// Services of the registry with a host and namespace, in order; empty after their removal.
    Services(ServiceKey, Arc<[Arc<Service>]>),
    /// Endpoints of the registry for a service; `None` if it no longer has the service.
    Endpoints(ServiceKey, Option<Arc<[Arc<Endpoint>]>>),
    /// Workload of the registry; `None` after its removal.
    Workload(WorkloadKey, Option<Arc<Workload>>),
    /// Import of a host into this cluster; `None` after its removal.
    Import(ServiceKey, Option<Import>),
    /// All gateways between networks of the registry.
    Gateways(Arc<[NetworkGateway]>),
}

/// Object that a registry does not put in force because of a limit on objects together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedObject {
    pub key: ObjectKey,
    /// File and line, or the cluster.
    pub origin: Arc<str>,
    /// Reason, with the numbers.
    pub message: String,
}

/// Differences that a registry reports when it settles.
#[derive(Debug, Default)]
pub struct RegistryOutput {
    /// Changes in any order, at most one for each key.
    pub updates: Vec<RegistryUpdate>,
}

impl RegistryOutput {
    pub fn push(&mut self, update: RegistryUpdate) {
        self.updates.push(update);
    }
}

/// Service registry that reads objects, as a state machine without IO. A registry with a source of its own
/// does not implement this trait: its source sends [`crate::RegistryBatch`]es.
///
/// Inputs only mark changes; [`Registry::settle`] then computes the consequences of all of them at once, so a
/// thousand objects that arrive together cost one pass. The result must not depend on the order of the
/// inputs.
pub trait Registry: Send {
    /// Returns the shard of services that this registry owns.
    fn shard(&self) -> &ShardKey;

    /// Returns an independent registry in the same state, for dry runs. It shares values, so it costs
    /// pointers only.
    fn copy(&self) -> Box<dyn Registry>;

    /// Returns the objects that the last [`Registry::settle`] did not put in force.
    fn refused(&self) -> Arc<[RefusedObject]> {
        Arc::default()
    }

    /// Returns the kinds of objects that the registry reads.
    fn kinds(&self) -> &'static [Kind] {
        &[]
    }

    /// Applies a change of an object of one of its kinds.
    fn apply(&mut self, _event: &ObjectEvent) {}

    /// Applies a change of a workload of another registry.
    fn workload(&mut self, _change: &WorkloadChange) {}

    /// Applies changed mesh-wide settings.
    fn mesh(&mut self, _mesh: &Mesh) {}

    /// Computes the consequences of the inputs since the last call, and adds the differences to `out`.
    fn settle(&mut self, out: &mut RegistryOutput);
}
