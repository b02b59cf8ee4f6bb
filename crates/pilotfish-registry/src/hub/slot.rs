//! A registry in its place in the hub, with what it said last.

use crate::registry::{Import, Registry, RegistryOutput, RegistryUpdate};
use pilotfish_model::{
    ClusterId, Endpoint, NetworkGateway, Provider, Service, ServiceKey, ShardKey, Workload, WorkloadKey,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that a registry offers now.
#[derive(Default)]
pub(super) struct Offer {
    pub(super) services: BTreeMap<ServiceKey, Arc<[Arc<Service>]>>,
    pub(super) endpoints: BTreeMap<ServiceKey, Arc<[Arc<Endpoint>]>>,
    /// How many endpoints there are in all of these lists.
    pub(super) endpoint_count: usize,
    pub(super) workloads: BTreeMap<WorkloadKey, Arc<Workload>>,
    pub(super) imports: BTreeMap<ServiceKey, Import>,
    pub(super) gateways: Arc<[NetworkGateway]>,
}

/// The parts of the world that a registry's changes touched.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) services: BTreeSet<ServiceKey>,
    pub(super) endpoints: BTreeSet<(ServiceKey, ShardKey)>,
    pub(super) workloads: BTreeSet<(WorkloadKey, ShardKey)>,
    /// Imported hosts.
    pub(super) imports: BTreeSet<ServiceKey>,
    pub(super) gateways: bool,
}

impl Touched {
    /// Notes all that an offer holds: for a registry that enters or leaves.
    pub(super) fn all_of(&mut self, shard: &ShardKey, offer: &Offer) {
        self.services.extend(offer.services.keys().cloned());
        self.endpoints.extend(offer.endpoints.keys().map(|key| (key.clone(), shard.clone())));
        self.workloads.extend(offer.workloads.keys().map(|key| (key.clone(), shard.clone())));
        self.imports.extend(offer.imports.keys().cloned());
        self.gateways |= !offer.gateways.is_empty();
    }
}

/// A registry with its feed and its last offer.
pub(super) struct Slot {
    pub(super) registry: Box<dyn Registry>,
    /// Whose objects it reads; `None` for a registry that is fed in other ways.
    pub(super) feed: Option<Arc<str>>,
    pub(super) offer: Offer,
    /// Whether it got inputs since it settled last.
    pub(super) dirty: bool,
}

impl Slot {
    pub(super) fn new(registry: Box<dyn Registry>, feed: Option<Arc<str>>) -> Self {
        Self { registry, feed, offer: Offer::default(), dirty: true }
    }

    pub(super) fn shard(&self) -> &ShardKey {
        self.registry.shard()
    }

    /// Lets the registry settle and takes in what it says.
    pub(super) fn settle(&mut self, touched: &mut Touched) {
        let mut output = RegistryOutput::default();
        self.registry.settle(&mut output);
        self.dirty = false;
        let shard = self.registry.shard().clone();
        for update in output.updates {
            self.offer.take(&shard, update, touched);
        }
    }
}

impl Offer {
    fn take(&mut self, shard: &ShardKey, update: RegistryUpdate, touched: &mut Touched) {
        match update {
            RegistryUpdate::Services(key, services) => {
                if services.is_empty() {
                    self.services.remove(&key);
                } else {
                    self.services.insert(key.clone(), services);
                }
                touched.services.insert(key);
            }
            RegistryUpdate::Endpoints(key, endpoints) => {
                self.endpoint_count += endpoints.as_ref().map_or(0, |list| list.len());
                let old = match endpoints {
                    Some(endpoints) => self.endpoints.insert(key.clone(), endpoints),
                    None => self.endpoints.remove(&key),
                };
                self.endpoint_count -= old.map_or(0, |list| list.len());
                touched.endpoints.insert((key, shard.clone()));
            }
            RegistryUpdate::Workload(key, workload) => {
                match workload {
                    Some(workload) => self.workloads.insert(key.clone(), workload),
                    None => self.workloads.remove(&key),
                };
                touched.workloads.insert((key, shard.clone()));
            }
            RegistryUpdate::Import(host, import) => {
                match import {
                    Some(import) => self.imports.insert(host.clone(), import),
                    None => self.imports.remove(&host),
                };
                touched.imports.insert(host);
            }
            RegistryUpdate::Gateways(gateways) => {
                self.gateways = gateways;
                touched.gateways = true;
            }
        }
    }
}

/// The place of a registry among the others, which does not depend on when it came: Kubernetes first, then by provider;
/// among equals the primary cluster first, then by cluster id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    provider: Provider,
    remote: bool,
    cluster: ClusterId,
}

impl Rank {
    pub(super) fn of(shard: &ShardKey, primary: &ClusterId) -> Self {
        Self { provider: shard.provider, remote: shard.cluster != *primary, cluster: shard.cluster.clone() }
    }
}
