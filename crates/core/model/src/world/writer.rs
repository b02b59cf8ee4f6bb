//! The single writer of worlds, which computes the exact differences.

use super::{ChangeSet, Fact, ServiceEndpoints, Update, World};
use crate::{
    Endpoint, Object, ObjectKey, Service, ServiceKey, ShardKey, SpiffeId, Workload, WorkloadKey, WorkloadKind,
};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// The single writer: applies updates to the next world and publishes it with its differences.
#[derive(Default)]
pub struct WorldWriter {
    next: World,
    changes: ChangeSet,
    /// Last two compared endpoint lists: hosts that share a list change together.
    compared: Option<Compared>,
}

type List = Arc<[Arc<Endpoint>]>;

/// Two endpoint lists and their difference.
struct Compared {
    before: Option<List>,
    after: Option<List>,
    difference: Arc<ShardDifference>,
}

impl Compared {
    fn is_of(&self, before: Option<&List>, after: Option<&List>) -> bool {
        let same = |a: Option<&List>, b: Option<&List>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        same(self.before.as_ref(), before) && same(self.after.as_ref(), after)
    }
}

impl WorldWriter {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a writer that continues from a world.
    #[must_use]
    pub fn at(world: &World) -> Self {
        Self { next: world.clone(), ..Self::default() }
    }

