//! A cluster as what another registry should have.
//!
//! [`Cluster`] keeps the objects, and what each Service contributes. An object that changes makes the Services stale that depend on it;
//! only these are read again, and only their services of the other registry are named as changed.

mod annotations;
mod contribution;
#[cfg(test)]
mod tests;

use crate::{Desired, DesiredService, ServiceKey, Target, Text};
use contribution::{Contribution, Endpoints, contribution};
use pilotfish_config::kubernetes::{EndpointSlice, Service};
use pilotfish_model::{Kind, Labels, Object, ObjectKey, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Namespaces of the system, which are never synced.
const SYSTEM: [&str; 5] = ["kube-system", "kube-public", "kube-node-lease", "istio-system", "polaris-system"];

/// Which Services are synced that say nothing themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All, but where the namespace says no.
    #[default]
    All,
    /// None, but where the namespace says yes.
    Demand,
}

/// How a cluster is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// What holds without annotations.
    pub mode: Mode,
    /// Namespaces that are not synced, beside those of the system.
    pub ignored: BTreeSet<Text>,
}

/// An object of a cluster, of whichever kind the context says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: Text,
    /// Its name.
    pub name: Text,
}

impl ObjectName {
    /// That object.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    fn of(key: &ObjectKey) -> Self {
        Self::new(key.namespace.as_str(), key.name.clone())
    }
}

impl fmt::Display for ObjectName {
    /// `namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Something about a Service that cannot be synced as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The Service of the cluster.
    pub service: ObjectName,
    /// What, and what happens now, in one line.
    pub message: String,
}

/// A slice, as far as it counts.
struct Slice {
    service: ObjectName,
    slice: Typed<EndpointSlice>,
}

/// See the module.
pub struct Cluster {
    target: Arc<dyn Target>,
    settings: ClusterSettings,
    /// Namespaces, with what they say about syncing.
    namespaces: BTreeMap<Text, Option<bool>>,
    services: BTreeMap<ObjectName, Typed<Service>>,
    slices: BTreeMap<ObjectName, Slice>,
    slices_of: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    pods: BTreeMap<ObjectName, Labels>,
    /// The Services that have a Pod among their endpoints.
    services_of: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// Services that have to be read again.
    stale: BTreeSet<ObjectName>,
    contributions: BTreeMap<ObjectName, Contribution>,
    /// The Services that a service of the other registry is made of.
    sources: BTreeMap<ServiceKey, BTreeSet<ObjectName>>,
    dirty: BTreeSet<ServiceKey>,
    /// Namespaces that were not wanted before.
    has_new_namespace: bool,
}

