//! A live registry that is sent at random, beside a naive account of what it must have.

use super::short_key;
use pilotfish_model::{
    Endpoint, NetworkGateway, Origin, Port, Protocol, Provider, Service, ServiceKey, ShardKey, Workload,
    WorkloadKey,
};
use pilotfish_registry::testing::{EXTERNAL, KUBERNETES};
use pilotfish_registry::{AggregateController, RegistryBatch, RegistryReceiver, RegistrySender, channel};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// Hosts of Kubernetes Services, of ServiceEntries and of ServiceImports, and one of live registries alone.
const HOSTS: [&str; 5] = ["s1.ns", "h1.com", "s2.ns", "s1.ns.svc.clusterset.local", "live.com"];

/// The live registries: two instances of a type that wins over Kubernetes, and one in another cluster that
/// loses to all.
pub fn shards() -> [ShardKey; 3] {
    let consul = ShardKey::new(Provider::new(0, "Consul"), "c1");
    let nacos = ShardKey::new(Provider::new(2, "nacos"), "c2");
    assert!(consul.provider < KUBERNETES && EXTERNAL < nacos.provider);
    [consul.clone().with_instance("dc1"), consul.with_instance("dc2"), nacos]
}

/// One change of one key: the numbers of what it concerns, and of the version that it gets; `None` removes.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    Service(usize, Option<usize>),
    Endpoints(usize, usize),
    Workload(usize, Option<usize>),
    Gateway(usize),
}

#[derive(Clone, Debug)]
pub enum LiveStep {
    Batch {
        complete: bool,
        items: Vec<Item>,
    },
    Synced,
    Failed,
    GiveUp,
    /// The controller takes what was sent until now.
    Take,
    /// The registry goes, with all that it has, and is there again without anything.
    Restart,
}

pub fn steps() -> impl Strategy<Value = LiveStep> {
    let version = || proptest::option::weighted(0.7, 0..3usize);
    let item = prop_oneof![
        4 => (0..HOSTS.len(), version()).prop_map(|(host, version)| Item::Service(host, version)),
        4 => (0..HOSTS.len(), 0..4usize).prop_map(|(host, version)| Item::Endpoints(host, version)),
        2 => (0..3usize, version()).prop_map(|(workload, version)| Item::Workload(workload, version)),
        1 => (0..3usize).prop_map(Item::Gateway),
    ];
    prop_oneof![
        8 => (proptest::bool::weighted(0.3), proptest::collection::vec(item, 0..6))
            .prop_map(|(complete, items)| LiveStep::Batch { complete, items }),
        1 => Just(LiveStep::Synced),
        2 => Just(LiveStep::Failed),
        1 => Just(LiveStep::GiveUp),
        3 => Just(LiveStep::Take),
        1 => Just(LiveStep::Restart),
    ]
}

/// What a registry must have: versions by the numbers of hosts and workloads.
#[derive(Clone, Debug, Default)]
pub struct Content {
    services: BTreeMap<usize, usize>,
    endpoints: BTreeMap<usize, usize>,
    workloads: BTreeMap<usize, usize>,
    gateway: usize,
}

impl Content {
    fn apply(&mut self, item: Item) {
        let set = |map: &mut BTreeMap<usize, usize>, key, version| match version {
            Some(version) => map.insert(key, version),
            None => map.remove(&key),
        };
        match item {
            Item::Service(host, version) => {
                set(&mut self.services, host, version);
                if version.is_none() {
                    self.endpoints.remove(&host);
                }
            }
            Item::Endpoints(host, version) => {
                set(&mut self.endpoints, host, Some(version));
            }
            Item::Workload(workload, version) => {
                set(&mut self.workloads, workload, version);
            }
            Item::Gateway(version) => self.gateway = version,
        }
    }

    fn items(&self) -> Vec<Item> {
        let services = self.services.iter().map(|(host, version)| Item::Service(*host, Some(*version)));
        let endpoints = self.endpoints.iter().map(|(host, version)| Item::Endpoints(*host, *version));
        let workloads = self.workloads.iter().map(|(index, version)| Item::Workload(*index, Some(*version)));
        services.chain(endpoints).chain(workloads).chain([Item::Gateway(self.gateway)]).collect()
    }

    pub fn services(&self) -> impl Iterator<Item = ServiceKey> {
        self.services.keys().map(|host| short_key(HOSTS[*host]))
    }

    /// Services, endpoints and workloads, as the status of a registry counts them.
    pub fn counts(&self) -> (usize, usize, usize) {
        let endpoints = self.endpoints.values().map(|version| addresses(*version).len()).sum();
        (self.services.len(), endpoints, self.workloads.len())
    }
}

pub struct Live {
    pub shard: ShardKey,
    pub content: Content,
    /// Whether it was in sync since it began.
    pub synced: bool,
    ends: (RegistrySender, RegistryReceiver),
}

