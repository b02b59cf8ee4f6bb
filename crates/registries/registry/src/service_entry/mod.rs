//! ServiceEntry registry: ServiceEntries and WorkloadEntries of one store, and the workloads of other
//! registries that ServiceEntries select.
//!
//! Several entries of one namespace may define one host. Their services and endpoints are combined, those of
//! the oldest entry first. An entry with a selector stores the workloads that it selects, so a change of a
//! workload recomputes only the selectors that it matches or matched.

mod addresses;
mod budget;
mod convert;
mod workload;

use crate::labels;
use crate::links::{self, Name};
use crate::registry::{
    Mesh, ObjectEvent, RefusedObject, Registry, RegistryOutput, RegistryUpdate, WorkloadChange,
};
use crate::selector::SelectorIndex;
use crate::settings::RegistrySettings;
use addresses::Allocation;
use budget::Budget;
pub use budget::NAMESPACE_ENDPOINTS;
pub use convert::endpoint_count;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::{ServiceEntry, WorkloadEntry};
use pilotfish_model::{
    ClusterId, Endpoint, ExportTo, Kind, LabelMap, Namespace, Object, PortId, Provider, Resolution, Service,
    ServiceKey, ShardKey, Typed, Workload, WorkloadKey, WorkloadKind, label_subset,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Workload that can be selected, by namespace, with its registry. Pods sort before WorkloadEntries, and
/// these before workloads of other registries.
type Candidate = (Namespace, WorkloadKey, ShardKey);

/// ServiceEntry with its converted values. If its object was deleted, it is removed when the registry
/// settles.
#[derive(Clone, Default)]
struct EntryState {
    object: Option<Typed<ServiceEntry>>,
    /// Creation time under which the entry is indexed.
    created: i64,
    hosts: convert::Hosts,
    /// Workloads that the entry selects, if it has a selector.
    selected: BTreeSet<Candidate>,
    /// Endpoints shared by its hosts.
    endpoints: SharedEndpoints,
    /// Endpoints with the name of the entry, for hosts of which a client may see only some entries.
    named_endpoints: SharedEndpoints,
}

/// Last list of endpoints.
#[derive(Clone, Default)]
struct SharedEndpoints {
    list: Option<Arc<[Arc<Endpoint>]>>,
    /// True if the list must be rebuilt.
    is_stale: bool,
}

impl EntryState {
    fn endpoints_changed(&mut self) {
        self.endpoints.is_stale = true;
        self.named_endpoints.is_stale = true;
    }
}

/// WorkloadEntry with its workload in the model.
#[derive(Clone, Default)]
struct WorkloadEntryState {
    object: Option<Typed<WorkloadEntry>>,
    workload: Option<Arc<Workload>>,
}

/// Last update of a host and namespace.
#[derive(Clone, Default)]
struct Offered {
    services: Arc<[Arc<Service>]>,
    endpoints: Arc<[Arc<Endpoint>]>,
}

#[derive(Clone, Default)]
struct Dirty {
    entries: BTreeSet<Name>,
    workload_entries: BTreeSet<Name>,
    /// Entries whose selected workloads have changed.
    selections: BTreeSet<Name>,
    /// Entries whose services must be rebuilt.
    converted: BTreeSet<Name>,
    hosts: BTreeSet<ServiceKey>,
}

/// Visibility that the mesh gives to entries, as far as it decides which entries clients may tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ExportDefaults {
    /// True if entries without `exportTo` are not public.
    private: bool,
    /// True if the mesh may hide entries whatever their `exportTo`.
    restricted: bool,
}

impl ExportDefaults {
    fn of(mesh: &MeshConfig) -> Self {
        let default = mesh.default_service_export_to.iter().map(String::as_str);
        let default = ExportTo::parse(default, &Namespace::default());
        let settings = mesh.service_entry_visibility.as_ref();
        Self {
            private: !matches!(default, ExportTo::Unset | ExportTo::Public),
            restricted: settings.is_some_and(|settings| settings.apply_to_sidecars),
        }
    }

