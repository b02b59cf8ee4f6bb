//! The world: one immutable snapshot of everything that translation reads, and the one writer that makes the next.
//!
//! A change costs what it touches: the maps share structure between snapshots, and equal values are no change. What
//! changed is reported as [`Fact`]s, the same vocabulary in which translation records what it read. So "which results are
//! no longer valid" is a lookup, without hand-written lists of dependents.

use crate::{
    ClusterId, Endpoint, Hostname, Kind, KindSpec, Namespace, NetworkId, Object, ObjectKey, Service,
    ShardKey, SpiffeId, Typed, Workload, WorkloadKey, WorkloadKind,
};
use imbl::{OrdMap, OrdSet};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

/// Which service: several namespaces may define one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// One workload.
    Workload(WorkloadKey),
    /// Which workloads have an address.
    WorkloadsAt(Arc<str>),
    /// Which workloads there are in a namespace, or any field of any of them.
    Workloads(Namespace),
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
}

/// The one writer: applies updates to the next world and hands it out with what really differs.
#[derive(Default)]
pub struct WorldWriter {
    next: World,
    changes: ChangeSet,
}

impl WorldWriter {
    /// A writer with an empty world.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The world as it would be published now.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.next
    }

    /// Whether anything differs from the world published last.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Applies one change; nothing is published yet.
    pub fn apply(&mut self, update: Update) {
        match update {
            Update::Services(key, services) => self.set_services(key, services),
            Update::Endpoints(key, shard, endpoints) => self.set_shard(key, shard, Some(&endpoints)),
            Update::RemoveShard(key, shard) => self.set_shard(key, shard, None),
            Update::Workload(workload) => self.set_workload(workload.key.clone(), Some(workload)),
            Update::RemoveWorkload(key) => self.set_workload(key, None),
            Update::Object(object) => self.set_object(object.key().clone(), Some(object)),
            Update::RemoveObject(key) => self.set_object(key, None),
            Update::NetworkGateways(gateways) => {
                if self.next.network_gateways != gateways {
                    self.next.network_gateways = gateways;
                    self.changed(Fact::NetworkGateways);
                }
            }
        }
    }

    /// Publishes: the new world and what differs from the one before. `None` when nothing does.
    pub fn publish(&mut self) -> Option<(Arc<World>, ChangeSet)> {
        if self.changes.is_empty() {
            return None;
        }
        self.next.revision += 1;
        Some((Arc::new(self.next.clone()), std::mem::take(&mut self.changes)))
    }

    fn changed(&mut self, fact: Fact) {
        self.changes.facts.insert(fact);
    }

    fn set_services(&mut self, key: ServiceKey, services: Arc<[Arc<Service>]>) {
        let old = self.next.services.get(&key);
        if old.map_or(services.is_empty(), |old| *old == services) {
            return;
        }
        if old.is_none() || services.is_empty() {
            self.changed(Fact::Host(key.hostname.clone()));
        }
        if services.is_empty() {
            self.next.services.remove(&key);
        } else {
            self.next.services.insert(key.clone(), services);
        }
        self.changed(Fact::Services);
        self.changed(Fact::Service(key));
    }

    fn set_shard(&mut self, key: ServiceKey, shard: ShardKey, endpoints: Option<&Arc<[Arc<Endpoint>]>>) {
        let old = self.next.endpoints.get(&key);
        let before = old.and_then(|old| old.shards.get(&shard)).cloned();
        if before.as_ref() == endpoints {
            return;
        }
        let difference = ShardDifference::of(before.as_deref(), endpoints.map(|endpoints| &**endpoints));
        let mut new = old.map(|old| ServiceEndpoints::clone(old)).unwrap_or_default();
        match endpoints {
            Some(endpoints) => new.shards.insert(shard, endpoints.clone()),
            None => new.shards.remove(&shard),
        };
        if difference.may_change_identities(&new.identities) {
            let identities: BTreeSet<SpiffeId> =
                new.iter().filter_map(|e| e.attributes.identity.clone()).collect();
            if identities != *new.identities {
                new.identities = Arc::new(identities);
                self.changed(Fact::Identities(key.clone()));
            }
        }
        self.index_addresses(&key, &difference, &new);
        if new.shards.is_empty() {
            self.next.endpoints.remove(&key);
        } else {
            self.next.endpoints.insert(key.clone(), Arc::new(new));
        }
        self.changed(Fact::Endpoints(key));
    }

    fn index_addresses(
        &mut self,
        key: &ServiceKey,
        difference: &ShardDifference<'_>,
        new: &ServiceEndpoints,
    ) {
        let (mut gone, come) = difference.addresses();
        if !gone.is_empty() {
            // Another port or another shard may have the address still.
            for kept in new.iter().flat_map(|endpoint| endpoint.addresses.iter()) {
                gone.remove(kept);
            }
        }
        let key = Arc::new(key.clone());
        for gone in gone {
            self.next.endpoints_at.remove(&(gone.clone(), key.clone()));
            self.changed(Fact::EndpointsAt(gone));
        }
        for come in come {
            if self.next.endpoints_at.insert((come.clone(), key.clone())).is_none() {
                self.changed(Fact::EndpointsAt(come));
            }
        }
    }

    fn set_workload(&mut self, key: WorkloadKey, workload: Option<Arc<Workload>>) {
        let old = self.next.workloads.get(&key).cloned();
        if old == workload {
            return;
        }
        let addresses = |workload: &Option<Arc<Workload>>| -> BTreeSet<Arc<str>> {
            workload.iter().flat_map(|w| w.addresses.iter().cloned()).collect()
        };
        let (before, after) = (addresses(&old), addresses(&workload));
        for gone in before.difference(&after) {
            self.next.workloads_at.remove(&(gone.clone(), key.clone()));
            self.changed(Fact::WorkloadsAt(gone.clone()));
        }
        for come in after.difference(&before) {
            self.next.workloads_at.insert((come.clone(), key.clone()));
            self.changed(Fact::WorkloadsAt(come.clone()));
        }
        match workload {
            Some(workload) => self.next.workloads.insert(key.clone(), workload),
            None => self.next.workloads.remove(&key),
        };
        self.changed(Fact::Workloads(key.namespace.clone()));
        self.changed(Fact::Workload(key));
    }

    fn set_object(&mut self, key: ObjectKey, object: Option<Object>) {
        if self.next.objects.get(&key) == object.as_ref() {
            // Lines may have moved: keep the newest origin for messages, which is no change for readers.
            if let Some(object) = object {
                self.next.objects.insert(key, object);
            }
            return;
        }
        match object {
            Some(object) => self.next.objects.insert(key.clone(), object),
            None => self.next.objects.remove(&key),
        };
        self.changed(Fact::Kind(key.kind));
        self.changed(Fact::Objects(key.kind, key.namespace.clone()));
        self.changed(Fact::Object(key));
    }
}

