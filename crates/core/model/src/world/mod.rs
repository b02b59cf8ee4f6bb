//! The world: an immutable snapshot of all data that translation reads, and the single writer that creates
//! the next one.
//!
//! The cost of a change depends on its size: the maps share structure between snapshots, and equal values are
//! no change. Changes are reported as [`Fact`]s, the keys by which translation records its dependencies. So
//! outdated results are found by a lookup, without hand-written lists of dependents.

mod difference;
mod writer;

pub use writer::WorldWriter;

use crate::{
    ClusterId, Endpoint, Hostname, Kind, KindSpec, Namespace, NetworkId, Object, ObjectKey, Service,
    ServiceKey, ShardKey, SpiffeId, Typed, Workload, WorkloadKey, WorkloadKind,
};
use imbl::{OrdMap, OrdSet};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A gateway through which the endpoints of a network are reached from other networks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct NetworkGateway {
    /// Network whose endpoints are reached through the gateway.
    pub network: NetworkId,
    /// Cluster behind it; empty for gateways of the mesh-wide settings.
    pub cluster: ClusterId,
    /// IP address or host name.
    pub address: Arc<str>,
    /// Port that routes mutual TLS by SNI (AUTO_PASSTHROUGH); 0 for none.
    pub port: u32,
    /// HBONE port; 0 for none.
    pub hbone_port: u32,
    /// Service account of the gateway, if known.
    pub service_account: Arc<str>,
}

/// A service account whose access to Secrets is reviewed, with the way in which its clients authenticate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct SecretReader {
    /// Namespace of the account and of the Secrets.
    pub namespace: Namespace,
    pub service_account: Arc<str>,
    /// True if the API server that has the Secrets issued the identity. A certificate does not contain the
    /// cluster of an account.
    pub vouched: bool,
}

impl fmt::Display for SecretReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service_account)
    }
}

/// Endpoints of one service, by shard, and data derived from all of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServiceEndpoints {
    /// Endpoints by registry, in the registry's order.
    pub shards: BTreeMap<ShardKey, Arc<[Arc<Endpoint>]>>,
    /// Identities of all endpoints, regardless of their health. They change rarely, so they are a separate
    /// fact.
    pub identities: Arc<BTreeSet<SpiffeId>>,
}

impl ServiceEndpoints {
    /// All endpoints, in order of their shards.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.shards.values().flat_map(|shard| shard.iter())
    }
}

/// A part of the world that can be read, and that a change set names when it changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// Services of one host and namespace: their existence and all fields.
    Service(ServiceKey),
    /// Namespaces that define a host.
    Host(Hostname),
    /// Existence and all fields of all services, for iterations over them.
    Services,
    Endpoints(ServiceKey),
    /// Set of identities of a service's endpoints.
    Identities(ServiceKey),
    /// One workload. Large keys are behind a pointer, since there are many other facts.
    Workload(Arc<WorkloadKey>),
    /// Workloads with an address.
    WorkloadsAt(Arc<str>),
    /// Existence and all fields of the workloads in a namespace.
    Workloads(Namespace),
    /// Set of namespaces that have a workload.
    PodNamespaces,
    /// Services with an endpoint at an address.
    EndpointsAt(Arc<str>),
    Object(ObjectKey),
    /// Existence and content of the objects of a kind in one namespace.
    Objects(Kind, Namespace),
    Kind(Kind),
    NetworkGateways,
    /// Access of a service account to the Secrets of its namespace.
    SecretAccess(Arc<SecretReader>),
}

/// Differences between one world and the next. Equal values are no change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    pub facts: BTreeSet<Fact>,
}

impl ChangeSet {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Adds the facts of another change set.
    pub fn merge(&mut self, other: Self) {
        self.facts.extend(other.facts);
    }
}

/// A change from a registry or source with complete values: applying it twice is the same as once.
#[derive(Clone, Debug)]
pub enum Update {
    /// Services of a key, merged over all registries, the winning one first; empty removes the key.
    Services(ServiceKey, Arc<[Arc<Service>]>),
    /// Endpoints of a service in one shard. An empty list keeps the service known (scale to zero).
    Endpoints(ServiceKey, ShardKey, Arc<[Arc<Endpoint>]>),
    /// Removes one shard of a service, for a registry that no longer knows the service.
    RemoveShard(ServiceKey, ShardKey),
    /// A new or changed workload.
    Workload(Arc<Workload>),
    RemoveWorkload(WorkloadKey),
    /// A new or changed configuration object.
    Object(Object),
    RemoveObject(ObjectKey),
    /// All gateways between networks, sorted.
    NetworkGateways(Arc<[NetworkGateway]>),
    /// Access of a service account to the Secrets of its namespace; `None` if it is unknown.
    SecretAccess(SecretReader, Option<bool>),
}