impl Cluster {
    /// A cluster without objects.
    #[must_use]
    pub fn new(target: Arc<dyn Target>, settings: ClusterSettings) -> Self {
        Self {
            target,
            settings,
            namespaces: BTreeMap::new(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            slices_of: BTreeMap::new(),
            pods: BTreeMap::new(),
            services_of: BTreeMap::new(),
            stale: BTreeSet::new(),
            contributions: BTreeMap::new(),
            sources: BTreeMap::new(),
            dirty: BTreeSet::new(),
            has_new_namespace: false,
        }
    }

    /// The kinds that are read.
    pub const KINDS: [Kind; 4] = [Kind::Namespace, Kind::Service, Kind::Pod, Kind::EndpointSlice];

    /// An object is new or differs. Other kinds are no matter.
    pub fn apply(&mut self, object: &Object) {
        let name = ObjectName::of(object.key());
        match object.key().kind {
            Kind::Namespace => {
                let says = annotations::sync(&object.meta.annotations);
                let before = self.namespaces.insert(name.name.clone(), says);
                if before != Some(says) {
                    self.namespace_changed(&name.name);
                    self.has_new_namespace = true;
                }
            }
            Kind::Service => {
                if let Some(service) = object.typed::<Service>() {
                    self.stale.insert(name.clone());
                    self.services.insert(name, service);
                }
            }
            Kind::EndpointSlice => self.apply_slice(name, object),
            Kind::Pod => {
                let labels = object.meta.labels.clone();
                let before = self.pods.insert(name.clone(), labels.clone());
                if before.as_ref() != Some(&labels) {
                    self.pod_changed(&name);
                }
            }
            _ => {}
        }
    }

    /// An object is gone.
    pub fn delete(&mut self, key: &ObjectKey) {
        let name = ObjectName::of(key);
        match key.kind {
            Kind::Namespace => {
                self.namespaces.remove(&name.name);
                self.namespace_changed(&name.name);
            }
            Kind::Service => {
                self.services.remove(&name);
                self.stale.insert(name);
            }
            Kind::EndpointSlice => self.delete_slice(&name),
            Kind::Pod => {
                self.pods.remove(&name);
                self.pod_changed(&name);
            }
            _ => {}
        }
    }

    fn namespace_changed(&mut self, namespace: &Text) {
        let from = ObjectName::new(namespace.clone(), "");
        let services = self.services.range(from..).take_while(|(name, _)| name.namespace == *namespace);
        self.stale.extend(services.map(|(name, _)| name.clone()));
    }

    fn pod_changed(&mut self, pod: &ObjectName) {
        self.stale.extend(self.services_of.get(pod).into_iter().flatten().cloned());
    }

    fn apply_slice(&mut self, name: ObjectName, object: &Object) {
        self.delete_slice(&name);
        let service = object.meta.labels.shared("kubernetes.io/service-name");
        let (Some(service), Some(slice)) = (service, object.typed::<EndpointSlice>()) else { return };
        let service = ObjectName::new(name.namespace.clone(), service.clone());
        self.stale.insert(service.clone());
        self.slices_of.entry(service.clone()).or_default().insert(name.clone());
        self.slices.insert(name, Slice { service, slice });
    }

    fn delete_slice(&mut self, name: &ObjectName) {
        let Some(Slice { service, .. }) = self.slices.remove(name) else { return };
        if let Some(slices) = self.slices_of.get_mut(&service) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices_of.remove(&service);
            }
        }
        self.stale.insert(service);
    }

    /// Whether the namespace is one that may be synced at all.
    fn is_ignored(&self, namespace: &str) -> bool {
        SYSTEM.contains(&namespace) || self.settings.ignored.contains(namespace)
    }

    /// What holds for what says nothing itself.
    fn namespace_is_synced(&self, namespace: &str) -> bool {
        let says = self.namespaces.get(namespace).copied().flatten();
        !self.is_ignored(namespace) && says.unwrap_or(self.settings.mode == Mode::All)
    }

    /// Whether a Service is synced: its own word counts before that of its namespace. One without ports or without a selector never is.
    fn is_synced(&self, service: &Typed<Service>) -> bool {
        let namespace = service.namespace().as_str();
        let says = annotations::sync(&service.meta().annotations);
        !self.is_ignored(namespace)
            && !service.spec.ports.is_empty()
            && !service.spec.selector.is_empty()
            && says.unwrap_or_else(|| self.namespace_is_synced(namespace))
    }

    /// Reads the stale Services again.
    fn refresh(&mut self) {
        for name in std::mem::take(&mut self.stale) {
            let new = self.services.get(&name).filter(|service| self.is_synced(service)).map(|service| {
                let slices = self.slices_of.get(&name).into_iter().flatten();
                let slices = slices.filter_map(|slice| self.slices.get(slice)).map(|slice| &slice.slice);
                contribution(
                    &*self.target,
                    service,
                    &Endpoints { slices: slices.collect(), pods: &self.pods },
                )
            });
            self.contribute(&name, new);
        }
    }

    fn contribute(&mut self, name: &ObjectName, new: Option<Contribution>) {
        let old = self.contributions.remove(name);
        if old == new {
            self.contributions.extend(new.map(|same| (name.clone(), same)));
            return;
        }
        if let Some(old) = old {
            for pod in &old.pods {
                if let Some(services) = self.services_of.get_mut(pod) {
                    services.remove(name);
                    if services.is_empty() {
                        self.services_of.remove(pod);
                    }
                }
            }
            if let Some(sources) = self.sources.get_mut(&old.target) {
                sources.remove(name);
                if sources.is_empty() {
                    self.sources.remove(&old.target);
                }
            }
            self.dirty.insert(old.target);
        }
        if let Some(new) = new {
            for pod in &new.pods {
                self.services_of.entry(pod.clone()).or_default().insert(name.clone());
            }
            self.dirty.insert(new.target.clone());
            self.sources.entry(new.target.clone()).or_default().insert(name.clone());
            self.contributions.insert(name.clone(), new);
        }
    }

    /// The services of the other registry for which something changed since this was asked last. `true` with it when there may be new
    /// namespaces.
    pub fn take_changed(&mut self) -> (BTreeSet<ServiceKey>, bool) {
        self.refresh();
        (std::mem::take(&mut self.dirty), std::mem::take(&mut self.has_new_namespace))
    }

    /// What there should be of these services, or of everything; namespaces always all.
    pub fn desired(&mut self, scope: Option<&BTreeSet<ServiceKey>>) -> Desired {
        self.refresh();
        let namespaces = self.namespaces.keys().filter(|name| self.namespace_is_synced(name));
        let mut namespaces: BTreeSet<Text> = namespaces
            .filter(|name| self.target.check_service(&ServiceKey::new((*name).clone(), "x")).is_ok())
            .cloned()
            .collect();
        let aliases = self.contributions.values().filter_map(|part| part.service.as_ref());
        let aliases = aliases.flat_map(|service| &service.aliases).map(|alias| &alias.0);
        for key in self.sources.keys().chain(aliases) {
            if !namespaces.contains(&key.namespace) {
                namespaces.insert(key.namespace.clone());
            }
        }
        let services = match scope {
            None => self.sources.keys().filter_map(|key| self.service(key)).collect(),
            Some(scope) => scope.iter().filter_map(|key| self.service(key)).collect(),
        };
        Desired { namespaces, services }
    }

    /// What several Services contribute to one; where they differ, the first by namespace and name counts.
    fn service(&self, key: &ServiceKey) -> Option<(ServiceKey, DesiredService)> {
        let sources = self.sources.get(key)?;
        let mut merged: Option<DesiredService> = None;
        for part in sources.iter().filter_map(|name| self.contributions.get(name)?.service.as_ref()) {
            let Some(merged) = &mut merged else {
                merged = Some(part.clone());
                continue;
            };
            merged.ports.extend(&part.ports);
            merged.aliases.extend(part.aliases.iter().cloned());
            for (name, value) in &part.metadata {
                merged.metadata.entry(name.clone()).or_insert_with(|| value.clone());
            }
            for (place, instance) in &part.instances {
                merged.instances.entry(place.clone()).or_insert_with(|| instance.clone());
            }
        }
        Some((key.clone(), merged?))
    }

    /// The Services that a service of the other registry is made of.
    pub fn sources(&self, key: &ServiceKey) -> impl Iterator<Item = &ObjectName> {
        self.sources.get(key).into_iter().flatten()
    }

    /// What cannot be synced as it is, in the order of the Services.
    pub fn problems(&mut self) -> Vec<Problem> {
        self.refresh();
        let of = |(name, part): (&ObjectName, &Contribution)| {
            let name = name.clone();
            let messages = part.problems.clone().into_iter();
            messages.map(move |message| Problem { service: name.clone(), message }).collect::<Vec<_>>()
        };
        self.contributions.iter().flat_map(of).collect()
    }
}
