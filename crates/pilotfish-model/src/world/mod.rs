//! The world: one immutable snapshot of everything that translation reads, and the one writer that makes the next.
//!
//! A change costs what it touches: the maps share structure between snapshots, and equal values are no change. What
//! changed is reported as [`Fact`]s, the same vocabulary in which translation records what it read. So "which results are
//! no longer valid" is a lookup, without hand-written lists of dependents.

mod difference;
mod writer;

pub use writer::WorldWriter;

use crate::{
    ClusterId, Endpoint, Hostname, Kind, KindSpec, Namespace, NetworkId, Object, ObjectKey, Service,
    ShardKey, SpiffeId, Typed, Workload, WorkloadKey, WorkloadKind,
};
use imbl::{OrdMap, OrdSet};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Which service: several namespaces may define one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ServiceKey {
    /// The host name.
    pub hostname: Hostname,
    /// The namespace that defines it.
    pub namespace: Namespace,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.hostname)
    }
}

/// A gateway through which the endpoints of a network are reached from other networks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct NetworkGateway {
    /// The network behind it.
    pub network: NetworkId,
    /// The cluster behind it; empty for gateways of the mesh-wide settings.
    pub cluster: ClusterId,
    /// IP address or host name.
    pub address: Arc<str>,
    /// The port that routes mutual TLS by SNI (AUTO_PASSTHROUGH); 0 for none.
    pub port: u32,
    /// The port for HBONE; 0 for none.
    pub hbone_port: u32,
    /// The service account of the gateway, where known.
    pub service_account: Arc<str>,
}

/// Whose right to read Secrets is reviewed: a service account, and how its clients prove that they are it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct SecretReader {
    /// The namespace of the account, whose Secrets it asks for.
    pub namespace: Namespace,
    /// The name of the account.
    pub service_account: Arc<str>,
    /// Whether the API server that has the Secrets vouches for the identity. A certificate does not tell of which cluster its account is.
    pub vouched: bool,
}

impl fmt::Display for SecretReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service_account)
    }
}

/// The endpoints of one service, by shard, and what is derived from all of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServiceEndpoints {
    /// Endpoints by registry, in the order that the registry gave them.
    pub shards: BTreeMap<ShardKey, Arc<[Arc<Endpoint>]>>,
    /// Identities of all endpoints, whatever their health. They change seldom, so they are a fact of their own.
    pub identities: Arc<BTreeSet<SpiffeId>>,
}

impl ServiceEndpoints {
    /// All endpoints, by shard in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.shards.values().flat_map(|shard| shard.iter())
    }
}

/// Something in the world that can be read, and that a change set names when it changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// The services of one host and namespace: any field of them, or whether they exist.
    Service(ServiceKey),
    /// Which namespaces define a host.
    Host(Hostname),
    /// Which services exist, or any field of any of them: what a walk over all services reads.
    Services,
    /// The endpoints of a service.
    Endpoints(ServiceKey),
    /// The set of identities of a service's endpoints.
    Identities(ServiceKey),
    /// One workload. Large keys are behind a pointer, as there are many facts of others.
    Workload(Arc<WorkloadKey>),
    /// Which workloads have an address.
    WorkloadsAt(Arc<str>),
    /// Which workloads there are in a namespace, or any field of any of them.
    Workloads(Namespace),
    /// Which namespaces have pods.
    PodNamespaces,
    /// Which services have an endpoint at an address.
    EndpointsAt(Arc<str>),
    /// One configuration object.
    Object(ObjectKey),
    /// The objects of a kind in one namespace: which there are, or the content of any.
    Objects(Kind, Namespace),
    /// All objects of a kind.
    Kind(Kind),
    /// The gateways between networks.
    NetworkGateways,
    /// Whether a service account may read the Secrets of its namespace.
    SecretAccess(Arc<SecretReader>),
}

/// What really differs between one world and the next. Equal values are no change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// Every fact that changed.
    pub facts: BTreeSet<Fact>,
}

