//! The services that clients see, and the indexes of their blocking queries.
//!
//! Derived from the directory: each use takes the services that changed. An index counts the changes that
//! this process has seen, from a random start, so that it is not an index of another process, too. A query
//! waits only while its index is the current one.

use crate::ConsulSettings;
use crate::checks::Status;
use crate::record::{Registered, name_of, service_of};
use futures::FutureExt;
use pilotfish_registration::{
    Health, InstanceKey, InstanceView, Registrar, ServiceChanges, ServiceKey, ServicesChanged,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Data that a query reads, by what changes its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    /// Names and tags of services.
    Services,
    /// Agents that registered a service.
    Nodes,
    /// Checks of all services.
    Checks,
    /// Instances of a service, with their checks.
    Service(&'a str),
    /// Instances of a service that the client may not read.
    Unreadable,
}

/// An instance that clients see.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: InstanceKey,
    view: InstanceView,
    pub(crate) registered: Registered,
    pub(crate) checks: Vec<CheckState>,
    /// Index of its first registration.
    pub(crate) created: u64,
    /// Index of its last change.
    pub(crate) modified: u64,
}

/// A check of an instance, with its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckState {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) notes: String,
    pub(crate) output: String,
    pub(crate) kind: &'static str,
}

/// A service with its instances.
#[derive(Clone, Debug)]
pub(crate) struct ServiceEntry {
    /// Index of its last change.
    pub(crate) index: u64,
    /// Instances by their id in the registrar.
    pub(crate) instances: BTreeMap<Arc<str>, Arc<Entry>>,
    pub(crate) tags: BTreeSet<String>,
}

pub(crate) type Services = BTreeMap<Arc<str>, Arc<ServiceEntry>>;

/// Services that one client registered, by id, and the services of their checks.
#[derive(Debug, Default)]
struct Agent {
    services: BTreeMap<String, Arc<Entry>>,
    checks: HashMap<String, String>,
}

/// The services that clients see.
pub(crate) struct Catalog {
    registrar: Registrar,
    settings: ConsulSettings,
    changes: ServiceChanges,
    /// Copied before a change while a client is answered from it.
    services: Arc<Services>,
    agents: HashMap<String, Agent>,
    /// Index before the first change.
    start: u64,
    /// Index of the last change.
    last: u64,
    services_index: u64,
    nodes_index: u64,
    checks_index: u64,
    /// Index of the last service that lost its last instance.
    gone_index: u64,
}

impl Catalog {
    pub(crate) fn new(registrar: Registrar, settings: ConsulSettings) -> Self {
        // JavaScript's numbers are exact up to 53 bits.
        let start = 1 + (registrar.epoch() >> 13);
        let changes = registrar.service_changes();
        Self {
            registrar,
            settings,
            changes,
            services: Arc::default(),
            agents: HashMap::new(),
            start,
            last: start,
            services_index: start,
            nodes_index: start,
            checks_index: start,
            gone_index: start,
        }
    }

    /// Takes the changes since the last call. Returns the index of the last change.
    pub(crate) fn refresh(&mut self) -> u64 {
        match self.changes.next().now_or_never() {
            None => {}
            Some(ServicesChanged::Some(keys)) => keys.iter().for_each(|key| self.read(key)),
            Some(ServicesChanged::All) => {
                let mut keys: BTreeSet<ServiceKey> = self.registrar.services().into_iter().collect();
                let known = self.services.keys();
                keys.extend(
                    known.map(|name| ServiceKey::new(Arc::clone(&self.settings.namespace), service_of(name))),
                );
                keys.iter().for_each(|key| self.read(key));
            }
        }
        self.last
    }

    /// Returns the services, for answers without the lock of the catalog.
    pub(crate) fn services(&self) -> Arc<Services> {
        Arc::clone(&self.services)
    }

    /// Returns a service that an agent registered.
    pub(crate) fn of_agent(&self, node: &str, id: &str) -> Option<Arc<Entry>> {
        self.agents.get(node)?.services.get(id).cloned()
    }

