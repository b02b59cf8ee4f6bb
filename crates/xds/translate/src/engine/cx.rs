//! Access of queries to the world: each read is recorded as a dependency of the result.

use crate::engine::memo::{Current, Frame, Memo, Query, Reading};
use crate::engine::{Shared, reference};
use pilotfish_config::mesh::{MeshConfig, OBJECT_NAME};
use pilotfish_model::ClusterDomain;
use pilotfish_model::{
    Fact, Hostname, KindSpec, Namespace, NetworkGateway, Object, ObjectKey, Origin, SecretReader, Service,
    ServiceEndpoints, ServiceKey, SpiffeId, Switches, Typed, Workload, WorkloadKey,
};
use std::cell::RefCell;
use std::sync::Arc;

/// One computation's view of the world. Not `Sync`: a computation runs on one thread.
pub(crate) struct Cx<'a> {
    memo: &'a Memo,
    current: &'a Current,
    frame: &'a Frame<'a>,
    reading: RefCell<Reading>,
}

impl<'a> Cx<'a> {
    pub(crate) fn new(memo: &'a Memo, current: &'a Current, frame: &'a Frame<'a>) -> Self {
        Self { memo, current, frame, reading: RefCell::default() }
    }

    pub(crate) fn into_reading(self) -> Reading {
        self.reading.into_inner()
    }