    fn is_public(self, export_to: &ExportTo) -> bool {
        !self.restricted
            && match export_to {
                ExportTo::Unset => !self.private,
                ExportTo::Public => true,
                ExportTo::Nobody | ExportTo::Namespaces(_) => false,
            }
    }
}

/// Registry of ServiceEntries and WorkloadEntries.
#[derive(Clone)]
pub struct ServiceEntryRegistry {
    shard: ShardKey,
    settings: RegistrySettings,
    kinds: &'static [Kind],
    trust_domain: Arc<str>,
    defaults: ExportDefaults,
    distributions: BTreeMap<Namespace, String>,
    entries: BTreeMap<Name, EntryState>,
    /// Entries of a host by creation time, then name.
    entries_of_host: BTreeMap<ServiceKey, BTreeSet<(i64, Name)>>,
    workload_entries: BTreeMap<Name, WorkloadEntryState>,
    candidates: BTreeMap<Candidate, Arc<Workload>>,
    selecting: SelectorIndex<Name>,
    allocation: Allocation,
    offered: BTreeMap<ServiceKey, Offered>,
    budget: Budget,
    refused: Arc<[RefusedObject]>,
    dirty: Dirty,
}

impl ServiceEntryRegistry {
    /// Returns an empty registry for the store that holds the mesh's configuration.
    #[must_use]
    pub fn new(provider: Provider, settings: RegistrySettings) -> Self {
        Self::with_kinds(provider, settings, &[Kind::Namespace, Kind::ServiceEntry, Kind::WorkloadEntry])
    }

    /// Returns an empty registry that reads WorkloadEntries only, for clusters whose other configuration is
    /// ignored.
    #[must_use]
    pub fn workload_entries_only(provider: Provider, settings: RegistrySettings) -> Self {
        Self::with_kinds(provider, settings, &[Kind::WorkloadEntry])
    }

    fn with_kinds(provider: Provider, settings: RegistrySettings, kinds: &'static [Kind]) -> Self {
        Self {
            shard: ShardKey::new(provider, settings.cluster.clone()),
            settings,
            kinds,
            trust_domain: Mesh::default().trust_domain(),
            defaults: ExportDefaults::default(),
            distributions: BTreeMap::new(),
            entries: BTreeMap::new(),
            entries_of_host: BTreeMap::new(),
            workload_entries: BTreeMap::new(),
            candidates: BTreeMap::new(),
            selecting: SelectorIndex::default(),
            allocation: Allocation::default(),
            offered: BTreeMap::new(),
            budget: Budget::default(),
            refused: Arc::default(),
            dirty: Dirty::default(),
        }
    }

