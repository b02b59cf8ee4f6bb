//! Names without a resource. Their response follows from the name, so the memo stores no result for each.
//!
//! Clients can request as many invented names as their limits allow, and a result in the memo is much larger
//! than a name. The name of a load assignment consists of port, subset and host. While no service has that
//! host and port, or no rule of the client has the subset, the name is stored here. The subsets of a host are
//! one result for all names of a view that depend on it.

use crate::engine::memo::{Current, Memo, Node, Query, Touched};
use crate::engine::{Cx, EncodedResource};
use crate::envoy::{ClusterName, outbound_name, sni_name};
use crate::translator::view::{Absence, SharedView, View};
use crate::translator::{Change, Changes, Translator, ViewId};
use pilotfish_model::{ChangeSet, Fact, Hostname, PortId, World};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Requested names of a view that no resource has yet, with their hosts.
#[derive(Default)]
pub(super) struct Absent {
    /// Sorted, so that the names of a host, which may be very many, are adjacent.
    names: BTreeSet<(Hostname, Arc<str>)>,
    /// The hosts whose subsets are reported when they change.
    watched: HashSet<Hostname>,
}

impl Absent {
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.iter().map(|(_, name)| name)
    }

    /// The hosts whose subsets are reported when they change.
    pub(super) fn watched(self) -> impl Iterator<Item = Hostname> {
        self.watched.into_iter()
    }

    fn of<'a>(&'a self, host: &'a Hostname) -> impl Iterator<Item = &'a (Hostname, Arc<str>)> {
        let first = (host.clone(), Arc::from(""));
        self.names.range(first..).take_while(move |(other, _)| other == host)
    }

    fn add(&mut self, host: Hostname, name: &Arc<str>) {
        // All names of a host share its text.
        let known = self.of(&host).next().map(|(known, _)| known.clone());
        let host = known.unwrap_or(host);
        self.names.insert((host, Arc::clone(name)));
    }

    /// Records a request for a name without a resource. Returns the result of the host's subsets if its
    /// changes are not reported yet.
    #[must_use]
    pub(super) fn asked(&mut self, missing: &Missing) -> Option<Arc<Node>> {
        let (host, subsets) = missing.waits_for.as_ref()?;
        self.add(host.clone(), &missing.answer.name);
        subsets.clone().filter(|_| self.watched.insert(host.clone()))
    }

    /// Removes a name. Returns its host if no other name depends on its subsets.
    #[must_use]
    pub(super) fn remove(&mut self, name: &Arc<str>) -> Option<Hostname> {
        let ClusterName { host, .. } = ClusterName::parse(name)?;
        self.names.remove(&(host.clone(), Arc::clone(name)));
        self.unwatched(host)
    }

    /// Stops watching a host that no name depends on, and returns it if it was watched.
    fn unwatched(&mut self, host: Hostname) -> Option<Hostname> {
        if self.of(&host).next().is_some() || !self.watched.remove(&host) {
            return None;
        }
        const FEW: usize = 256;
        if self.watched.capacity() > FEW.max(4 * self.watched.len()) {
            self.watched.shrink_to(2 * self.watched.len());
        }
        Some(host)
    }

    /// Returns the hosts, of these, that names depend on. Iterates over the shorter of both lists.
    fn waiting_for(&self, hosts: &BTreeSet<&Hostname>) -> Vec<Hostname> {
        if self.names.len() >= hosts.len() {
            let waiting = hosts.iter().filter(|host| self.of(host).next().is_some());
            return waiting.map(|host| (*host).clone()).collect();
        }
        let mut waiting: Vec<Hostname> = self
            .names
            .iter()
            .filter(|(host, _)| hosts.contains(host))
            .map(|(host, _)| host.clone())
            .collect();
        waiting.dedup();
        waiting
    }

    /// Removes and returns the names that resources may have now.
    fn take(&mut self, host: &Hostname, there: &Clusters) -> Vec<Arc<str>> {
        let most = there.count();
        let few: Vec<Arc<str>> = self.of(host).take(most + 1).map(|(_, name)| Arc::clone(name)).collect();
        // A client may have requested very many names, while few are possible.
        let mut found: Vec<Arc<str>> = if few.len() > most { there.names().collect() } else { few };
        found.retain(|name| there.has(name) && self.names.remove(&(host.clone(), Arc::clone(name))));
        found
    }
}

/// Query for the subsets of a host in the rules that apply to clients with the view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SubsetsOf {
    pub(super) view: SharedView,
    pub(super) host: Hostname,
}

impl Query for SubsetsOf {
    type Output = BTreeSet<String>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        match &*self.view {
            View::Endpoint(view) => view.subsets(cx, &self.host),
            _ => BTreeSet::new(),
        }
    }
}

/// Clusters of a host that may exist.
struct Clusters {
    ports: BTreeSet<u32>,
    /// The host in the spelling of its services, and in lower case.
    spellings: BTreeSet<Arc<str>>,
    /// The empty one is that of all endpoints.
    subsets: Arc<BTreeSet<String>>,
}