    /// Domain of the host names of Kubernetes Services. It never changes during the lifetime of the memo, so
    /// the read is not recorded.
    #[must_use]
    pub(crate) fn domain(&self) -> &'a ClusterDomain {
        self.memo.domain()
    }

    /// Switches of behaviour. They never change during the lifetime of the memo, either.
    #[must_use]
    pub(crate) fn switches(&self) -> Switches {
        self.memo.settings().switches
    }

    /// Interned values that results share.
    pub(crate) fn shared(&self) -> &'a Shared {
        self.memo.shared()
    }

    fn read(&self, fact: Fact) {
        self.reading.borrow_mut().fact(fact);
    }

    /// The result of another query.
    pub(crate) fn get<Q: Query>(&self, query: &Q) -> Arc<Q::Output> {
        let (value, node) = self.memo.get_within(self.current, query, Some(self.frame));
        self.reading.borrow_mut().node(node);
        value
    }

    /// The services of a host and namespace, in order of precedence.
    #[must_use]
    pub(crate) fn services_of(&self, key: &ServiceKey) -> Option<Arc<[Arc<Service>]>> {
        self.read(Fact::Service(key.clone()));
        self.current.world.services_of(key).cloned()
    }

    /// Every service. The result depends on every change of any service: use it in queries that derive a
    /// small output from it.
    pub(crate) fn services(&self) -> impl Iterator<Item = (&'a ServiceKey, &'a Arc<[Arc<Service>]>)> {
        self.read(Fact::Services);
        self.current.world.services()
    }

    /// The namespaces that define a host.
    #[must_use]
    pub(crate) fn namespaces_of(&self, hostname: &Hostname) -> Vec<Namespace> {
        self.read(Fact::Host(hostname.clone()));
        self.current.world.services_of_host(hostname).map(|(key, _)| key.namespace.clone()).collect()
    }

    /// The endpoints of a service.
    #[must_use]
    pub(crate) fn endpoints_of(&self, key: &ServiceKey) -> Option<Arc<ServiceEndpoints>> {
        self.read(Fact::Endpoints(key.clone()));
        self.current.world.endpoints_of(key).cloned()
    }

    /// The identities of a service's endpoints; changes far less often than the endpoints.
    #[must_use]
    pub(crate) fn identities_of(&self, key: &ServiceKey) -> Arc<std::collections::BTreeSet<SpiffeId>> {
        self.read(Fact::Identities(key.clone()));
        self.current.world.endpoints_of(key).map(|endpoints| endpoints.identities.clone()).unwrap_or_default()
    }

    /// The services with an endpoint at an address.
    #[must_use]
    pub(crate) fn services_at(&self, address: &str) -> Vec<ServiceKey> {
        self.read(Fact::EndpointsAt(address.into()));
        self.current.world.services_at(address).cloned().collect()
    }

    #[must_use]
    pub(crate) fn workload(&self, key: &WorkloadKey) -> Option<Arc<Workload>> {
        self.read(Fact::Workload(Arc::new(key.clone())));
        self.current.world.workload(key).cloned()
    }

    /// The pods of a namespace, by name. The result depends on any change of any workload there.
    #[must_use]
    pub(crate) fn pods_in(&self, namespace: &Namespace) -> Vec<Arc<Workload>> {
        self.read(Fact::Workloads(namespace.clone()));
        self.current.world.pods_in(namespace).cloned().collect()
    }

    /// The namespaces that have pods.
    #[must_use]
    pub(crate) fn pod_namespaces(&self) -> Vec<Namespace> {
        self.read(Fact::PodNamespaces);
        self.current.world.pod_namespaces().cloned().collect()
    }

    /// The workloads that have an address.
    #[must_use]
    pub(crate) fn workloads_at(&self, address: &str) -> Vec<WorkloadKey> {
        self.read(Fact::WorkloadsAt(address.into()));
        self.current.world.workloads_at(address).cloned().collect()
    }

    #[must_use]
    pub(crate) fn object<T: KindSpec>(&self, namespace: &Namespace, name: &str) -> Option<Typed<T>> {
        self.read(Fact::Object(ObjectKey::new(T::KIND, namespace.clone(), name)));
        self.current.world.typed(namespace, name)
    }

    /// All objects of a kind, by namespace and name. The result depends on any change of any of them.
    pub(crate) fn objects<T: KindSpec>(&self) -> impl Iterator<Item = Typed<T>> {
        self.read(Fact::Kind(T::KIND));
        self.current.world.objects(T::KIND).filter_map(Object::typed)
    }

    /// The objects of a kind in one namespace, by name.
    #[must_use]
    pub(crate) fn objects_in<T: KindSpec>(&self, namespace: &Namespace) -> Vec<Typed<T>> {
        self.read(Fact::Objects(T::KIND, namespace.clone()));
        self.current.world.objects_in(T::KIND, namespace).filter_map(Object::typed).collect()
    }

    /// The gateways between networks, sorted.
    #[must_use]
    pub(crate) fn network_gateways(&self) -> Arc<[NetworkGateway]> {
        self.read(Fact::NetworkGateways);
        self.current.world.network_gateways().clone()
    }

    /// True if a service account may read the Secrets of its namespace; `None` if that is not known.
    #[must_use]
    pub(crate) fn secret_access(&self, reader: &SecretReader) -> Option<bool> {
        self.read(Fact::SecretAccess(Arc::new(reader.clone())));
        self.current.world.secret_access(reader)
    }

    /// The mesh-wide settings, or Istio's defaults if there are none.
    #[must_use]
    pub(crate) fn mesh(&self) -> Arc<MeshConfig> {
        self.get(&Mesh)
    }

    /// The object of the mesh-wide settings, as provenance; `None` if there is none.
    #[must_use]
    pub(crate) fn mesh_origin(&self) -> Option<Origin> {
        Option::clone(&self.get(&MeshOrigin))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mesh;

impl Query for Mesh {
    type Output = MeshConfig;

    fn compute(&self, cx: &Cx<'_>) -> MeshConfig {
        cx.object::<MeshConfig>(&Namespace::default(), OBJECT_NAME)
            .map(|mesh| MeshConfig::clone(&mesh))
            .unwrap_or_default()
    }
}

/// Stays equal when the settings change, so provenance alone causes no recomputation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MeshOrigin;

impl Query for MeshOrigin {
    type Output = Option<Origin>;

    fn compute(&self, cx: &Cx<'_>) -> Option<Origin> {
        cx.object::<MeshConfig>(&Namespace::default(), OBJECT_NAME).as_ref().map(reference)
    }
}