/// The endpoints in which one shard of a service differs from before. Registries keep the pointers of endpoints that stay
/// as they are, so a change of one endpoint among ten thousand is found without comparing contents.
struct ShardDifference<'a> {
    removed: Vec<&'a Endpoint>,
    added: Vec<&'a Endpoint>,
}

impl<'a> ShardDifference<'a> {
    fn of(before: Option<&'a [Arc<Endpoint>]>, after: Option<&'a [Arc<Endpoint>]>) -> Self {
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let pointers = |list: &[Arc<Endpoint>]| list.iter().map(Arc::as_ptr).collect::<HashSet<_>>();
        let only_in = |list: &'a [Arc<Endpoint>], others: &HashSet<*const Endpoint>| {
            list.iter().filter(|endpoint| !others.contains(&Arc::as_ptr(endpoint))).map(|e| &**e).collect()
        };
        Self { removed: only_in(before, &pointers(after)), added: only_in(after, &pointers(before)) }
    }

    /// Whether the identities of the whole service may differ from the `known` ones.
    fn may_change_identities(&self, known: &BTreeSet<SpiffeId>) -> bool {
        let identities = |list: &[&'a Endpoint]| -> BTreeSet<&'a SpiffeId> {
            list.iter().filter_map(|endpoint| endpoint.attributes.identity.as_ref()).collect()
        };
        let (removed, added) = (identities(&self.removed), identities(&self.added));
        added.iter().any(|identity| !known.contains(identity)) || !removed.is_subset(&added)
    }

    /// The addresses that may be gone, and those that may be new.
    fn addresses(&self) -> (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>) {
        let addresses = |list: &[&Endpoint]| -> BTreeSet<Arc<str>> {
            list.iter().flat_map(|endpoint| endpoint.addresses.iter().cloned()).collect()
        };
        let (removed, added) = (addresses(&self.removed), addresses(&self.added));
        (removed.difference(&added).cloned().collect(), added.difference(&removed).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EndpointAttributes, HealthStatus, Labels, Locality, Origin, Provider, TlsMode};

    fn key(host: &str) -> ServiceKey {
        ServiceKey { hostname: Hostname::parse(host).unwrap(), namespace: "ns".into() }
    }

    fn shard() -> ShardKey {
        ShardKey::new(Provider::new(0, "Kubernetes"), "c")
    }

    fn endpoint(address: &str, account: &str) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            addresses: Arc::from([Arc::from(address)]),
            port: 80,
            service_port: "http".into(),
            service_port_number: 0,
            health: HealthStatus::Healthy,
            attributes: Arc::new(EndpointAttributes {
                labels: Labels::default(),
                locality: Locality::default(),
                network: NetworkId::default(),
                cluster: "c".into(),
                weight: 0,
                identity: (!account.is_empty()).then(|| SpiffeId::new("td", "ns", account)),
                tls_mode: TlsMode::Disabled,
                hostname: "".into(),
                sub_domain: "".into(),
                node: "".into(),
                workload_name: "".into(),
                namespace: "ns".into(),
                provenance: Origin::object(ObjectKey::new(Kind::EndpointSlice, "ns", "s"), "c"),
            }),
        })
    }

    #[test]
    fn an_equal_value_is_no_change() {
        let mut writer = WorldWriter::new();
        let list: Arc<[_]> = Arc::from([endpoint("10.0.0.1", "")]);
        writer.apply(Update::Endpoints(key("a"), shard(), list));
        let (world, changes) = writer.publish().unwrap();
        assert_eq!(world.revision(), 1);
        assert!(changes.facts.contains(&Fact::Endpoints(key("a"))));
        writer.apply(Update::Endpoints(key("a"), shard(), Arc::from([endpoint("10.0.0.1", "")])));
        assert!(writer.publish().is_none());
    }

    #[test]
    fn identities_are_a_fact_of_their_own() {
        let mut writer = WorldWriter::new();
        writer.apply(Update::Endpoints(key("a"), shard(), Arc::from([endpoint("10.0.0.1", "sa")])));
        writer.publish();
        writer.apply(Update::Endpoints(key("a"), shard(), Arc::from([endpoint("10.0.0.2", "sa")])));
        let (world, changes) = writer.publish().unwrap();
        let expected = [
            Fact::Endpoints(key("a")),
            Fact::EndpointsAt("10.0.0.1".into()),
            Fact::EndpointsAt("10.0.0.2".into()),
        ];
        assert_eq!(changes.facts, expected.into());
        assert_eq!(world.services_at("10.0.0.2").count(), 1);
        assert_eq!(world.services_at("10.0.0.1").count(), 0);
    }

    #[test]
    fn an_address_stays_known_while_any_port_or_shard_has_it() {
        let mut writer = WorldWriter::new();
        let (first, second) = (endpoint("10.0.0.1", "a"), endpoint("10.0.0.1", "b"));
        let other = ShardKey::new(Provider::new(1, "External"), "c");
        let list =
            |endpoints: &[&Arc<Endpoint>]| endpoints.iter().map(|e| Arc::clone(e)).collect::<Arc<[_]>>();
        writer.apply(Update::Endpoints(key("a"), shard(), list(&[&first, &second])));
        writer.apply(Update::Endpoints(key("a"), other.clone(), list(&[&first])));
        writer.publish();
        writer.apply(Update::Endpoints(key("a"), shard(), list(&[&second])));
        let (world, changes) = writer.publish().unwrap();
        assert_eq!(
            changes.facts,
            [Fact::Endpoints(key("a"))].into(),
            "its identity is in the other shard still"
        );
        writer.apply(Update::RemoveShard(key("a"), other));
        let (_, changes) = writer.publish().unwrap();
        assert_eq!(changes.facts, [Fact::Endpoints(key("a")), Fact::Identities(key("a"))].into());
        writer.apply(Update::RemoveShard(key("a"), shard()));
        let (after, changes) = writer.publish().unwrap();
        assert!(changes.facts.contains(&Fact::EndpointsAt("10.0.0.1".into())));
        assert_eq!((world.services_at("10.0.0.1").count(), after.services_at("10.0.0.1").count()), (1, 0));
    }

    #[test]
    fn an_old_world_stays_as_it_was() {
        let mut writer = WorldWriter::new();
        writer.apply(Update::Endpoints(key("a"), shard(), Arc::from([endpoint("10.0.0.1", "")])));
        let (before, _) = writer.publish().unwrap();
        writer.apply(Update::RemoveShard(key("a"), shard()));
        let (after, _) = writer.publish().unwrap();
        assert!(before.endpoints_of(&key("a")).is_some());
        assert!(after.endpoints_of(&key("a")).is_none());
    }
}
