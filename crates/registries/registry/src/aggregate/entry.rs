//! A registry as the aggregate holds it, with its state.

use crate::live::RegistryBatch;
use crate::registry::{Import, RefusedObject, Registry, RegistryOutput, RegistryUpdate};
use pilotfish_model::{
    ClusterId, Endpoint, Kind, NetworkGateway, Provider, Service, ServiceKey, ShardKey, Workload, WorkloadKey,
};
use pilotfish_runtime::Health;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// State of a registry: the last good one, which a failure leaves unchanged.
#[derive(Clone, Default)]
pub(super) struct RegistryState {
    pub(super) services: BTreeMap<ServiceKey, Arc<[Arc<Service>]>>,
    pub(super) endpoints: BTreeMap<ServiceKey, Arc<[Arc<Endpoint>]>>,
    /// Number of endpoints in all of these lists.
    pub(super) endpoint_count: usize,
    pub(super) workloads: BTreeMap<WorkloadKey, Arc<Workload>>,
    pub(super) imports: BTreeMap<ServiceKey, Import>,
    pub(super) gateways: Arc<[NetworkGateway]>,
}

/// The parts of the world that a registry's changes touched.
#[derive(Clone, Default)]
pub(super) struct Touched {
    pub(super) services: BTreeSet<ServiceKey>,
    pub(super) endpoints: BTreeSet<(ServiceKey, ShardKey)>,
    pub(super) workloads: BTreeSet<(WorkloadKey, ShardKey)>,
    /// The imported hosts, below `clusterset.local`.
    pub(super) imports: BTreeSet<ServiceKey>,
    pub(super) gateways: bool,
}

impl Touched {
    /// Marks the whole state of a registry that enters or leaves.
    pub(super) fn all_of(&mut self, shard: &ShardKey, state: &RegistryState) {
        self.services.extend(state.services.keys().cloned());
        self.endpoints.extend(state.endpoints.keys().map(|key| (key.clone(), shard.clone())));
        self.workloads.extend(state.workloads.keys().map(|key| (key.clone(), shard.clone())));
        self.imports.extend(state.imports.keys().cloned());
        self.gateways |= !state.gateways.is_empty();
    }
}

/// Origin of a registry's content.
pub(super) enum EntryInput {
    /// From the objects of a feed, through a state machine.
    Objects {
        registry: Box<dyn Registry>,
        feed: Arc<str>,
        /// True if it received inputs since it last settled.
        dirty: bool,
    },
    /// From a source of its own, whose batches are the state.
    Live(Health),
}

impl Clone for EntryInput {
    fn clone(&self) -> Self {
        match self {
            Self::Objects { registry, feed, dirty } => {
                Self::Objects { registry: registry.copy(), feed: feed.clone(), dirty: *dirty }
            }
            Self::Live(health) => Self::Live(health.clone()),
        }
    }
}

/// A registry as the aggregate holds it, with its state.
#[derive(Clone)]
pub(super) struct RegistryEntry {
    shard: ShardKey,
    pub(super) input: EntryInput,
    pub(super) state: RegistryState,
    /// True if readiness no longer waits for the registry's first list.
    pub(super) given_up: bool,
}

impl RegistryEntry {
    pub(super) fn new(shard: ShardKey, input: EntryInput) -> Self {
        Self { shard, input, state: RegistryState::default(), given_up: false }
    }

    pub(super) fn shard(&self) -> &ShardKey {
        &self.shard
    }

    /// The feed that it reads; `None` for a live registry.
    pub(super) fn feed(&self) -> Option<&Arc<str>> {
        match &self.input {
            EntryInput::Objects { feed, .. } => Some(feed),
            EntryInput::Live(_) => None,
        }
    }

    pub(super) fn is_dirty(&self) -> bool {
        matches!(self.input, EntryInput::Objects { dirty: true, .. })
    }

    /// True if the state machine reads objects of the kind.
    pub(super) fn reads(&self, kind: Kind) -> bool {
        match &self.input {
            EntryInput::Objects { registry, .. } => registry.kinds().contains(&kind),
            EntryInput::Live(_) => false,
        }
    }

    /// The objects that the state machine does not put in force. Live registries have none.
    pub(super) fn refused(&self) -> Arc<[RefusedObject]> {
        match &self.input {
            EntryInput::Objects { registry, .. } => registry.refused(),
            EntryInput::Live(_) => Arc::default(),
        }
    }

    /// Passes inputs to the state machine, which must settle afterwards. No effect on live registries.
    pub(super) fn input(&mut self, give: impl FnOnce(&mut dyn Registry)) {
        if let EntryInput::Objects { registry, dirty, .. } = &mut self.input {
            give(&mut **registry);
            *dirty = true;
        }
    }

    /// Lets the state machine settle, and applies the differences.
    pub(super) fn settle(&mut self, touched: &mut Touched) {
        let EntryInput::Objects { registry, dirty, .. } = &mut self.input else { return };
        let mut output = RegistryOutput::default();
        registry.settle(&mut output);
        *dirty = false;
        for update in output.updates {
            self.state.apply(&self.shard, update, touched);
        }
    }

    /// Applies a batch of a live source. A complete batch removes everything that it does not name.
    pub(super) fn apply_batch(&mut self, batch: RegistryBatch, touched: &mut Touched) {
        if batch.is_complete() {
            for update in self.state.missing_from(&batch) {
                self.state.apply(&self.shard, update, touched);
            }
        }
        for update in batch.into_updates() {
            self.state.apply(&self.shard, update, touched);
        }
    }
}

impl RegistryState {
    /// Updates that remove everything that a complete batch does not name.
    fn missing_from(&self, batch: &RegistryBatch) -> Vec<RegistryUpdate> {
        let services = self.services.keys().filter(|key| !batch.names_service(key));
        let endpoints = self.endpoints.keys().filter(|key| !batch.names_endpoints(key));
        let workloads = self.workloads.keys().filter(|key| !batch.names_workload(key));
        services
            .map(|key| RegistryUpdate::Services(key.clone(), Arc::from([])))
            .chain(endpoints.map(|key| RegistryUpdate::Endpoints(key.clone(), None)))
            .chain(workloads.map(|key| RegistryUpdate::Workload(key.clone(), None)))
            .collect()
    }

    fn apply(&mut self, shard: &ShardKey, update: RegistryUpdate, touched: &mut Touched) {
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

/// Precedence of a registry, independent of when it was added: by the rank of its provider, then the primary
/// cluster first, then by cluster id and instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    provider: Provider,
    remote: bool,
    cluster: ClusterId,
    instance: Arc<str>,
}

impl Rank {
    pub(super) fn of(shard: &ShardKey, primary: &ClusterId) -> Self {
        Self {
            provider: shard.provider,
            remote: shard.cluster != *primary,
            cluster: shard.cluster.clone(),
            instance: shard.instance.clone(),
        }
    }
}
