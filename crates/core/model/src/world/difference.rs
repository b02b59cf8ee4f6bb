//! Updates that lead from one world to another, in either direction.

use super::{ChangeSet, Fact, SecretReader, Update, World};
use crate::{ServiceKey, WorkloadKey};
use std::sync::Arc;

impl World {
    /// Updates that turn this world into another one. `changes` names all facts that may differ between them.
    /// The updates share the values of the other world.
    #[must_use]
    pub fn updates_to(&self, other: &Self, changes: &ChangeSet) -> Vec<Update> {
        let mut updates = Vec::new();
        for fact in &changes.facts {
            match fact {
                Fact::Service(key) => {
                    let services = other.services_of(key).cloned().unwrap_or_default();
                    updates.push(Update::Services(key.clone(), services));
                }
                Fact::Endpoints(key) => self.endpoints_to(other, key, &mut updates),
                Fact::Workload(key) => updates.push(match other.workload(key) {
                    Some(workload) => Update::Workload(workload.clone()),
                    None => Update::RemoveWorkload(WorkloadKey::clone(key)),
                }),
                Fact::Object(key) => updates.push(match other.object(key) {
                    Some(object) => Update::Object(object.clone()),
                    None => Update::RemoveObject(key.clone()),
                }),
                Fact::NetworkGateways => {
                    updates.push(Update::NetworkGateways(other.network_gateways().clone()));
                }
                Fact::SecretAccess(reader) => {
                    let allowed = other.secret_access(reader);
                    updates.push(Update::SecretAccess(SecretReader::clone(reader), allowed));
                }
                // Derived from the facts above.
                Fact::Host(_)
                | Fact::Services
                | Fact::Identities(_)
                | Fact::WorkloadsAt(_)
                | Fact::Workloads(_)
                | Fact::PodNamespaces
                | Fact::EndpointsAt(_)
                | Fact::Objects(..)
                | Fact::Kind(_) => {}
            }
        }
        updates
    }

    /// Adds the shards of a service that differ in the other world.
    fn endpoints_to(&self, other: &Self, key: &ServiceKey, updates: &mut Vec<Update>) {
        let (mine, others) = (self.endpoints_of(key), other.endpoints_of(key));
        let mine_of = |shard| mine.and_then(|mine| mine.shards.get(shard));
        for (shard, endpoints) in others.iter().flat_map(|others| &others.shards) {
            if !mine_of(shard).is_some_and(|mine| Arc::ptr_eq(mine, endpoints)) {
                updates.push(Update::Endpoints(key.clone(), shard.clone(), endpoints.clone()));
            }
        }
        let others_of = |shard| others.and_then(|others| others.shards.get(shard));
        for shard in mine.iter().flat_map(|mine| mine.shards.keys()) {
            if others_of(shard).is_none() {
                updates.push(Update::RemoveShard(key.clone(), shard.clone()));
            }
        }
    }