    fn context(&self, namespace: &Namespace) -> convert::Context<'_> {
        convert::Context {
            settings: &self.settings,
            provider: self.shard.provider,
            trust_domain: &self.trust_domain,
            namespace_distribution: self.distributions.get(namespace).map(String::as_str),
        }
    }

    fn set_namespace(&mut self, name: &Arc<str>, object: Option<&Object>) {
        let namespace = Namespace::from(&**name);
        let distribution =
            object.and_then(|object| object.meta.annotations.get(labels::TRAFFIC_DISTRIBUTION)).cloned();
        if self.distributions.get(&namespace) != distribution.as_ref() {
            self.dirty.entries.extend(links::in_namespace(&self.entries, &namespace).cloned());
            match distribution {
                Some(distribution) => self.distributions.insert(namespace, distribution),
                None => self.distributions.remove(&namespace),
            };
        }
    }

    /// Sets or removes a workload of this or another registry. Marks the hosts of entries that select or
    /// selected it.
    fn set_candidate(&mut self, key: &Candidate, new: Option<Arc<Workload>>) {
        let reachable =
            |workload: &Arc<Workload>| !workload.address().is_empty() || !workload.network.is_empty();
        let new = new.filter(|workload| workload.ready && reachable(workload));
        let old = match new.clone() {
            Some(new) => self.candidates.insert(key.clone(), new),
            None => self.candidates.remove(key),
        };
        if old == new {
            return;
        }
        let before = self.selecting.of_workload(old.as_deref());
        let after = self.selecting.of_workload(new.as_deref());
        for name in before.union(&after) {
            let Some(state) = self.entries.get_mut(name) else { continue };
            let usable = |workload: &Arc<Workload>| {
                state.object.as_ref().is_some_and(|entry| can_use(entry, workload))
            };
            let is_selected = after.contains(name) && new.as_ref().is_some_and(usable);
            let was_selected = state.selected.remove(key);
            if is_selected {
                state.selected.insert(key.clone());
            }
            if is_selected || was_selected {
                state.endpoints_changed();
                self.dirty.selections.insert(name.clone());
                self.dirty.hosts.extend(keys_of(&name.namespace, &state.hosts));
            }
        }
    }

    fn settle_workload_entries(&mut self, out: &mut RegistryOutput) {
        for name in std::mem::take(&mut self.dirty.workload_entries) {
            let Some(state) = self.workload_entries.get(&name) else { continue };
            let context = self.context(&name.namespace);
            let new = state.object.as_ref().map(|object| Arc::new(workload::convert(object, &context)));
            let old = state.workload.clone();
            match (&new, self.workload_entries.get_mut(&name)) {
                (Some(_), Some(state)) => state.workload.clone_from(&new),
                _ => {
                    self.workload_entries.remove(&name);
                }
            }
            if old != new {
                let key = WorkloadKey {
                    kind: WorkloadKind::WorkloadEntry,
                    namespace: name.namespace.clone(),
                    name: name.name.clone(),
                    cluster: self.settings.cluster.clone(),
                };
                out.push(RegistryUpdate::Workload(key.clone(), new.clone()));
                self.set_candidate(&(key.namespace.clone(), key, self.shard.clone()), new);
            }
        }
    }

    /// Selects workloads for changed entries, and finds the entries that exceed the limit of their namespace.
    fn settle_budget(&mut self) {
        for name in std::mem::take(&mut self.dirty.entries) {
            match self.entries.get(&name).and_then(|state| state.object.clone()) {
                Some(object) => {
                    let selected = self.select(&name, &object);
                    if let Some(state) = self.entries.get_mut(&name) {
                        state.selected = selected;
                        state.endpoints_changed();
                    }
                }
                None => self.selecting.remove(&name),
            }
            self.dirty.selections.insert(name.clone());
            self.dirty.converted.insert(name);
        }
        for name in std::mem::take(&mut self.dirty.selections) {
            let cost = self.entries.get(&name).and_then(|state| {
                let object = state.object.as_ref()?;
                Some((object.meta().created, convert::endpoint_count(object, state.selected.len())))
            });
            self.budget.set(&name, cost);
        }
        if let Some(flipped) = self.budget.settle() {
            self.dirty.converted.extend(flipped);
            self.refused = self.refusals();
        }
    }

    fn refusals(&self) -> Arc<[RefusedObject]> {
        let refused = self.budget.refused().iter().filter_map(|(name, refused)| {
            let object = self.entries.get(name)?.object.as_ref()?;
            let message = format!(
                "hosts, addresses, ports and endpoints, or namespaces of exportTo, multiply to {}, beside {} \
                 of older ServiceEntries of the namespace, and at most {NAMESPACE_ENDPOINTS} are allowed in \
                 all (limit namespace-endpoints)",
                refused.endpoints, refused.older
            );
            Some(RefusedObject { key: object.key().clone(), origin: object.meta().origin.clone(), message })
        });
        refused.collect()
    }

    fn settle_entries(&mut self) {
        self.settle_budget();
        for name in std::mem::take(&mut self.dirty.converted) {
            let Some(state) = self.entries.get(&name) else { continue };
            let is_gone = state.object.is_none();
            let object = state.object.clone().filter(|_| !self.budget.refuses(&name));
            let old = (state.created, state.hosts.clone());
            let new = object.as_ref().map_or_else(Default::default, |object| {
                (object.meta().created, convert::services(object, &self.context(&name.namespace)))
            });
            self.file(&name, &old, &new);
            if is_gone {
                self.entries.remove(&name);
            } else if let Some(state) = self.entries.get_mut(&name) {
                (state.created, state.hosts) = new;
            }
        }
    }

    /// Moves an entry in the index from its old hosts to its new ones.
    fn file(&mut self, name: &Name, old: &(i64, convert::Hosts), new: &(i64, convert::Hosts)) {
        for key in keys_of(&name.namespace, &old.1) {
            if let Some(entries) = self.entries_of_host.get_mut(&key) {
                entries.remove(&(old.0, name.clone()));
                if entries.is_empty() {
                    self.entries_of_host.remove(&key);
                }
            }
            self.dirty.hosts.insert(key);
        }
        for key in keys_of(&name.namespace, &new.1) {
            self.entries_of_host.entry(key.clone()).or_default().insert((new.0, name.clone()));
            self.dirty.hosts.insert(key);
        }
    }

    /// Indexes the selector of an entry and returns the workloads that it selects.
    fn select(&mut self, name: &Name, object: &Typed<ServiceEntry>) -> BTreeSet<Candidate> {
        let Some(selector) = &object.workload_selector else {
            self.selecting.remove(name);
            return BTreeSet::new();
        };
        let selector_labels = Arc::new(LabelMap::from(&selector.labels));
        self.selecting.set(name.clone(), name.namespace.clone(), selector_labels);
        let first = WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: Namespace::default(),
            name: Arc::default(),
            cluster: ClusterId::default(),
        };
        self.candidates
            .range((name.namespace.clone(), first, ShardKey::lowest())..)
            .take_while(|((namespace, ..), _)| *namespace == name.namespace)
            .filter(|(_, workload)| label_subset(&selector.labels, &workload.labels))
            .filter(|(_, workload)| can_use(object, workload))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Allocates addresses for the changed hosts without one, and finds the others whose address changes.
    fn settle_allocation(&mut self) {
        if !self.settings.allocate_addresses {
            return;
        }
        for key in &self.dirty.hosts {
            let oldest = self.entries_of_host.get(key).into_iter().flatten().find(|(_, name)| {
                self.services_of(name, key).iter().any(|service| convert::takes_address(service))
            });
            self.allocation.set(key, oldest.map(|(created, _)| *created));
        }
        self.dirty.hosts.extend(self.allocation.settle());
    }

    fn services_of(&self, entry: &Name, key: &ServiceKey) -> &[Arc<Service>] {
        let hosts = self.entries.get(entry).map(|state| &state.hosts);
        hosts.and_then(|hosts| hosts.get(&key.hostname)).map_or(&[], Vec::as_slice)
    }

    fn settle_hosts(&mut self, out: &mut RegistryOutput) {
        for key in std::mem::take(&mut self.dirty.hosts) {
            let services = self.build_services(&key);
            let known = self.offered.contains_key(&key);
            if services.is_empty() {
                if self.offered.remove(&key).is_some() {
                    out.push(RegistryUpdate::Services(key.clone(), services));
                    out.push(RegistryUpdate::Endpoints(key, None));
                }
                continue;
            }
            let endpoints = self.build_endpoints(&key);
            let offered = self.offered.entry(key.clone()).or_default();
            if offered.services != services {
                offered.services = services.clone();
                out.push(RegistryUpdate::Services(key.clone(), services));
            }
            if !known || offered.endpoints != endpoints {
                offered.endpoints = endpoints.clone();
                out.push(RegistryUpdate::Endpoints(key, Some(endpoints)));
            }
        }
    }

    fn entries_of<'a>(&'a self, key: &ServiceKey) -> impl Iterator<Item = &'a Name> + use<'a> {
        self.entries_of_host.get(key).into_iter().flatten().map(|(_, name)| name)
    }

    fn build_services(&self, key: &ServiceKey) -> Arc<[Arc<Service>]> {
        let exported_apart = self.exported_apart(key);
        let services = self.entries_of(key).flat_map(|name| self.services_of(name, key));
        services
            .map(|service| {
                let takes = !service.auto_addresses_stored && convert::takes_address(service);
                let pair = takes.then(|| self.allocation.address(key)).flatten();
                if pair.is_none() && !exported_apart {
                    return service.clone();
                }
                let mut service = Service::clone(service);
                service.auto_addresses = pair.unwrap_or(service.auto_addresses);
                service.entries.extend(exported_apart.then(|| service.object_name.clone()));
                Arc::new(service)
            })
            .collect()
    }

    /// True if a client may see one entry of a host and not another, or a Kubernetes Service with the host
    /// and no entry.
    fn exported_apart(&self, key: &ServiceKey) -> bool {
        let mut services = self.entries_of(key).flat_map(|name| self.services_of(name, key));
        let Some(first) = services.next() else { return false };
        !self.defaults.is_public(&first.export_to)
            || services.any(|service| service.export_to != first.export_to)
    }

    /// Builds the endpoints of all entries of a host, repeated for each address of an entry. Hosts with the
    /// endpoints of one entry share its list.
    fn build_endpoints(&mut self, key: &ServiceKey) -> Arc<[Arc<Endpoint>]> {
        let exported_apart = self.exported_apart(key);
        let names: Vec<Name> = self.entries_of(key).cloned().collect();
        let mut all = Vec::new();
        // With `DNS_ROUND_ROBIN`, a cluster of Envoy (LOGICAL_DNS) can have only one endpoint for each port.
        let mut taken: BTreeSet<Option<PortId>> = BTreeSet::new();
        for name in &names {
            if exported_apart {
                taken.clear();
            }
            let endpoints = self.endpoints_of(name, key, exported_apart);
            let services = self.services_of(name, key);
            let one_for_each = |service: &Arc<Service>| service.resolution == Resolution::DNSRoundRobin;
            if names.len() == 1 && services.len() == 1 && !services.iter().any(one_for_each) {
                return endpoints;
            }
            for service in services {
                let one_for_each = one_for_each(service);
                let usable = endpoints
                    .iter()
                    .filter(|endpoint| !one_for_each || taken.insert(endpoint.service_port_id));
                all.extend(usable.cloned());
            }
        }
        all.into()
    }

    /// Returns the endpoints of an entry for one of its hosts, with the entry's name if it is exported apart
    /// from others. All hosts share one list, unless the host itself is the endpoint.
    fn endpoints_of(&mut self, name: &Name, key: &ServiceKey, exported_apart: bool) -> Arc<[Arc<Endpoint>]> {
        let Some(state) = self.entries.get(name) else { return Arc::default() };
        let Some(object) = &state.object else { return Arc::default() };
        let known = if exported_apart { &state.named_endpoints } else { &state.endpoints };
        if let Some(known) = known.list.as_ref().filter(|_| !known.is_stale) {
            return known.clone();
        }
        let host = self.services_of(name, key).first().map_or(key.hostname.as_str(), |service| &service.name);
        let inline = convert::endpoints(object, host, &self.context(&name.namespace));
        let selected = state
            .selected
            .iter()
            .filter_map(|candidate| self.candidates.get(candidate))
            .flat_map(|workload| convert::of_workload(object, workload, self.settings.dual_stack));
        let mut new: Vec<Arc<Endpoint>> = inline.into_iter().chain(selected).collect();
        for endpoint in new.iter_mut().filter(|_| exported_apart) {
            Arc::make_mut(&mut Arc::make_mut(endpoint).attributes).entry = Some(name.name.clone());
        }
        if convert::is_own_endpoint(object) {
            return new.into();
        }
        let endpoints = kept(known.list.as_ref(), new);
        if let Some(state) = self.entries.get_mut(name) {
            let known = if exported_apart { &mut state.named_endpoints } else { &mut state.endpoints };
            *known = SharedEndpoints { list: Some(endpoints.clone()), is_stale: false };
        }
        endpoints
    }
}