impl ChangeSet {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Adds what another change set names.
    pub fn merge(&mut self, other: Self) {
        self.facts.extend(other.facts);
    }
}

/// One change from a registry or source, whole-valued: applying it twice is the same as once.
#[derive(Clone, Debug)]
pub enum Update {
    /// The services of a key, merged over all registries, the winning one first; empty removes the key.
    Services(ServiceKey, Arc<[Arc<Service>]>),
    /// One shard's endpoints of a service. An empty list keeps the service known (scale to zero).
    Endpoints(ServiceKey, ShardKey, Arc<[Arc<Endpoint>]>),
    /// Drops one shard of a service, for a registry that no longer knows the service.
    RemoveShard(ServiceKey, ShardKey),
    /// A workload appeared or changed.
    Workload(Arc<Workload>),
    /// A workload is gone.
    RemoveWorkload(WorkloadKey),
    /// A configuration object appeared or changed.
    Object(Object),
    /// A configuration object is gone.
    RemoveObject(ObjectKey),
    /// All gateways between networks, sorted.
    NetworkGateways(Arc<[NetworkGateway]>),
    /// Whether a service account may read the Secrets of its namespace; `None` when it is not known (any more).
    SecretAccess(SecretReader, Option<bool>),
}

/// One immutable snapshot. Cloning costs a few pointers.
#[derive(Clone, Default)]
pub struct World {
    revision: u64,
    services: OrdMap<ServiceKey, Arc<[Arc<Service>]>>,
    endpoints: OrdMap<ServiceKey, Arc<ServiceEndpoints>>,
    /// Which services have an endpoint at an address; the addresses of a service share its key.
    endpoints_at: OrdSet<(Arc<str>, Arc<ServiceKey>)>,
    workloads: OrdMap<WorkloadKey, Arc<Workload>>,
    workloads_at: OrdSet<(Arc<str>, WorkloadKey)>,
    objects: OrdMap<ObjectKey, Object>,
    network_gateways: Arc<[NetworkGateway]>,
    secret_access: OrdMap<SecretReader, bool>,
}

impl World {
    /// Counts up with every published world of one process; never compared between processes.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The services of a host and namespace, the winning one first (several ServiceEntries may share both).
    #[must_use]
    pub fn services_of(&self, key: &ServiceKey) -> Option<&Arc<[Arc<Service>]>> {
        self.services.get(key)
    }

    /// All services by host name, then namespace.
    pub fn services(&self) -> impl Iterator<Item = (&ServiceKey, &Arc<[Arc<Service>]>)> {
        self.services.iter()
    }

    /// How many services (host and namespace) there are.
    #[must_use]
    pub fn service_count(&self) -> usize {
        self.services.len()
    }

