//! Kubernetes registry: Services, EndpointSlices, Pods, Nodes and Namespaces of one cluster, from any source.
//!
//! ```text
//!   Node ──▶ Pod ──▶ EndpointSlice ──▶ shard of a Service ◀── WorkloadEntries of the ServiceEntry registry
//!                        ▲                   ▲
//!   Namespace ──▶ Service┴───────────────────┘
//! ```
//!
//! Inputs mark the values that depend on them. [`Registry::settle`] recomputes along the arrows, and stops at
//! values that have not changed. So one slice costs its own endpoints and the list of one Service, and the
//! order of arrival does not matter: a late input marks the values that waited for it.

mod entries;
mod exports;
mod gateways;
mod node;
mod pod;
mod service;
mod settle;
mod slice;

use crate::labels;
use crate::links::{self, Links, Name};
use crate::networks::Networks;
use crate::pool::Pool;
use crate::registry::{Mesh, ObjectEvent, Registry, RegistryOutput, RegistryUpdate, WorkloadChange};
use crate::selector::SelectorIndex;
use crate::settings::{MultiClusterServices, RegistrySettings};
use exports::Exports;
use gateways::GatewaySet;
use node::Nodes;
use pilotfish_config::kubernetes::{EndpointSlice, Node, Pod, Service as KubernetesService};
use pilotfish_model::{
    Endpoint, Kind, KubernetesAttributes, LabelMap, Namespace, NetworkId, Object, Provider, Service,
    ShardKey, SpiffeId, Typed, Workload, WorkloadKind,
};
use slice::{Candidate, PodLink};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const KINDS: &[Kind] = &[
    Kind::Namespace,
    Kind::Node,
    Kind::Pod,
    Kind::Service,
    Kind::EndpointSlice,
    Kind::KubernetesGateway,
    Kind::ServiceExport,
    Kind::ServiceImport,
];

/// WorkloadEntry of this cluster, with its registry.
type EntryKey = (Name, ShardKey);

/// Service with its converted values. If its object was deleted, it is removed when the registry settles.
#[derive(Clone)]
struct ServiceState {
    object: Option<Typed<KubernetesService>>,
    model: Option<Arc<Service>>,
    /// WorkloadEntries that the Service selects.
    entries: BTreeSet<EntryKey>,
    shard: Option<Arc<[Arc<Endpoint>]>>,
}

/// EndpointSlice with its endpoints.
#[derive(Clone)]
struct SliceState {
    object: Option<Typed<EndpointSlice>>,
    owner: Option<Name>,
    endpoints: Vec<Candidate>,
}

/// Pod with its workload in the model.
#[derive(Clone)]
struct PodState {
    object: Option<Typed<Pod>>,
    workload: Option<Arc<Workload>>,
}

/// Values that many Pods or Services have in common.
#[derive(Clone, Default)]
struct Pools {
    labels: Pool<LabelMap>,
    ports: Pool<BTreeMap<Arc<str>, u32>>,
    texts: Pool<str>,
    attributes: Pool<KubernetesAttributes>,
}

impl Pools {
    fn share(&mut self, workload: &mut Workload) {
        self.labels.share(&mut workload.labels);
        self.ports.share(&mut workload.ports);
        let identity = workload.identity.as_mut().map(SpiffeId::shared_mut);
        for text in [&mut workload.service_account, &mut workload.workload_name].into_iter().chain(identity) {
            self.texts.share(text);
        }
    }
}

/// Objects that must be recomputed.
#[derive(Clone, Default)]
struct Dirty {
    pods: BTreeSet<Name>,
    services: BTreeSet<Name>,
    slices: BTreeSet<Name>,
    shards: BTreeSet<Name>,
}

/// Registry of the objects of one Kubernetes cluster.
#[derive(Clone)]
pub struct KubernetesRegistry {
    shard: ShardKey,
    settings: RegistrySettings,
    trust_domain: Arc<str>,
    networks: Networks,
    cluster_network: NetworkId,
    services: BTreeMap<Name, ServiceState>,
    slices: BTreeMap<Name, SliceState>,
    pods: BTreeMap<Name, PodState>,
    nodes: Nodes,
    /// Traffic distribution annotations of namespaces.
    distributions: BTreeMap<Namespace, String>,
    entries: BTreeMap<EntryKey, Arc<Workload>>,
    /// Services that can select WorkloadEntries.
    selecting: SelectorIndex<Name>,
    /// Services of type NodePort with a node selector.
    through_nodes: BTreeSet<Name>,
    slices_of_service: Links,
    /// Slices by the Pods that their endpoints name.
    slices_of_pod: Links,
    /// Slices by the addresses of endpoints that name nothing.
    slices_of_address: Links,
    /// Pods that are ready, by address.
    pods_of_address: Links,
    /// Pods by node; nodes have no namespace.
    pods_of_node: Links,
    gateways: GatewaySet,
    exports: Exports,
    pools: Pools,
    dirty: Dirty,
}

