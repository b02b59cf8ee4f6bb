//! A registry whose services are given by calls: for tests, and for registration by API.

use crate::registry::{Registry, RegistryOutput, RegistryUpdate, SyncStatus};
use pilotfish_model::{Endpoint, NetworkGateway, Service, ServiceKey, ShardKey, Workload, WorkloadKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Services, endpoints and workloads as somebody set them.
pub struct MemoryRegistry {
    shard: ShardKey,
    status: SyncStatus,
    services: BTreeMap<ServiceKey, Arc<[Arc<Service>]>>,
    endpoints: BTreeMap<ServiceKey, Arc<[Arc<Endpoint>]>>,
    workloads: BTreeMap<WorkloadKey, Arc<Workload>>,
    gateways: Arc<[NetworkGateway]>,
    changed_services: BTreeSet<ServiceKey>,
    changed_endpoints: BTreeSet<ServiceKey>,
    changed_workloads: BTreeSet<WorkloadKey>,
    changed_gateways: bool,
}

impl MemoryRegistry {
    /// An empty registry, in sync.
    #[must_use]
    pub fn new(shard: ShardKey) -> Self {
        Self {
            shard,
            status: SyncStatus::synced(),
            services: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            workloads: BTreeMap::new(),
            gateways: Arc::default(),
            changed_services: BTreeSet::new(),
            changed_endpoints: BTreeSet::new(),
            changed_workloads: BTreeSet::new(),
            changed_gateways: false,
        }
    }

    /// Adds a service or replaces the one of its host and namespace.
    pub fn set_service(&mut self, service: Service) {
        let key = ServiceKey { hostname: service.hostname.clone(), namespace: service.namespace.clone() };
        self.services.insert(key.clone(), Arc::from([Arc::new(service)]));
        self.changed_services.insert(key);
    }

    /// Takes a service away, with its endpoints.
    pub fn remove_service(&mut self, key: &ServiceKey) {
        if self.services.remove(key).is_some() {
            self.changed_services.insert(key.clone());
        }
        self.remove_endpoints(key);
    }

    /// Sets all endpoints that this registry has for a service; it need not know the service itself.
    pub fn set_endpoints(&mut self, key: ServiceKey, endpoints: impl Into<Arc<[Arc<Endpoint>]>>) {
        self.endpoints.insert(key.clone(), endpoints.into());
        self.changed_endpoints.insert(key);
    }

    /// Forgets the endpoints of a service, which is more than setting an empty list.
    pub fn remove_endpoints(&mut self, key: &ServiceKey) {
        if self.endpoints.remove(key).is_some() {
            self.changed_endpoints.insert(key.clone());
        }
    }

    /// Adds a workload or replaces the one of its key.
    pub fn set_workload(&mut self, workload: Workload) {
        let key = workload.key.clone();
        self.workloads.insert(key.clone(), Arc::new(workload));
        self.changed_workloads.insert(key);
    }

    /// Takes a workload away.
    pub fn remove_workload(&mut self, key: &WorkloadKey) {
        if self.workloads.remove(key).is_some() {
            self.changed_workloads.insert(key.clone());
        }
    }

    /// Sets all gateways between networks that this registry knows.
    pub fn set_gateways(&mut self, gateways: impl Into<Arc<[NetworkGateway]>>) {
        self.gateways = gateways.into();
        self.changed_gateways = true;
    }

    /// Says whether the registry is in sync or fails; what it offers stays as it is.
    pub fn set_status(&mut self, status: SyncStatus) {
        self.status = status;
    }
}

impl Registry for MemoryRegistry {
    fn shard(&self) -> &ShardKey {
        &self.shard
    }

    fn settle(&mut self, out: &mut RegistryOutput) {
        for key in std::mem::take(&mut self.changed_services) {
            let services = self.services.get(&key).cloned().unwrap_or_else(|| Arc::from([]));
            out.push(RegistryUpdate::Services(key, services));
        }
        for key in std::mem::take(&mut self.changed_endpoints) {
            let endpoints = self.endpoints.get(&key).cloned();
            out.push(RegistryUpdate::Endpoints(key, endpoints));
        }
        for key in std::mem::take(&mut self.changed_workloads) {
            let workload = self.workloads.get(&key).cloned();
            out.push(RegistryUpdate::Workload(key, workload));
        }
        if std::mem::take(&mut self.changed_gateways) {
            out.push(RegistryUpdate::Gateways(self.gateways.clone()));
        }
    }

    fn status(&self) -> SyncStatus {
        self.status.clone()
    }
}