/// Returns the previous list if it is equal, else the new list with the previous pointers of equal endpoints,
/// so that lists of many hosts are compared by pointers.
fn kept(before: Option<&Arc<[Arc<Endpoint>]>>, mut new: Vec<Arc<Endpoint>>) -> Arc<[Arc<Endpoint>]> {
    let Some(before) = before else { return new.into() };
    let mut is_equal = before.len() == new.len();
    for (new, old) in new.iter_mut().zip(before.iter()) {
        if new == old {
            new.clone_from(old);
        } else {
            is_equal = false;
        }
    }
    if is_equal { before.clone() } else { new.into() }
}

/// True if an entry can use a workload. A host name or a Unix socket as address needs an entry whose
/// resolution is DNS.
fn can_use(entry: &ServiceEntry, workload: &Workload) -> bool {
    convert::resolves_names(entry) || !workload.is_dns_only()
}

fn keys_of<'a>(namespace: &'a Namespace, hosts: &'a convert::Hosts) -> impl Iterator<Item = ServiceKey> + 'a {
    hosts.keys().map(|hostname| ServiceKey { hostname: hostname.clone(), namespace: namespace.clone() })
}

impl Registry for ServiceEntryRegistry {
    fn shard(&self) -> &ShardKey {
        &self.shard
    }