    /// Returns all services that an agent registered.
    pub(crate) fn all_of_agent(&self, node: &str) -> Vec<Arc<Entry>> {
        self.agents.get(node).map(|agent| agent.services.values().cloned().collect()).unwrap_or_default()
    }

    /// Returns the service with a check that an agent registered.
    pub(crate) fn of_check(&self, node: &str, check: &str) -> Option<Arc<Entry>> {
        let agent = self.agents.get(node)?;
        agent.services.get(agent.checks.get(check)?).cloned()
    }

    pub(crate) fn index(&self, scope: Scope<'_>) -> u64 {
        match scope {
            Scope::Services => self.services_index,
            Scope::Nodes => self.nodes_index,
            Scope::Checks => self.checks_index,
            Scope::Unreadable => self.start,
            Scope::Service(name) => self.services.get(name).map_or(self.gone_index, |service| service.index),
        }
    }

    /// Reads a service and counts what differs.
    fn read(&mut self, key: &ServiceKey) {
        let Some(name) = name_of(key, &self.settings).map(Arc::<str>::from) else { return };
        let known = self.services.get(&name).cloned();
        let mut before = known.as_ref().map(|known| known.instances.clone()).unwrap_or_default();
        let index = self.last + 1;
        let mut after = BTreeMap::new();
        let mut has_changed = false;
        for view in self.registrar.service(key) {
            let id = Arc::clone(&view.record.instance.key.id);
            let known = before.remove(&id);
            if let Some(known) = known.as_ref().filter(|known| known.view == view) {
                after.insert(id, Arc::clone(known));
                continue;
            }
            let created = known.as_ref().map_or(index, |known| known.created);
            let entry = Entry::new(view, created, index, &self.settings).map(Arc::new);
            has_changed |= known.is_some() || entry.is_some();
            self.replace(known.as_deref(), entry.as_ref(), index);
            if let Some(entry) = entry {
                after.insert(id, entry);
            }
        }
        for gone in before.values() {
            self.replace(Some(gone), None, index);
        }
        if has_changed || !before.is_empty() {
            self.put(name, after, known.as_deref(), index);
        }
    }

    /// Puts the changed instances of a service into the list.
    fn put(
        &mut self,
        name: Arc<str>,
        instances: BTreeMap<Arc<str>, Arc<Entry>>,
        known: Option<&ServiceEntry>,
        index: u64,
    ) {
        self.last = index;
        let services = Arc::make_mut(&mut self.services);
        if instances.is_empty() {
            services.remove(&name);
            (self.services_index, self.gone_index) = (index, index);
            return;
        }
        let tags = instances.values().flat_map(|entry| &entry.registered.service.tags);
        let tags: BTreeSet<String> = tags.cloned().collect();
        if known.is_none_or(|known| known.tags != tags) {
            self.services_index = index;
        }
        services.insert(name, Arc::new(ServiceEntry { index, instances, tags }));
    }

    /// Replaces an instance in the indexes of agents and checks.
    fn replace(&mut self, before: Option<&Entry>, after: Option<&Arc<Entry>>, index: u64) {
        if before.is_some() != after.is_some() {
            self.nodes_index = index;
        }
        if before.map(|entry| &entry.checks) != after.map(|entry| &entry.checks) {
            self.checks_index = index;
        }
        if let Some(before) = before {
            self.forget(before);
        }
        let Some(entry) = after.filter(|entry| entry.registered.is_of_client) else { return };
        let service = &entry.registered.service;
        let agent = self.agents.entry(service.node.clone()).or_default();
        // A service that was registered again by another name replaces the former one.
        if let Some(former) = agent.services.insert(service.id.clone(), Arc::clone(entry)) {
            agent.forget_checks(&former);
        }
        agent.checks.extend(service.checks.iter().map(|check| (check.id.clone(), service.id.clone())));
    }

    fn forget(&mut self, entry: &Entry) {
        let service = &entry.registered.service;
        let Some(agent) = self.agents.get_mut(&service.node) else { return };
        if agent.services.get(&service.id).is_some_and(|known| known.key == entry.key) {
            agent.services.remove(&service.id);
            agent.forget_checks(entry);
            if agent.services.is_empty() {
                self.agents.remove(&service.node);
            }
        }
    }
}