impl KubernetesRegistry {
    /// Returns a registry without objects.
    #[must_use]
    pub fn new(provider: Provider, settings: RegistrySettings) -> Self {
        Self {
            shard: ShardKey::new(provider, settings.cluster.clone()),
            settings,
            trust_domain: Mesh::default().trust_domain(),
            networks: Networks::default(),
            cluster_network: NetworkId::default(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            pods: BTreeMap::new(),
            nodes: Nodes::default(),
            distributions: BTreeMap::new(),
            entries: BTreeMap::new(),
            selecting: SelectorIndex::default(),
            through_nodes: BTreeSet::new(),
            slices_of_service: Links::default(),
            slices_of_pod: Links::default(),
            slices_of_address: Links::default(),
            pods_of_address: Links::default(),
            pods_of_node: Links::default(),
            gateways: GatewaySet::default(),
            exports: Exports::default(),
            pools: Pools::default(),
            dirty: Dirty::default(),
        }
    }

    fn set_service(&mut self, name: Name, object: Option<Typed<KubernetesService>>) {
        if object.as_ref().is_some_and(|object| gateways::node_selector(object).is_some()) {
            self.through_nodes.insert(name.clone());
        } else {
            self.through_nodes.remove(&name);
        }
        let state = self.services.entry(name.clone()).or_insert_with(|| ServiceState {
            object: None,
            model: None,
            entries: BTreeSet::new(),
            shard: None,
        });
        state.object = object;
        self.dirty.services.insert(name);
    }

    fn set_slice(&mut self, name: Name, object: Option<Typed<EndpointSlice>>) {
        let owner = object.as_ref().and_then(slice::owner);
        let old = self.slices.get(&name).and_then(|state| state.object.clone().zip(state.owner.clone()));
        if let Some((old, old_owner)) = old {
            self.slices_of_service.remove(&old_owner, &name);
            self.link_slice(&name, &old, Links::remove);
            self.dirty.shards.insert(old_owner);
        }
        if let Some((object, owner)) = object.as_ref().zip(owner.as_ref()) {
            self.slices_of_service.add(owner, &name);
            self.link_slice(&name, object, Links::add);
            // Marked here because the slice's endpoints may equal those that it had under another owner.
            self.dirty.shards.insert(owner.clone());
        }
        let state = self.slices.entry(name.clone()).or_insert_with(|| SliceState {
            object: None,
            owner: None,
            endpoints: Vec::new(),
        });
        (state.object, state.owner) = (object, owner);
        self.dirty.slices.insert(name);
    }

    fn link_slice(&mut self, name: &Name, object: &Typed<EndpointSlice>, link: fn(&mut Links, &Name, &Name)) {
        for endpoint in &object.endpoints {
            match slice::pod_link(endpoint, object.namespace()) {
                PodLink::Name(pod) => {
                    let known = self.pods.get_key_value(&pod).map(|(known, _)| known);
                    link(&mut self.slices_of_pod, known.unwrap_or(&pod), name);
                }
                PodLink::Address(address) => link(&mut self.slices_of_address, &address, name),
                PodLink::Nothing => {}
            }
        }
    }

    fn set_pod(&mut self, name: Name, object: Option<Typed<Pod>>) {
        let object = object.filter(|pod| pod::exists(pod));
        let old = self.pods.get(&name).and_then(|state| state.object.clone());
        if let Some(old) = &old {
            self.link_pod(&name, old, Links::remove);
        }
        if let Some(new) = &object {
            self.link_pod(&name, new, Links::add);
        }
        if old.is_none() && object.is_none() {
            return;
        }
        let state = self.pods.entry(name.clone()).or_insert(PodState { object: None, workload: None });
        state.object = object;
        self.dirty.pods.insert(name);
    }

    fn link_pod(&mut self, name: &Name, pod: &Typed<Pod>, link: fn(&mut Links, &Name, &Name)) {
        if !pod.spec.node_name.is_empty() {
            let node = self.nodes.shared_name(&pod.spec.node_name);
            link(&mut self.pods_of_node, &Name::new("", node), name);
        }
    }

    fn set_node(&mut self, name: &Arc<str>, object: Option<&Typed<Node>>) {
        let change = self.nodes.set(name, object);
        if change.pods {
            let node = Name::new("", name.clone());
            self.dirty.pods.extend(self.pods_of_node.of(&node).cloned());
        }
        if change.addresses {
            self.dirty.services.extend(self.through_nodes.iter().cloned());
        }
    }

    fn set_namespace(&mut self, name: &Arc<str>, object: Option<&Object>) {
        let namespace = Namespace::from(&**name);
        let distribution =
            object.and_then(|object| object.meta.annotations.get(labels::TRAFFIC_DISTRIBUTION)).cloned();
        if self.distributions.get(&namespace) != distribution.as_ref() {
            self.dirty.services.extend(links::in_namespace(&self.services, &namespace).cloned());
            match distribution {
                Some(distribution) => self.distributions.insert(namespace.clone(), distribution),
                None => self.distributions.remove(&namespace),
            };
        }
        if namespace == self.settings.system_namespace {
            let network = object.and_then(|object| object.meta.labels.get(labels::NETWORK));
            let network = network.map_or_else(NetworkId::default, NetworkId::from);
            if network != self.cluster_network {
                self.cluster_network = network;
                self.mark_all();
            }
        }
    }

    fn mark_all(&mut self) {
        self.dirty.pods.extend(self.pods.keys().cloned());
        self.dirty.services.extend(self.services.keys().cloned());
        self.dirty.slices.extend(self.slices.keys().cloned());
    }
}

impl Registry for KubernetesRegistry {
    fn shard(&self) -> &ShardKey {
        &self.shard
    }