impl Live {
    pub fn start(shard: ShardKey, controller: &mut AggregateController) -> Self {
        controller.add_live(shard.clone());
        Self { shard, content: Content::default(), synced: false, ends: channel() }
    }

    pub fn step(&mut self, step: &LiveStep, controller: &mut AggregateController) {
        match step {
            LiveStep::Batch { complete, items } => self.send(*complete, items),
            LiveStep::Synced => {
                self.synced = true;
                self.ends.0.synced();
            }
            LiveStep::Failed => self.ends.0.failed("down"),
            LiveStep::GiveUp => {
                controller.give_up(&self.shard);
            }
            LiveStep::Take => self.take(controller),
            LiveStep::Restart => {
                controller.remove_registry(&self.shard);
                *self = Self::start(self.shard.clone(), controller);
            }
        }
    }

    /// Sends what another one has: all at once, or one by one from the last to the first.
    pub fn copy(&mut self, content: &Content, at_once: bool, controller: &mut AggregateController) {
        let mut items = content.items();
        if at_once {
            self.send(true, &items);
        } else {
            items.reverse();
            for item in items {
                self.send(false, &[item]);
                self.take(controller);
            }
            self.ends.0.synced();
        }
        self.take(controller);
    }

    fn send(&mut self, complete: bool, items: &[Item]) {
        let mut batch = if complete { RegistryBatch::complete() } else { RegistryBatch::partial() };
        if complete {
            (self.content, self.synced) = (Content::default(), true);
        }
        for item in items {
            self.content.apply(*item);
            self.add(&mut batch, *item);
        }
        self.ends.0.send(batch);
    }

    fn add(&self, batch: &mut RegistryBatch, item: Item) {
        match item {
            Item::Service(host, Some(version)) => batch.set_service(service(&self.shard, host, version)),
            Item::Service(host, None) => batch.remove_service(&short_key(HOSTS[host])),
            Item::Endpoints(host, version) => {
                batch.set_endpoints(short_key(HOSTS[host]), endpoints(&self.shard, host, version));
            }
            Item::Workload(index, Some(version)) => batch.set_workload(workload(&self.shard, index, version)),
            Item::Workload(index, None) => batch.remove_workload(workload_key(&self.shard, index)),
            Item::Gateway(version) => batch.set_gateways(gateways(&self.shard, version)),
        }
    }

    /// As the control loop does: content, then health.
    pub fn take(&mut self, controller: &mut AggregateController) {
        let Some(input) = self.ends.1.take() else { return };
        if let Some(batch) = input.batch {
            controller.registry_batch(&self.shard, batch).unwrap();
        }
        if input.synced {
            controller.registry_synced(&self.shard).unwrap();
        }
        if let Some(reason) = input.failure {
            controller.registry_failed(&self.shard, SystemTime::UNIX_EPOCH, reason).unwrap();
        }
    }
}

fn port(name: &str) -> Port {
    Port { number: 80, name: name.into(), protocol: Protocol::Http, target_port: None }
}

fn service(shard: &ShardKey, host: usize, version: usize) -> Service {
    let key = short_key(HOSTS[host]);
    let origin = Origin::registered(shard.clone(), HOSTS[host]);
    let ports = vec![port(["http", "tcp", "http"][version])];
    let mut service = Service::registered(shard.provider, key.hostname, key.namespace, ports, origin);
    service.created = i64::try_from(version).unwrap();
    service
}

fn addresses(version: usize) -> &'static [&'static str] {
    [&[][..], &["1.0.0.1"], &["7.0.0.1", "7.0.0.2"], &["1.0.0.1", "2.0.0.1"]][version]
}

fn endpoints(shard: &ShardKey, host: usize, version: usize) -> Vec<Arc<Endpoint>> {
    let of = |address: &&str| {
        let name = format!("{host}@{address}");
        let workload = Workload::registered(shard, "ns", name, vec![Arc::from(*address)]);
        Arc::new(workload.endpoint(&port("http"), 8080))
    };
    addresses(version).iter().map(of).collect()
}

/// A workload that ServiceEntries of the history select in some of its versions.
fn workload(shard: &ShardKey, index: usize, version: usize) -> Workload {
    let addresses = vec![Arc::from(format!("7.1.{version}.{index}"))];
    let mut workload = Workload::registered(shard, "ns", index.to_string(), addresses);
    workload.labels = Arc::new([("app", ["a", "b", "a"][version])].into_iter().collect());
    workload.ready = version != 2;
    workload
}

fn workload_key(shard: &ShardKey, index: usize) -> WorkloadKey {
    workload(shard, index, 0).key
}

fn gateways(shard: &ShardKey, version: usize) -> Vec<NetworkGateway> {
    let of = |index| NetworkGateway {
        network: "n".into(),
        cluster: shard.cluster.clone(),
        address: Arc::from(format!("5.5.5.{index}")),
        port: 15443,
        hbone_port: 0,
        service_account: Arc::default(),
    };
    (0..version).map(of).collect()
}