impl Clusters {
    fn of(world: &World, host: &Hostname, subsets: Arc<BTreeSet<String>>) -> Self {
        let services = || world.services_of_host(host).flat_map(|(_, services)| services.iter());
        Self {
            ports: services().flat_map(|service| service.tcp_ports().map(|port| port.number)).collect(),
            spellings: services()
                .flat_map(|service| [service.written_host(), host.shared()])
                .cloned()
                .collect(),
            subsets,
        }
    }

    fn has(&self, name: &str) -> bool {
        let Some(cluster) = ClusterName::parse(name) else { return false };
        self.ports.contains(&cluster.port)
            && self.spellings.iter().any(|spelling| name.ends_with(&**spelling))
            && (cluster.subset.is_empty() || self.subsets.contains(&cluster.subset))
    }

    /// Number of names that [`Self::names`] yields.
    fn count(&self) -> usize {
        2 * self.ports.len() * self.spellings.len() * (self.subsets.len() + 1)
    }

    fn names(&self) -> impl Iterator<Item = Arc<str>> {
        let subsets = || self.subsets.iter().map(String::as_str).chain([""]);
        let of = move |port: u32, spelling: &Arc<str>| {
            let names = subsets()
                .flat_map(|subset| [outbound_name(port, subset, spelling), sni_name(port, subset, spelling)]);
            names.map(Arc::from).collect::<Vec<Arc<str>>>()
        };
        self.ports.iter().flat_map(move |port| {
            let names: Vec<_> = self.spellings.iter().map(|spelling| of(*port, spelling)).collect();
            names.into_iter().flatten()
        })
    }
}

/// Returns true if a service has the cluster's port, and the name ends with a spelling of its host.
fn has_port(world: &World, cluster: &ClusterName, name: &str) -> bool {
    let mut services = world.services_of_host(&cluster.host).flat_map(|(_, services)| services.iter());
    services.any(|service| {
        let is_spelled =
            || name.ends_with(&**service.written_host()) || name.ends_with(cluster.host.as_str());
        service.port(PortId::tcp(cluster.port)).is_some() && is_spelled()
    })
}

/// A name that no resource has.
pub(super) struct Missing {
    /// Empty resource that is sent for the name.
    pub(super) answer: EncodedResource,
    /// The host whose services must change first, and the result with its subsets, if the name depends on
    /// them.
    waits_for: Option<(Hostname, Option<Arc<Node>>)>,
}

/// Returns the empty resource for a name that no resource has; `None` if a resource may have the name.
pub(super) fn of(memo: &Memo, current: &Current, view: &SharedView, name: &str) -> Option<Missing> {
    let waits_for = match view.absence(name)? {
        Absence::Always => None,
        Absence::While(cluster) if !has_port(&current.world, &cluster, name) => Some((cluster.host, None)),
        Absence::While(cluster) if cluster.subset.is_empty() => return None,
        Absence::While(ClusterName { host, subset, .. }) => {
            let (subsets, node) = memo.get(current, &SubsetsOf { view: view.clone(), host: host.clone() });
            if subsets.contains(&subset) {
                return None;
            }
            Some((host, Some(node)))
        }
    };
    Some(Missing { answer: view.placeholder(name)?, waits_for })
}

impl Translator {
    /// Reports names without a resource that may have one now.
    pub(super) fn report_absent(
        &self,
        current: &Current,
        changes: &ChangeSet,
        touched: &[Touched],
        out: &mut Changes,
    ) {
        for ((id, _), query) in self.waiting_for(changes, touched) {
            let (subsets, node) = self.memo.get(current, &query);
            let there = Clusters::of(&current.world, &query.host, subsets);
            let mut clients = self.clients.lock();
            let Some(viewed) = clients.views.get_mut(&id) else { continue };
            let names = viewed.absent.take(&query.host, &there);
            if viewed.absent.unwatched(query.host.clone()).is_some() {
                self.memo.unroot(&query);
            } else if !there.ports.is_empty() && viewed.absent.watched.insert(query.host.clone()) {
                self.memo.set_root(node);
            }
            let resource_type = viewed.view.resource_type();
            out.changes.extend(names.into_iter().map(|name| Change {
                view: id,
                resource_type,
                name,
                removed: false,
            }));
        }
    }

    /// Returns the views and hosts whose names may have resources now.
    fn waiting_for(
        &self,
        changes: &ChangeSet,
        touched: &[Touched],
    ) -> BTreeMap<(ViewId, Hostname), SubsetsOf> {
        let hosts: BTreeSet<&Hostname> = changes
            .facts
            .iter()
            .filter_map(|fact| match fact {
                Fact::Host(host) => Some(host),
                Fact::Service(key) => Some(&key.hostname),
                _ => None,
            })
            .collect();
        let clients = self.clients.lock();
        let mut waiting = BTreeMap::new();
        for (id, viewed) in clients.views.iter().filter(|(_, viewed)| !viewed.absent.names.is_empty()) {
            for host in viewed.absent.waiting_for(&hosts) {
                let query = SubsetsOf { view: viewed.view.clone(), host: host.clone() };
                waiting.insert((*id, host), query);
            }
        }
        for query in touched.iter().filter_map(|root| root.query::<SubsetsOf>()) {
            if let Some(id) = clients.ids.get(&query.view) {
                waiting.insert((*id, query.host.clone()), query.clone());
            }
        }
        waiting
    }
}