    fn copy(&self) -> Box<dyn Registry> {
        Box::new(self.clone())
    }

    fn kinds(&self) -> &'static [Kind] {
        KINDS
    }

    fn apply(&mut self, event: &ObjectEvent) {
        let key = event.key();
        let name = Name::of(key);
        match key.kind {
            Kind::Service => self.set_service(name, event.typed()),
            Kind::EndpointSlice => self.set_slice(name, event.typed()),
            Kind::Pod => self.set_pod(name, event.typed()),
            Kind::Node => self.set_node(&key.name, event.typed().as_ref()),
            Kind::Namespace => self.set_namespace(&key.name, event.object()),
            Kind::KubernetesGateway => {
                let remotes = self.settings.remote_gateways;
                let gateways = event
                    .typed()
                    .map(|gateway| gateways::of_gateway(&gateway, &self.settings.cluster, remotes));
                self.gateways.set((Kind::KubernetesGateway, name), gateways.unwrap_or_default());
            }
            Kind::ServiceExport => {
                self.exports.set_export(&name, event.object().is_some());
                self.dirty.services.insert(name);
            }
            Kind::ServiceImport if self.settings.multi_cluster_services >= MultiClusterServices::Hosts => {
                self.exports.set_import(&name, event.typed().as_ref(), &self.settings);
            }
            _ => {}
        }
    }

    fn workload(&mut self, change: &WorkloadChange) {
        let is_ours = change.key.kind == WorkloadKind::WorkloadEntry
            && change.key.cluster == self.settings.cluster
            && self.settings.select_workload_entries;
        if !is_ours {
            return;
        }
        let name = Name::new(change.key.namespace.clone(), change.key.name.clone());
        let key: EntryKey = (name, change.from.clone());
        let new = change.workload.clone().filter(|workload| entries::is_selectable(workload));
        let old = match new.clone() {
            Some(new) => self.entries.insert(key.clone(), new),
            None => self.entries.remove(&key),
        };
        if old == new {
            return;
        }
        let before = self.selecting.of_workload(old.as_deref());
        let after = self.selecting.of_workload(new.as_deref());
        for service in before.union(&after) {
            let Some(state) = self.services.get_mut(service) else { continue };
            if after.contains(service) {
                state.entries.insert(key.clone());
            } else {
                state.entries.remove(&key);
            }
            self.dirty.shards.insert(service.clone());
        }
    }

    fn mesh(&mut self, mesh: &Mesh) {
        let trust_domain = mesh.trust_domain();
        let networks = Networks::of(mesh.networks.as_deref(), &self.settings.cluster);
        if trust_domain != self.trust_domain || networks != self.networks {
            (self.trust_domain, self.networks) = (trust_domain, networks);
            self.mark_all();
        }
    }

    fn settle(&mut self, out: &mut RegistryOutput) {
        self.settle_pods(out);
        self.settle_services(out);
        self.settle_slices();
        self.settle_shards(out);
        out.updates.extend(self.exports.settle().map(|(host, import)| RegistryUpdate::Import(host, import)));
        out.updates.extend(self.gateways.settle().map(RegistryUpdate::Gateways));
    }
}