/// Immutable snapshot. Cloning costs a few pointers.
#[derive(Clone, Default)]
pub struct World {
    revision: u64,
    services: OrdMap<ServiceKey, Arc<[Arc<Service>]>>,
    endpoints: OrdMap<ServiceKey, Arc<ServiceEndpoints>>,
    /// Services with an endpoint at an address; the addresses of a service share its key.
    endpoints_at: OrdSet<(Arc<str>, Arc<ServiceKey>)>,
    workloads: OrdMap<WorkloadKey, Arc<Workload>>,
    workloads_at: OrdSet<(Arc<str>, WorkloadKey)>,
    objects: OrdMap<ObjectKey, Object>,
    network_gateways: Arc<[NetworkGateway]>,
    secret_access: OrdMap<SecretReader, bool>,
}

impl World {
    /// Number of the world, ascending with every publication of this process; never compared between
    /// processes.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Services of a host and namespace, the winning one first (several ServiceEntries may share both).
    #[must_use]
    pub fn services_of(&self, key: &ServiceKey) -> Option<&Arc<[Arc<Service>]>> {
        self.services.get(key)
    }

    /// All services by host name, then namespace.
    pub fn services(&self) -> impl Iterator<Item = (&ServiceKey, &Arc<[Arc<Service>]>)> {
        self.services.iter()
    }

    /// Number of services (host and namespace).
    #[must_use]
    pub fn service_count(&self) -> usize {
        self.services.len()
    }

    /// Services of one host in all namespaces.
    pub fn services_of_host<'a>(
        &'a self,
        hostname: &'a Hostname,
    ) -> impl Iterator<Item = (&'a ServiceKey, &'a Arc<[Arc<Service>]>)> {
        let first = ServiceKey { hostname: hostname.clone(), namespace: Namespace::default() };
        self.services.range(first..).take_while(move |(key, _)| key.hostname == *hostname)
    }

    /// Endpoints of a service. `None` if no registry ever had any.
    #[must_use]
    pub fn endpoints_of(&self, key: &ServiceKey) -> Option<&Arc<ServiceEndpoints>> {
        self.endpoints.get(key)
    }

    /// Endpoints of all services.
    pub fn endpoints(&self) -> impl Iterator<Item = (&ServiceKey, &Arc<ServiceEndpoints>)> {
        self.endpoints.iter()
    }

    /// Services with an endpoint at an address.
    pub fn services_at(&self, address: &str) -> impl Iterator<Item = &ServiceKey> {
        let address: Arc<str> = address.into();
        let first = ServiceKey { hostname: Hostname::lowest(), namespace: Namespace::default() };
        self.endpoints_at
            .range((address.clone(), Arc::new(first))..)
            .take_while(move |(at, _)| *at == address)
            .map(|(_, key)| &**key)
    }

    #[must_use]
    pub fn workload(&self, key: &WorkloadKey) -> Option<&Arc<Workload>> {
        self.workloads.get(key)
    }

    /// All workloads: pods first, by namespace and name.
    pub fn workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.workloads.values()
    }

    /// True if a namespace has a pod, an object or a service.
    #[must_use]
    pub fn has_namespace(&self, namespace: &Namespace) -> bool {
        self.pods_in(namespace).next().is_some()
            || Kind::ALL.iter().any(|kind| self.objects_in(*kind, namespace).next().is_some())
            || self.services.keys().any(|key| key.namespace == *namespace)
    }

    /// Pods of a namespace, by name.
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

    /// Namespaces with pods, in order. Costs one lookup for each, independent of the number of pods.
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
        // No name sorts between `last` and `last` followed by a zero character.
        std::iter::successors(first(from("")), move |last| first(from(&format!("{last}\0"))))
    }

    /// Workloads with an address.
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

    #[must_use]
    pub fn object(&self, key: &ObjectKey) -> Option<&Object> {
        self.objects.get(key)
    }

    #[must_use]
    pub fn typed<T: KindSpec>(&self, namespace: &Namespace, name: &str) -> Option<Typed<T>> {
        self.objects.get(&ObjectKey::new(T::KIND, namespace.clone(), name))?.typed()
    }

    /// All objects of a kind, by namespace and name.
    pub fn objects(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let first = ObjectKey::new(kind, Namespace::default(), "");
        self.objects.range(first..).take_while(move |(key, _)| key.kind == kind).map(|(_, object)| object)
    }

    /// Objects of a kind in one namespace, by name.
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

    /// Gateways between networks, sorted.
    #[must_use]
    pub fn network_gateways(&self) -> &Arc<[NetworkGateway]> {
        &self.network_gateways
    }

    /// Access of a service account to the Secrets of its namespace; `None` if it is unknown.
    #[must_use]
    pub fn secret_access(&self, reader: &SecretReader) -> Option<bool> {
        self.secret_access.get(reader).copied()
    }
}