    /// The services of one host in all namespaces.
    pub fn services_of_host<'a>(
        &'a self,
        hostname: &'a Hostname,
    ) -> impl Iterator<Item = (&'a ServiceKey, &'a Arc<[Arc<Service>]>)> {
        let first = ServiceKey { hostname: hostname.clone(), namespace: Namespace::default() };
        self.services.range(first..).take_while(move |(key, _)| key.hostname == *hostname)
    }

    /// The endpoints of a service. `None` when no registry ever had any.
    #[must_use]
    pub fn endpoints_of(&self, key: &ServiceKey) -> Option<&Arc<ServiceEndpoints>> {
        self.endpoints.get(key)
    }

    /// The endpoints of all services.
    pub fn endpoints(&self) -> impl Iterator<Item = (&ServiceKey, &Arc<ServiceEndpoints>)> {
        self.endpoints.iter()
    }

    /// The services that have an endpoint at an address.
    pub fn services_at(&self, address: &str) -> impl Iterator<Item = &ServiceKey> {
        let address: Arc<str> = address.into();
        let first = ServiceKey { hostname: Hostname::lowest(), namespace: Namespace::default() };
        self.endpoints_at
            .range((address.clone(), Arc::new(first))..)
            .take_while(move |(at, _)| *at == address)
            .map(|(_, key)| &**key)
    }

    /// A workload by its key.
    #[must_use]
    pub fn workload(&self, key: &WorkloadKey) -> Option<&Arc<Workload>> {
        self.workloads.get(key)
    }

    /// All workloads: pods first, by namespace and name.
    pub fn workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.workloads.values()
    }

    /// Whether there is anything in a namespace: a pod, an object or a service.
    #[must_use]
    pub fn has_namespace(&self, namespace: &Namespace) -> bool {
        self.pods_in(namespace).next().is_some()
            || Kind::ALL.iter().any(|kind| self.objects_in(*kind, namespace).next().is_some())
            || self.services.keys().any(|key| key.namespace == *namespace)
    }

    /// The pods of a namespace, by name.
    pub fn pods_in<'a>(&'a self, namespace: &'a Namespace) -> impl Iterator<Item = &'a Arc<Workload>> {
        let first = WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: namespace.clone(),
            name: "".into(),
            cluster: ClusterId::default(),
        };
        let of_namespace = |key: &WorkloadKey| key.kind == WorkloadKind::Pod && key.namespace == *namespace;
        self.workloads
            .range(first..)
            .take_while(move |(key, _)| of_namespace(key))
            .map(|(_, workload)| workload)
    }

    /// The namespaces that have pods, in order. Costs a lookup each, however many pods there are.
    pub fn pod_namespaces(&self) -> impl Iterator<Item = &Namespace> {
        let from = |namespace: &str| WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: namespace.into(),
            name: "".into(),
            cluster: ClusterId::default(),
        };
        let first = move |from: WorkloadKey| {
            let (key, _) = self.workloads.range(from..).next()?;
            (key.kind == WorkloadKind::Pod).then_some(&key.namespace)
        };
        // No name sorts between another and that one with a zero behind it.
        std::iter::successors(first(from("")), move |last| first(from(&format!("{last}\0"))))
    }

    /// The workloads that have an address.
    pub fn workloads_at(&self, address: &str) -> impl Iterator<Item = &WorkloadKey> {
        let address: Arc<str> = address.into();
        let first = WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: Namespace::default(),
            name: "".into(),
            cluster: ClusterId::default(),
        };
        self.workloads_at
            .range((address.clone(), first)..)
            .take_while(move |(at, _)| *at == address)
            .map(|(_, key)| key)
    }

    /// An object by its key.
    #[must_use]
    pub fn object(&self, key: &ObjectKey) -> Option<&Object> {
        self.objects.get(key)
    }

    /// An object by its type, namespace and name.
    #[must_use]
    pub fn typed<T: KindSpec>(&self, namespace: &Namespace, name: &str) -> Option<Typed<T>> {
        self.objects.get(&ObjectKey::new(T::KIND, namespace.clone(), name))?.typed()
    }

    /// All objects of a kind, by namespace and name.
    pub fn objects(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let first = ObjectKey::new(kind, Namespace::default(), "");
        self.objects.range(first..).take_while(move |(key, _)| key.kind == kind).map(|(_, object)| object)
    }

    /// The objects of a kind in one namespace, by name.
    pub fn objects_in<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a Namespace,
    ) -> impl Iterator<Item = &'a Object> {
        let first = ObjectKey::new(kind, namespace.clone(), "");
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.kind == kind && key.namespace == *namespace)
            .map(|(_, object)| object)
    }

    /// All objects, by kind, namespace and name.
    pub fn all_objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// The gateways between networks, sorted.
    #[must_use]
    pub fn network_gateways(&self) -> &Arc<[NetworkGateway]> {
        &self.network_gateways
    }

    /// Whether a service account may read the Secrets of its namespace; `None` when it is not known.
    #[must_use]
    pub fn secret_access(&self, reader: &SecretReader) -> Option<bool> {
        self.secret_access.get(reader).copied()
    }
}