    fn copy(&self) -> Box<dyn Registry> {
        Box::new(self.clone())
    }

    fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }

    fn refused(&self) -> Arc<[RefusedObject]> {
        self.refused.clone()
    }

    fn apply(&mut self, event: &ObjectEvent) {
        let key = event.key();
        let name = Name::of(key);
        match key.kind {
            Kind::ServiceEntry => {
                self.entries.entry(name.clone()).or_default().object = event.typed();
                self.dirty.entries.insert(name);
            }
            Kind::WorkloadEntry => {
                self.workload_entries.entry(name.clone()).or_default().object = event.typed();
                self.dirty.workload_entries.insert(name);
            }
            Kind::Namespace => self.set_namespace(&key.name, event.object()),
            _ => {}
        }
    }

    fn workload(&mut self, change: &WorkloadChange) {
        let wanted = match &change.key.kind {
            WorkloadKind::Pod => self.settings.select_pods,
            WorkloadKind::WorkloadEntry => {
                self.settings.select_remote_workload_entries || change.key.cluster == self.settings.cluster
            }
            WorkloadKind::Registered(_) => true,
        };
        if wanted {
            let key = (change.key.namespace.clone(), change.key.clone(), change.from.clone());
            self.set_candidate(&key, change.workload.clone());
        }
    }

    fn mesh(&mut self, mesh: &Mesh) {
        let trust_domain = mesh.trust_domain();
        if trust_domain != self.trust_domain {
            self.trust_domain = trust_domain;
            self.dirty.entries.extend(self.entries.keys().cloned());
            self.dirty.workload_entries.extend(self.workload_entries.keys().cloned());
        }
        let defaults = mesh.config.as_deref().map(ExportDefaults::of).unwrap_or_default();
        if defaults != self.defaults {
            self.defaults = defaults;
            self.dirty.hosts.extend(self.entries_of_host.keys().cloned());
        }
    }

    fn settle(&mut self, out: &mut RegistryOutput) {
        self.settle_workload_entries(out);
        self.settle_entries();
        self.settle_allocation();
        self.settle_hosts(out);
    }
}
