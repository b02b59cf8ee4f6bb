//! Services of istiod's own registries. Istiod sends them as ServiceEntries without endpoints, named
//! `synthetic-SERVICE`, and their endpoints by EDS on the same stream; here both are merged to entries with
//! endpoints.
//!
//! An entry waits until each of its clusters had a response, so that proxies do not receive a service without
//! endpoints. Clusters that a response does not name keep their endpoints: EDS responses only have changes.

use super::eds::{Assigned, Workload, assigned};
use pilotfish_config::SourceEvent;
use pilotfish_config::networking::{Resolution, ServiceEntry, WorkloadEntry};
use pilotfish_model::{Object, ObjectKey};
use pilotfish_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use pilotfish_runtime::{GuardSettings, HeldLoss, LossGuard, LossVerdict, ReadExtent};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// Prefix of the names of such entries.
const PREFIX: &str = "synthetic-";

/// A response of EDS.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    pub(crate) list: Vec<ClusterLoadAssignment>,
    /// Removed clusters (delta only).
    pub(crate) removed: Vec<String>,
    /// True for the first response of its stream: it has all requested resources.
    pub(crate) is_first: bool,
}

#[derive(Debug)]
struct Entry {
    /// Object as received, before endpoints are added.
    object: Object,
    /// Cluster of each of its ports, with the port's name.
    clusters: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct Cluster {
    entries: BTreeSet<ObjectKey>,
    /// `None` before the first response.
    endpoints: Option<Vec<Assigned>>,
}

impl Cluster {
    fn count(&self) -> usize {
        self.endpoints.as_ref().map_or(0, Vec::len)
    }
}

/// Entries and their endpoints, as described in the module.
#[derive(Debug)]
pub(crate) struct Synthetic {
    guard: LossGuard,
    entries: BTreeMap<ObjectKey, Entry>,
    clusters: HashMap<String, Cluster>,
    subscribe: BTreeSet<String>,
    unsubscribe: BTreeSet<String>,
    /// True once everything except for endpoints was listed.
    listed: bool,
    events: Vec<SourceEvent>,
}

impl Synthetic {
    /// Creates an empty state. The first response of a stream has all endpoints: one that lacks most of them
    /// is held back until a second stream confirms it.
    pub(crate) fn new(guard: GuardSettings) -> Self {
        Self {
            guard: LossGuard::new(guard),
            entries: BTreeMap::new(),
            clusters: HashMap::new(),
            subscribe: BTreeSet::new(),
            unsubscribe: BTreeSet::new(),
            listed: false,
            events: Vec::new(),
        }
    }

    /// Loss of endpoints that the guard holds back.
    pub(crate) fn held(&self) -> Option<HeldLoss> {
        self.guard.held()
    }

    /// Makes the next first response count as the second read.
    pub(crate) fn accept(&mut self, now: Instant) {
        self.guard.accept(now);
    }

    /// Adds endpoints to received entries, and holds back entries with unknown endpoints.
    pub(crate) fn complete(&mut self, events: Vec<SourceEvent>) -> Vec<SourceEvent> {
        for event in events {
            match event {
                SourceEvent::Apply(object) => self.apply(object),
                SourceEvent::Delete(key) => {
                    self.forget(&key);
                    self.events.push(SourceEvent::Delete(key));
                }
                SourceEvent::Listed => self.listed = true,
                other => self.events.push(other),
            }
        }
        if self.listed && !self.is_waiting() {
            self.listed = false;
            self.events.push(SourceEvent::Listed);
        }
        std::mem::take(&mut self.events)
    }

    /// Applies a response. The next [`Synthetic::complete`] returns its changes.
    pub(crate) fn answer(&mut self, answer: &Assignments, now: Instant) {
        let mut assigned: HashMap<&str, Vec<Assigned>> = answer
            .list
            .iter()
            .filter(|of| self.clusters.contains_key(&of.cluster_name))
            .map(|of| (of.cluster_name.as_str(), assigned(of)))
            .collect();
        if answer.is_first && !self.is_believed(&assigned, now) {
            // Clusters that do not shrink are applied.
            assigned
                .retain(|name, now| self.clusters.get(*name).is_some_and(|known| known.count() <= now.len()));
        }
        let removed = answer.removed.iter().filter(|name| self.clusters.contains_key(*name));
        let gone: Vec<(&str, Vec<Assigned>)> = removed.map(|name| (name.as_str(), Vec::new())).collect();
        let mut changed = BTreeSet::new();
        for (name, endpoints) in assigned.into_iter().chain(gone) {
            let Some(cluster) = self.clusters.get_mut(name) else { continue };
            if cluster.endpoints.as_ref() != Some(&endpoints) {
                cluster.endpoints = Some(endpoints);
                changed.extend(cluster.entries.iter().cloned());
            }
        }
        changed.iter().for_each(|key| self.tell(key));
    }

    /// Ends all waits: entries without a response are sent without endpoints.
    pub(crate) fn give_up(&mut self) {
        let mut waiting = BTreeSet::new();
        for cluster in self.clusters.values_mut().filter(|cluster| cluster.endpoints.is_none()) {
            cluster.endpoints = Some(Vec::new());
            waiting.extend(cluster.entries.iter().cloned());
        }
        waiting.iter().for_each(|key| self.tell(key));
    }