impl Agent {
    fn forget_checks(&mut self, entry: &Entry) {
        let service = &entry.registered.service;
        for check in &service.checks {
            // Another service may have a check of the same id by now.
            if self.checks.get(&check.id) == Some(&service.id) {
                self.checks.remove(&check.id);
            }
        }
    }
}

impl Entry {
    /// Returns the entry of a view; `None` if clients of Consul do not see it.
    fn new(view: InstanceView, created: u64, modified: u64, settings: &ConsulSettings) -> Option<Self> {
        if view.health == Health::Draining {
            return None;
        }
        let registered = Registered::of_record(&view.record, settings)?;
        let checks = checks_of(&registered, view.health);
        let key = view.record.instance.key.clone();
        Some(Self { key, view, registered, checks, created, modified })
    }

    /// Returns the worst status of its checks.
    pub(crate) fn status(&self) -> Status {
        self.checks.iter().map(|check| check.status).max().unwrap_or_default()
    }
}

/// Returns the checks of an instance with their statuses.
fn checks_of(registered: &Registered, health: Health) -> Vec<CheckState> {
    let Registered { service, status, output, maintenance, is_of_client } = registered;
    if !is_of_client {
        let status = if health.is_usable() { Status::Passing } else { Status::Critical };
        return vec![CheckState {
            id: format!("registration:{}", service.id),
            name: format!("Registration of '{}'", service.name),
            status,
            notes: String::new(),
            output: health.as_str().to_owned(),
            kind: "registration",
        }];
    }
    let maintenance = maintenance.as_ref().map(|reason| CheckState {
        id: format!("_service_maintenance:{}", service.id),
        name: "Service Maintenance Mode".to_owned(),
        status: Status::Critical,
        notes: reason.clone(),
        output: String::new(),
        kind: "maintenance",
    });
    let own = service.checks.iter().map(|check| {
        let (status, output) = match (check.ttl(), health) {
            (Some(_), Health::Lapsed) => (Status::Critical, "TTL expired".to_owned()),
            (Some(_), _) => (*status, output.clone()),
            (None, Health::CheckFailed) => (Status::Critical, "a check of the instance fails".to_owned()),
            (None, _) => (Status::Passing, String::new()),
        };
        let (id, name, notes) = (check.id.clone(), check.name.clone(), check.notes.clone());
        CheckState { id, name, status, notes, output, kind: check.type_name() }
    });
    maintenance.into_iter().chain(own).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::tests::{instance, view};

    pub(crate) fn entry(body: &str) -> Entry {
        Entry::new(view(instance(body), Health::Healthy), 1, 1, &ConsulSettings::default()).unwrap()
    }

    fn statuses(body: &str, health: Health) -> Vec<String> {
        let entry = Entry::new(view(instance(body), health), 1, 1, &ConsulSettings::default());
        let entry = entry.into_iter().flat_map(|entry| entry.checks);
        entry.map(|check| format!("{} {}", check.id, check.status.name())).collect()
    }

    #[test]
    fn checks_have_the_status_of_lease_and_probes() {
        let both = r#"{"Name":"a","Port":1,"Checks":[{"TTL":"1s","Status":"passing"},{"TCP":"localhost:1","Interval":"1s"}]}"#;
        for (health, expected) in [
            (Health::Healthy, ["service:a:1 passing", "service:a:2 passing"]),
            (Health::Preserved, ["service:a:1 passing", "service:a:2 passing"]),
            (Health::Lapsed, ["service:a:1 critical", "service:a:2 passing"]),
            (Health::CheckFailed, ["service:a:1 passing", "service:a:2 critical"]),
        ] {
            assert_eq!(statuses(both, health), expected, "{health:?}");
        }
        assert!(
            Entry::new(view(instance(both), Health::Draining), 1, 1, &ConsulSettings::default()).is_none()
        );
        assert!(statuses(r#"{"Name":"a","Port":1}"#, Health::Healthy).is_empty(), "without a check");
    }
}
