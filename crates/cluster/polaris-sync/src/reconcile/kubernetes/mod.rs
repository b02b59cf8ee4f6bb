//! Conversion of a cluster to the desired content of another registry.
//!
//! [`Cluster`] keeps the objects and the contribution of each Service. A changed object marks the Services
//! that depend on it as stale; only these are converted again, and only their services in the other registry
//! are reported as changed.

mod annotations;
mod contribution;
#[cfg(test)]
mod tests;

use crate::reconcile::{Desired, DesiredService, ServiceKey, Target, Text};
use contribution::{Contribution, Endpoints, contribution};
use pilotfish_config::kubernetes::{EndpointSlice, Service};
use pilotfish_model::{Kind, Labels, Object, ObjectKey, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// System namespaces, which are never synced.
const SYSTEM: [&str; 5] = ["kube-system", "kube-public", "kube-node-lease", "istio-system", "polaris-system"];

/// Default for Services without the annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Sync, unless the namespace opts out.
    #[default]
    All,
    /// Do not sync, unless the namespace opts in.
    Demand,
}

/// Settings of reading a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Mode of Services without the annotation `sync` on them or their Namespace.
    pub mode: Mode,
    /// Namespaces that are not synced, in addition to system namespaces.
    pub ignored: BTreeSet<Text>,
}

/// Namespace and name of an object; the context defines its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    pub namespace: Text,
    pub name: Text,
}

impl ObjectName {
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    fn of(key: &ObjectKey) -> Self {
        Self::new(key.namespace.as_str(), key.name.clone())
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A problem that prevents a Service from being synced as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    pub service: ObjectName,
    /// Problem and consequence, in one line.
    pub message: String,
}

/// A slice with its Service.
struct Slice {
    service: ObjectName,
    slice: Typed<EndpointSlice>,
}

/// Objects of a cluster, and the contribution of each Service.
pub struct Cluster {
    target: Arc<dyn Target>,
    settings: ClusterSettings,
    /// Namespaces, with the value of their sync annotation.
    namespaces: BTreeMap<Text, Option<bool>>,
    services: BTreeMap<ObjectName, Typed<Service>>,
    slices: BTreeMap<ObjectName, Slice>,
    slices_of: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    pods: BTreeMap<ObjectName, Labels>,
    /// Services by the Pods of their endpoints.
    services_of: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// Services to convert again.
    stale: BTreeSet<ObjectName>,
    contributions: BTreeMap<ObjectName, Contribution>,
    /// Source Services of each service in the other registry.
    sources: BTreeMap<ServiceKey, BTreeSet<ObjectName>>,
    dirty: BTreeSet<ServiceKey>,
    /// True if a namespace was not desired before.
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

    pub const KINDS: [Kind; 4] = [Kind::Namespace, Kind::Service, Kind::Pod, Kind::EndpointSlice];

    /// Handles a new or changed object. Other kinds are ignored.
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

    /// Handles a deleted object.
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

    /// True if the namespace is never synced.
    fn is_ignored(&self, namespace: &str) -> bool {
        SYSTEM.contains(&namespace) || self.settings.ignored.contains(namespace)
    }

    /// Default for the Services of a namespace.
    fn namespace_is_synced(&self, namespace: &str) -> bool {
        let says = self.namespaces.get(namespace).copied().flatten();
        !self.is_ignored(namespace) && says.unwrap_or(self.settings.mode == Mode::All)
    }

    /// True if a Service is synced: its annotation precedes that of its namespace. A Service without ports or
    /// without a selector is never synced.
    fn is_synced(&self, service: &Typed<Service>) -> bool {
        let namespace = service.namespace().as_str();
        let says = annotations::sync(&service.meta().annotations);
        !self.is_ignored(namespace)
            && !service.spec.ports.is_empty()
            && !service.spec.selector.is_empty()
            && says.unwrap_or_else(|| self.namespace_is_synced(namespace))
    }

    /// Converts the stale Services again.
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

    /// Returns the services of the other registry with changes since the last call, and `true` if there may
    /// be new namespaces.
    pub fn take_changed(&mut self) -> (BTreeSet<ServiceKey>, bool) {
        self.refresh();
        (std::mem::take(&mut self.dirty), std::mem::take(&mut self.has_new_namespace))
    }

    /// Returns the desired content: these services or everything, always with all namespaces.
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

    /// Merges the contributions of several Services to one; the first by namespace and name wins.
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

    /// Returns the source Services of a service in the other registry.
    pub fn sources(&self, key: &ServiceKey) -> impl Iterator<Item = &ObjectName> {
        self.sources.get(key).into_iter().flatten()
    }

    /// Returns the problems, sorted by Service.
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