    /// All facts of the world for which [`Self::updates_to`] makes updates: its difference from an empty
    /// world.
    #[must_use]
    pub fn facts(&self) -> ChangeSet {
        let services = self.services.keys().cloned().map(Fact::Service);
        let endpoints = self.endpoints.keys().cloned().map(Fact::Endpoints);
        let workloads = self.workloads.keys().cloned().map(Arc::new).map(Fact::Workload);
        let objects = self.objects.keys().cloned().map(Fact::Object);
        let readers = self.secret_access.keys().cloned().map(Arc::new).map(Fact::SecretAccess);
        let gateways = (!self.network_gateways.is_empty()).then_some(Fact::NetworkGateways);
        let facts = services.chain(endpoints).chain(workloads).chain(objects).chain(readers).chain(gateways);
        ChangeSet { facts: facts.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Hostname, NetworkGateway, Object, ObjectKey, ObjectMeta, Origin, Provider, SecretReader, Service,
        ShardKey, Workload, WorldWriter,
    };
    use crate::{Kind, KindSpec};

    #[derive(Debug, PartialEq)]
    struct Text(u8);

    impl KindSpec for Text {
        const KIND: Kind = Kind::VirtualService;
    }

    fn shard(cluster: &str) -> ShardKey {
        ShardKey::new(Provider::new(0, "Kubernetes"), cluster)
    }

    fn key(host: &str) -> ServiceKey {
        ServiceKey { hostname: Hostname::parse(host).unwrap(), namespace: "ns".into() }
    }

    fn object(version: u8) -> Object {
        Object::new(ObjectMeta::of(ObjectKey::new(Kind::VirtualService, "ns", "a")), Text(version))
    }

    fn service(host: &str, label: &str) -> Arc<[Arc<Service>]> {
        let origin = Origin::registered(shard("c"), host);
        let hostname = Hostname::parse(host).unwrap();
        let mut service = Service::registered(Provider::new(0, "x"), hostname, "ns", Vec::new(), origin);
        service.labels = Arc::new([("a", label)].into_iter().collect());
        Arc::from([Arc::new(service)])
    }

    fn gateway() -> NetworkGateway {
        NetworkGateway {
            network: "far".into(),
            cluster: "c".into(),
            address: "192.0.2.1".into(),
            port: 15443,
            hbone_port: 0,
            service_account: "".into(),
        }
    }

    /// Steps each of which touches another kind of fact.
    fn steps() -> Vec<Vec<Update>> {
        let reader = SecretReader { namespace: "ns".into(), service_account: "a".into(), vouched: true };
        let workload = |address: &str| {
            Update::Workload(Arc::new(Workload::registered(
                &shard("c"),
                "ns",
                "w",
                [Arc::<str>::from(address)].to_vec(),
            )))
        };
        let Update::Workload(gone) = workload("10.0.0.2") else { unreachable!("made above") };
        vec![
            vec![Update::Services(key("a"), service("a", "1")), Update::Object(object(1))],
            vec![Update::Endpoints(key("a"), shard("c"), Arc::default()), workload("10.0.0.1")],
            vec![Update::Endpoints(key("a"), shard("d"), Arc::default()), workload("10.0.0.2")],
            vec![Update::Object(object(2)), Update::SecretAccess(reader.clone(), Some(true))],
            vec![Update::Services(key("a"), service("a", "2")), Update::RemoveShard(key("a"), shard("c"))],
            vec![Update::NetworkGateways(Arc::from([gateway()])), Update::RemoveWorkload(gone.key.clone())],
            vec![Update::RemoveObject(object(1).key().clone()), Update::SecretAccess(reader, None)],
            vec![Update::Services(key("a"), Arc::default()), Update::RemoveShard(key("a"), shard("d"))],
        ]
    }

    /// Applied to a world, this says that it is the other one: nothing differs any more.
    fn assert_same(one: &World, other: &World) {
        for (from, to) in [(one, other), (other, one)] {
            let mut all = from.facts();
            all.merge(to.facts());
            let mut writer = WorldWriter::at(from);
            from.updates_to(to, &all).into_iter().for_each(|update| writer.apply(update));
            assert_eq!(writer.publish().map(|(_, changes)| changes), None);
        }
    }

    #[test]
    fn every_way_back_leads_to_the_world_before() {
        let mut writer = WorldWriter::new();
        let mut worlds = vec![Arc::new(World::default())];
        let mut back = Vec::new();
        for step in steps() {
            step.into_iter().for_each(|update| writer.apply(update));
            let (world, changes) = writer.publish().expect("each step changes something");
            let before = worlds.last().expect("there is one");
            back.push(world.updates_to(before, &changes));
            assert_same(&apply(before, before.updates_to(&world, &changes)), &world);
            worlds.push(world);
        }
        let mut world = World::clone(worlds.last().expect("there is one"));
        for (place, undo) in back.into_iter().enumerate().rev() {
            world = apply(&world, undo);
            assert_same(&world, &worlds[place]);
        }
    }

    fn apply(world: &World, updates: Vec<Update>) -> World {
        let mut writer = WorldWriter::at(world);
        updates.into_iter().for_each(|update| writer.apply(update));
        writer.world().clone()
    }
}
