//! Recomputation after inputs, along the arrows in the registry's description.

use super::{EntryKey, KubernetesRegistry, entries, gateways, pod, service, slice};
use crate::links::{Links, Name};
use crate::pool::Pool;
use crate::registry::{RegistryOutput, RegistryUpdate};
use pilotfish_model::{
    Endpoint, Kind, LabelMap, Resolution, Service, ShardKey, Workload, WorkloadKey, WorkloadKind,
};
use slice::{Candidate, PodLink};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

impl KubernetesRegistry {
    fn pod_context(&self) -> pod::Context<'_> {
        pod::Context {
            settings: &self.settings,
            trust_domain: &self.trust_domain,
            nodes: &self.nodes,
            networks: &self.networks,
            cluster_network: &self.cluster_network,
        }
    }

    pub(super) fn settle_pods(&mut self, out: &mut RegistryOutput) {
        for name in std::mem::take(&mut self.dirty.pods) {
            let Some(state) = self.pods.get(&name) else { continue };
            let (is_gone, old) = (state.object.is_none(), state.workload.clone());
            let mut new = state.object.as_ref().map(|object| pod::convert(object, &self.pod_context()));
            new.iter_mut().for_each(|workload| self.pools.share(workload));
            let new = new.map(Arc::new);
            if old != new {
                self.dirty.slices.extend(self.slices_of_pod.of(&name).cloned());
                self.link_addresses(&name, old.as_deref(), Links::remove);
                self.link_addresses(&name, new.as_deref(), Links::add);
                let key = WorkloadKey {
                    kind: WorkloadKind::Pod,
                    namespace: name.namespace.clone(),
                    name: name.name.clone(),
                    cluster: self.settings.cluster.clone(),
                };
                out.push(RegistryUpdate::Workload(key, new.clone()));
            }
            if is_gone {
                self.pods.remove(&name);
            } else if let Some(state) = self.pods.get_mut(&name) {
                state.workload = new;
            }
        }
    }

    /// Updates the index of Pods by address, for slices that name no Pod. Pods that are not ready are not
    /// indexed.
    fn link_addresses(
        &mut self,
        name: &Name,
        workload: Option<&Workload>,
        link: fn(&mut Links, &Name, &Name),
    ) {
        let ready = workload.filter(|workload| workload.ready);
        for address in ready.iter().flat_map(|workload| workload.addresses.iter()) {
            let address = Name::new(name.namespace.clone(), address.clone());
            link(&mut self.pods_of_address, &address, name);
            self.dirty.slices.extend(self.slices_of_address.of(&address).cloned());
        }
    }

    pub(super) fn settle_services(&mut self, out: &mut RegistryOutput) {
        for name in std::mem::take(&mut self.dirty.services) {
            let Some(state) = self.services.get(&name) else { continue };
            let old = state.model.clone();
            let new = self.convert_service(&name).map(|mut service| {
                service.kubernetes.iter_mut().for_each(|attributes| self.pools.attributes.share(attributes));
                Arc::new(service)
            });
            self.set_gateways(&name, new.as_deref());
            if old != new {
                let service = new.as_deref().or(old.as_deref());
                if let Some(key) = service.map(Service::key) {
                    let list = new.iter().cloned().collect();
                    out.push(RegistryUpdate::Services(key, list));
                }
                self.dirty.slices.extend(self.slices_of_service.of(&name).cloned());
                self.dirty.shards.insert(name.clone());
                self.select_entries(&name, new.as_deref());
            }
            let Some(state) = self.services.get_mut(&name) else { continue };
            if let (None, Some(old), Some(_)) = (&new, &old, &state.shard) {
                state.shard = None;
                out.push(RegistryUpdate::Endpoints(old.key(), None));
            }
            state.model = new;
            if state.object.is_none() {
                self.services.remove(&name);
            }
        }
    }

    fn convert_service(&self, name: &Name) -> Option<Service> {
        let object = self.services.get(name)?.object.as_ref()?;
        let context = service::Context {
            provider: self.shard.provider,
            settings: &self.settings,
            trust_domain: &self.trust_domain,
            namespace_distribution: self.distributions.get(&name.namespace).map(String::as_str),
            confined: self.exports.confine(name, self.settings.multi_cluster_services),
        };
        match service::convert(object, &context) {
            // Host names are case-insensitive: such a name would share its host with another Service.
            Ok(service) if name.name.chars().any(|c| c.is_ascii_uppercase()) => {
                tracing::warn!(service = %name, host = %service.hostname,
                    "the Service's name is not in lower case; the Service is ignored");
                None
            }
            Ok(service) => Some(service),
            Err(error) => {
                tracing::warn!(
                    service = %name, %error,
                    "the Service's name is not valid in a host name; the Service is ignored"
                );
                None
            }
        }
    }

    /// Finds the WorkloadEntries that a new or changed Service selects.
    fn select_entries(&mut self, name: &Name, service: Option<&Service>) {
        let Some(service) = service.filter(|service| entries::selects(service)) else {
            self.selecting.remove(name);
            if let Some(state) = self.services.get_mut(name) {
                state.entries.clear();
            }
            return;
        };
        self.selecting.set(name.clone(), name.namespace.clone(), service.selector.clone());
        let first = Name { namespace: name.namespace.clone(), name: Arc::default() };
        let lowest = ShardKey::lowest();
        let selected: BTreeSet<EntryKey> = self
            .entries
            .range((first, lowest)..)
            .take_while(|((entry, _), _)| entry.namespace == name.namespace)
            .filter(|(_, workload)| entries::matches(service, workload))
            .map(|(key, _)| key.clone())
            .collect();
        if let Some(state) = self.services.get_mut(name) {
            state.entries = selected;
        }
    }

    fn set_gateways(&mut self, name: &Name, service: Option<&Service>) {
        let Some(state) = self.services.get(name) else { return };
        let gateways = match (&state.object, service) {
            (Some(object), Some(service)) => {
                gateways::of(object, service, &self.settings.cluster, &self.networks, &self.nodes)
            }
            _ => Vec::new(),
        };
        self.gateways.set((Kind::Service, name.clone()), gateways);
    }

    pub(super) fn settle_slices(&mut self) {
        for name in std::mem::take(&mut self.dirty.slices) {
            let Some(state) = self.slices.get(&name) else { continue };
            if state.object.is_none() {
                self.slices.remove(&name);
                continue;
            }
            let mut labels = std::mem::take(&mut self.pools.labels);
            let mut new = self.build_slice(&name, &mut labels);
            self.pools.labels = labels;
            let Some(state) = self.slices.get_mut(&name) else { continue };
            keep_equal(&state.endpoints, &mut new);
            if state.endpoints != new {
                state.endpoints = new;
                self.dirty.shards.extend(state.owner.clone());
            }
        }
    }

    fn build_slice(&self, name: &Name, labels: &mut Pool<LabelMap>) -> Vec<Candidate> {
        let Some(state) = self.slices.get(name) else { return Vec::new() };
        let service = state.owner.as_ref().and_then(|owner| self.services.get(owner));
        let service = service.and_then(|service| service.model.as_deref());
        let (Some(object), Some(service)) = (&state.object, service) else { return Vec::new() };
        let shared = slice::Shared { before: &state.endpoints, labels };
        slice::endpoints(object, service, &self.pod_context(), &|link| self.find_pod(link), shared)
    }

    /// Finds the Pod of an endpoint. `Err` if a named Pod does not exist: the endpoint waits for it.
    fn find_pod(&self, link: &PodLink) -> Result<Option<Arc<Workload>>, ()> {
        let workload = |name: &Name| self.pods.get(name).and_then(|pod| pod.workload.clone());
        match link {
            PodLink::Name(name) => workload(name).map(Some).ok_or(()),
            PodLink::Address(address) => Ok(self.pods_of_address.of(address).find_map(workload)),
            PodLink::Nothing => Ok(None),
        }
    }

    pub(super) fn settle_shards(&mut self, out: &mut RegistryOutput) {
        for name in std::mem::take(&mut self.dirty.shards) {
            let Some(state) = self.services.get(&name) else { continue };
            let Some(service) = state.model.clone() else { continue };
            let new = (service.resolution != Resolution::Alias).then(|| self.build_shard(&name, &service));
            let Some(state) = self.services.get_mut(&name) else { continue };
            if state.shard != new {
                state.shard.clone_from(&new);
                out.push(RegistryUpdate::Endpoints(service.key(), new));
            }
        }
    }

    /// Returns all endpoints of a Service: those of its slices, of which one with precedence counts for each
    /// address and port, then those of the WorkloadEntries that it selects.
    fn build_shard(&self, name: &Name, service: &Service) -> Arc<[Arc<Endpoint>]> {
        let slices = self.slices_of_service.of(name).filter_map(|slice| self.slices.get(slice));
        let candidates: Vec<&Candidate> = slices.flat_map(|slice| &slice.endpoints).collect();
        let from_slices = best(&candidates);
        let selected = self.services.get(name).into_iter().flat_map(|state| &state.entries);
        let from_entries = selected
            .filter_map(|key| self.entries.get(key))
            .flat_map(|workload| entries::endpoints(service, workload));
        from_slices.into_iter().chain(from_entries).collect()
    }
}

/// Returns the candidate with precedence for each place, in the order in which the places first occur.
fn best(candidates: &[&Candidate]) -> Vec<Arc<Endpoint>> {
    let mut places: HashMap<_, usize> = HashMap::with_capacity(candidates.len());
    let mut best: Vec<&Candidate> = Vec::with_capacity(candidates.len());
    for &candidate in candidates {
        let at = *places.entry(candidate.place()).or_insert(best.len());
        match best.get_mut(at) {
            Some(held) => *held = held.better(candidate),
            None => best.push(candidate),
        }
    }
    best.into_iter().map(|candidate| candidate.endpoint.clone()).collect()
}

/// Puts the old endpoint in the place of an equal new one, so that later comparisons find the same pointer.
fn keep_equal(old: &[Candidate], new: &mut [Candidate]) {
    for (old, new) in old.iter().zip(new) {
        if old.endpoint == new.endpoint {
            new.endpoint.clone_from(&old.endpoint);
        }
    }
}
