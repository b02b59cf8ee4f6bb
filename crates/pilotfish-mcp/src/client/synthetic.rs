//! Services that an istiod has from its own registries. It gives them as ServiceEntries without endpoints, named `synthetic-SERVICE`, and
//! their endpoints by EDS on the same stream; here both become entries with endpoints again.
//!
//! An entry waits until each of its clusters was answered once, so that no proxy is told of a service without endpoints. What an answer
//! does not name stays: answers of EDS have what changed.

use super::eds::{Assigned, Workload, assigned};
use pilotfish_config::SourceEvent;
use pilotfish_config::networking::{Resolution, ServiceEntry, WorkloadEntry};
use pilotfish_model::{Object, ObjectKey};
use pilotfish_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use pilotfish_source::{GuardSettings, HeldLoss, LossGuard, LossVerdict, ReadExtent};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// How an istiod begins the names of such entries.
const PREFIX: &str = "synthetic-";

/// An answer of EDS.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    pub(crate) list: Vec<ClusterLoadAssignment>,
    /// Clusters that are gone, which only delta tells.
    pub(crate) removed: Vec<String>,
    /// The first one of its stream: it has all that was asked for.
    pub(crate) is_first: bool,
}

#[derive(Debug)]
struct Entry {
    /// As it came.
    object: Object,
    /// The cluster of each of its ports, with the port's name.
    clusters: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct Cluster {
    entries: BTreeSet<ObjectKey>,
    /// `None` until there was an answer.
    endpoints: Option<Vec<Assigned>>,
}

impl Cluster {
    fn count(&self) -> usize {
        self.endpoints.as_ref().map_or(0, Vec::len)
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Synthetic {
    guard: LossGuard,
    entries: BTreeMap<ObjectKey, Entry>,
    clusters: HashMap<String, Cluster>,
    subscribe: BTreeSet<String>,
    unsubscribe: BTreeSet<String>,
    /// Everything was listed but for endpoints.
    listed: bool,
    events: Vec<SourceEvent>,
}

impl Synthetic {
    /// Nothing yet. The first answer of a stream has all endpoints: one that lacks most waits for that of another stream.
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

    /// The loss of endpoints that the guard holds back.
    pub(crate) fn held(&self) -> Option<HeldLoss> {
        self.guard.held()
    }

    /// The next first answer counts as the second one.
    pub(crate) fn accept(&mut self, now: Instant) {
        self.guard.accept(now);
    }

    /// Adds endpoints to entries that came, and holds back those whose endpoints are not known yet.
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

    /// Takes an answer in. What it changes comes with the next [`Synthetic::complete`].
    pub(crate) fn answer(&mut self, answer: &Assignments, now: Instant) {
        let mut assigned: HashMap<&str, Vec<Assigned>> = answer
            .list
            .iter()
            .filter(|of| self.clusters.contains_key(&of.cluster_name))
            .map(|of| (of.cluster_name.as_str(), assigned(of)))
            .collect();
        if answer.is_first && !self.is_believed(&assigned, now) {
            // Clusters that do not shrink take effect.
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

    /// Nothing is waited for any more: entries without an answer are told without endpoints.
    pub(crate) fn give_up(&mut self) {
        let mut waiting = BTreeSet::new();
        for cluster in self.clusters.values_mut().filter(|cluster| cluster.endpoints.is_none()) {
            cluster.endpoints = Some(Vec::new());
            waiting.extend(cluster.entries.iter().cloned());
        }
        waiting.iter().for_each(|key| self.tell(key));
    }

    /// Whether a cluster had no answer yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.clusters.values().any(|cluster| cluster.endpoints.is_none())
    }

    /// The clusters to ask for on a new stream.
    pub(crate) fn begin(&mut self) -> (BTreeSet<String>, BTreeSet<String>) {
        (self.subscribe, self.unsubscribe) = Default::default();
        (self.clusters.keys().cloned().collect(), BTreeSet::new())
    }

    /// The clusters to ask for, and no longer to ask for, since this was asked last.
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

    /// An entry has this cluster no more.
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

    /// Sends an entry on, if all of its clusters were answered.
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
            // What it would select is among the endpoints.
            workload_selector: None,
            ..ServiceEntry::clone(&spec)
        };
        let meta = entry.object.meta.as_ref().clone();
        self.events.push(SourceEvent::Apply(Object::new(meta, spec)));
    }

    /// True unless the guard holds back what a first answer lacks. A cluster that shrinks counts, whichever others grow; within one,
    /// endpoints replace each other all the time.
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

/// The clusters of an istiod's entry, with the names of their ports. `None` for what has its own endpoints, or none by its nature.
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
    // An istiod's entry has one host; all of several would have the same endpoints.
    Some(entry.hosts.first().map(of_host).unwrap_or_default())
}

/// One endpoint for each workload: those of several ports that differ in nothing but the port are one.
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