    /// Creates another writer that continues from the world of this one, for dry runs.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { next: self.next.clone(), ..Self::default() }
    }

    /// World with the updates that are not published yet.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.next
    }

    /// Applies an update; nothing is published yet.
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
            Update::SecretAccess(reader, allowed) => {
                let before = match allowed {
                    Some(allowed) => self.next.secret_access.insert(reader.clone(), allowed),
                    None => self.next.secret_access.remove(&reader),
                };
                if before != allowed {
                    self.changed(Fact::SecretAccess(Arc::new(reader)));
                }
            }
        }
    }

    /// Publishes the new world with its differences from the previous one. `None` without a difference.
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

    fn set_shard(&mut self, key: ServiceKey, shard: ShardKey, endpoints: Option<&List>) {
        let old = self.next.endpoints.get(&key).cloned();
        let before = old.as_ref().and_then(|old| old.shards.get(&shard));
        let difference = self.difference(before, endpoints);
        if difference.is_none {
            return;
        }
        let mut new = old.as_ref().map(|old| ServiceEndpoints::clone(old)).unwrap_or_default();
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

    /// Difference between two lists, computed once for hosts that share them.
    fn difference(&mut self, before: Option<&List>, after: Option<&List>) -> Arc<ShardDifference> {
        if let Some(known) = self.compared.as_ref().filter(|known| known.is_of(before, after)) {
            return known.difference.clone();
        }
        let mut difference = ShardDifference { is_none: before == after, ..ShardDifference::default() };
        if !difference.is_none {
            difference.find(before.map_or(&[], |list| list), after.map_or(&[], |list| list));
        }
        let difference = Arc::new(difference);
        let (before, after) = (before.cloned(), after.cloned());
        self.compared = Some(Compared { before, after, difference: difference.clone() });
        difference
    }

    fn index_addresses(&mut self, key: &ServiceKey, difference: &ShardDifference, new: &ServiceEndpoints) {
        let mut gone: BTreeSet<&Arc<str>> = difference.gone.iter().collect();
        if !gone.is_empty() {
            // Another port or another shard may still have the address.
            for kept in new.iter().flat_map(|endpoint| endpoint.addresses.iter()) {
                gone.remove(kept);
            }
        }
        let key = Arc::new(key.clone());
        for gone in gone {
            self.next.endpoints_at.remove(&(gone.clone(), key.clone()));
            self.changed(Fact::EndpointsAt(gone.clone()));
        }
        for come in difference.come.iter().cloned() {
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
        let comes_or_goes = old.is_none() || workload.is_none();
        let few = usize::from(workload.is_some());
        match workload {
            Some(workload) => self.next.workloads.insert(key.clone(), workload),
            None => self.next.workloads.remove(&key),
        };
        // The first pod of a namespace, or the last one.
        let is_pod = key.kind == WorkloadKind::Pod;
        if is_pod && comes_or_goes && self.next.pods_in(&key.namespace).take(2).count() == few {
            self.changed(Fact::PodNamespaces);
        }
        self.changed(Fact::Workloads(key.namespace.clone()));
        self.changed(Fact::Workload(Arc::new(key)));
    }

    fn set_object(&mut self, key: ObjectKey, object: Option<Object>) {
        if self.next.objects.get(&key) == object.as_ref() {
            // Lines may have moved: keeps the newest origin for messages, which is no change for readers.
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

/// Differences of the endpoints in one shard of a service. Registries keep the pointers of unchanged
/// endpoints, so a change of one endpoint among ten thousand is found without comparing contents.
#[derive(Default)]
struct ShardDifference {
    /// True if the lists are equal.
    is_none: bool,
    removed_identities: BTreeSet<SpiffeId>,
    added_identities: BTreeSet<SpiffeId>,
    /// Addresses that may be removed.
    gone: Vec<Arc<str>>,
    /// Addresses that may be new.
    come: Vec<Arc<str>>,
}

impl ShardDifference {
    fn find(&mut self, before: &[Arc<Endpoint>], after: &[Arc<Endpoint>]) {
        let pointers = |list: &[Arc<Endpoint>]| list.iter().map(Arc::as_ptr).collect::<HashSet<_>>();
        fn only_in<'a>(list: &'a [Arc<Endpoint>], others: &HashSet<*const Endpoint>) -> Vec<&'a Endpoint> {
            list.iter().filter(|endpoint| !others.contains(&Arc::as_ptr(endpoint))).map(|e| &**e).collect()
        }
        let (removed, added) = (only_in(before, &pointers(after)), only_in(after, &pointers(before)));
        let identities = |list: &[&Endpoint]| -> BTreeSet<SpiffeId> {
            list.iter().filter_map(|endpoint| endpoint.attributes.identity.clone()).collect()
        };
        let addresses = |list: &[&Endpoint]| -> BTreeSet<Arc<str>> {
            list.iter().flat_map(|endpoint| endpoint.addresses.iter().cloned()).collect()
        };
        let (old, new) = (addresses(&removed), addresses(&added));
        (self.removed_identities, self.added_identities) = (identities(&removed), identities(&added));
        self.gone = old.difference(&new).cloned().collect();
        self.come = new.difference(&old).cloned().collect();
    }

    /// True if the identities of the whole service may differ from the `known` ones.
    fn may_change_identities(&self, known: &BTreeSet<SpiffeId>) -> bool {
        let (removed, added) = (&self.removed_identities, &self.added_identities);
        added.iter().any(|identity| !known.contains(identity)) || !removed.is_subset(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        EndpointAttributes, HealthStatus, Hostname, Kind, Labels, Locality, NetworkId, Origin, Provider,
        SecretReader, TlsMode,
    };

    #[test]
    fn facts_are_as_small_as_what_they_are_mostly_about() {
        // Each result of a large world keeps one or two of them, and so does the index of their readers.
        assert!(size_of::<Fact>() <= size_of::<ServiceKey>() + size_of::<usize>());
    }

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
            service_port_id: None,
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
                entry: None,
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
    fn a_right_to_read_secrets_is_a_fact_of_its_own() {
        let reader = SecretReader { namespace: "edge".into(), service_account: "a".into(), vouched: true };
        let other = SecretReader { vouched: false, ..reader.clone() };
        let mut writer = WorldWriter::new();
        for (allowed, changes) in
            [(Some(true), true), (Some(true), false), (Some(false), true), (None, true), (None, false)]
        {
            writer.apply(Update::SecretAccess(reader.clone(), allowed));
            assert_eq!(writer.world().secret_access(&reader), allowed);
            assert_eq!(writer.world().secret_access(&other), None);
            let facts = writer.publish().map(|(_, changes)| changes.facts).unwrap_or_default();
            let expected = changes.then(|| Fact::SecretAccess(Arc::new(reader.clone())));
            assert_eq!(facts, expected.into_iter().collect());
        }
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