    /// True if a cluster had no response yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.clusters.values().any(|cluster| cluster.endpoints.is_none())
    }

    /// Clusters to subscribe to on a new stream.
    pub(crate) fn begin(&mut self) -> (BTreeSet<String>, BTreeSet<String>) {
        (self.subscribe, self.unsubscribe) = Default::default();
        (self.clusters(), BTreeSet::new())
    }

    /// All clusters of its entries.
    pub(crate) fn clusters(&self) -> BTreeSet<String> {
        self.clusters.keys().cloned().collect()
    }

    /// Changes of the subscribed clusters since the last call.
    pub(crate) fn take_subscriptions(&mut self) -> (BTreeSet<String>, BTreeSet<String>) {
        (std::mem::take(&mut self.subscribe), std::mem::take(&mut self.unsubscribe))
    }

    fn apply(&mut self, object: Object) {
        let key = object.key().clone();
        let Some(clusters) = clusters_of(&object) else {
            self.forget(&key);
            self.events.push(SourceEvent::Apply(object));
            return;
        };
        let before = self.entries.insert(key.clone(), Entry { object, clusters: clusters.clone() });
        for (name, _) in &clusters {
            let cluster = self.clusters.entry(name.clone()).or_insert_with(|| {
                self.unsubscribe.remove(name);
                self.subscribe.insert(name.clone());
                Cluster::default()
            });
            cluster.entries.insert(key.clone());
        }
        let left = before.into_iter().flat_map(|entry| entry.clusters);
        let left: Vec<String> = left
            .map(|(name, _)| name)
            .filter(|name| clusters.iter().all(|(known, _)| known != name))
            .collect();
        left.iter().for_each(|name| self.leave(name, &key));
        self.tell(&key);
    }

    fn forget(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        entry.clusters.iter().for_each(|(name, _)| self.leave(name, key));
    }

    /// Removes a cluster from an entry.
    fn leave(&mut self, name: &str, key: &ObjectKey) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        cluster.entries.remove(key);
        if cluster.entries.is_empty() {
            self.clusters.remove(name);
            if !self.subscribe.remove(name) {
                self.unsubscribe.insert(name.to_owned());
            }
        }
    }

    /// Sends an entry if all of its clusters had a response.
    fn tell(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.get(key) else { return };
        let of = |(cluster, port): &(String, String)| {
            let endpoints = self.clusters.get(cluster)?.endpoints.as_deref()?;
            Some((port.clone(), endpoints))
        };
        let Some(ports) = entry.clusters.iter().map(of).collect::<Option<Vec<_>>>() else { return };
        let Some(spec) = entry.object.typed::<ServiceEntry>() else { return };
        let spec = ServiceEntry {
            endpoints: endpoints(&ports),
            // Selected workloads are among the endpoints.
            workload_selector: None,
            ..ServiceEntry::clone(&spec)
        };
        let meta = entry.object.meta.as_ref().clone();
        self.events.push(SourceEvent::Apply(Object::new(meta, spec)));
    }

    /// True unless the guard holds back a loss in a first response. A cluster that shrinks counts, even if
    /// others grow; within a cluster, endpoints are replaced frequently.
    fn is_believed(&mut self, assigned: &HashMap<&str, Vec<Assigned>>, now: Instant) -> bool {
        let before: usize = self.clusters.values().map(Cluster::count).sum();
        let kept = |(name, known): (&String, &Cluster)| {
            let answered = assigned.get(&**name).map_or(known.count(), Vec::len);
            answered.min(known.count())
        };
        let kept: usize = self.clusters.iter().map(kept).sum();
        self.guard.judge(before, kept, now, ReadExtent::Full) == LossVerdict::Believe
    }
}

/// Clusters of istiod's entry, with the names of their ports. `None` for entries with their own endpoints, or
/// without any by their resolution.
fn clusters_of(object: &Object) -> Option<Vec<(String, String)>> {
    if !object.key().name.starts_with(PREFIX) {
        return None;
    }
    let entry = object.typed::<ServiceEntry>()?;
    if entry.resolution != Resolution::Static || !entry.endpoints.is_empty() {
        return None;
    }
    let of_host = |host: &String| {
        let port = |port: &pilotfish_config::networking::ServicePort| {
            (format!("outbound|{}||{host}", port.number), port.name.clone())
        };
        entry.ports.iter().map(port).collect::<Vec<_>>()
    };
    // Entries of istiod have one host; all hosts of one entry would have the same endpoints.
    Some(entry.hosts.first().map(of_host).unwrap_or_default())
}

/// One endpoint for each workload: endpoints that differ in their port only are merged.
fn endpoints(ports: &[(String, &[Assigned])]) -> Vec<WorkloadEntry> {
    let mut all: Vec<WorkloadEntry> = Vec::new();
    let mut places: HashMap<&Workload, Vec<usize>> = HashMap::new();
    for (name, endpoints) in ports {
        for endpoint in *endpoints {
            let known = places.entry(&endpoint.workload).or_default();
            let free =
                known.iter().find(|at| all.get(**at).is_some_and(|entry| !entry.ports.contains_key(name)));
            let at = free.copied().unwrap_or_else(|| {
                known.push(all.len());
                all.push(endpoint.workload.entry());
                all.len() - 1
            });
            if let Some(entry) = all.get_mut(at) {
                entry.ports.insert(name.clone(), endpoint.port);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;
