//! The instances that clients see, and the changes of the last minutes.
//!
//! Derived from the directory: each use takes the services that changed, and notes what differs.

use crate::EurekaSettings;
use crate::recent::{Change, Recent};
use crate::record::{Registered, app_of, is_visible};
use futures::FutureExt;
use pilotfish_eureka_wire::{Instance, InstanceInfo, Status};
use pilotfish_registration::{
    Health, InstanceKey, InstanceView, Registrar, ServiceChanges, ServiceKey, ServicesChanged,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// Action of an instance in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Added,
    Modified,
    Deleted,
}

/// Newest changes of an application by instance.
type ChangesOf<'a> = BTreeMap<&'a Arc<str>, (Action, &'a Arc<Entry>)>;

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// An instance that clients see.
#[derive(Debug)]
pub(crate) struct Entry {
    view: InstanceView,
    pub(crate) key: InstanceKey,
    /// JSON object of the client's document without statuses.
    pub(crate) document: String,
    pub(crate) status: Status,
    pub(crate) overridden: Status,
    vips: Vec<String>,
    secure_vips: Vec<String>,
}

impl Entry {
    /// Returns the entry of a view; `None` if clients of Eureka do not see it.
    pub(crate) fn new(view: &InstanceView, settings: &EurekaSettings) -> Option<Self> {
        if !is_visible(view.health) {
            return None;
        }
        let registered = Registered::of_record(&view.record, settings)?;
        let document = serde_json::to_string(&registered.info).ok()?;
        let status = if view.health == Health::CheckFailed { Status::Down } else { registered.status() };
        let instance = Instance::read(registered.info)?;
        Some(Self {
            view: view.clone(),
            key: view.record.instance.key.clone(),
            document,
            status,
            overridden: registered.overridden,
            vips: instance.vips,
            secure_vips: instance.secure_vips,
        })
    }

    /// Returns the document with its statuses and action.
    pub(crate) fn info(&self, action: Action) -> InstanceInfo {
        let mut info: InstanceInfo = serde_json::from_str(&self.document).unwrap_or_default();
        info.status = self.status.name().into();
        info.overridden_status = self.overridden.name().into();
        info.action_type = action.name().into();
        info
    }
}

/// Applications with their instances, sorted by name.
pub(crate) type Applications = Vec<(Arc<str>, Vec<(Action, Arc<Entry>)>)>;

/// A selection of the catalog.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    pub(crate) hash: String,
    pub(crate) applications: Applications,
}

type Instances = BTreeMap<Arc<str>, Arc<Entry>>;

/// The instances that clients see, and the last changes, at one time.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    /// Instances of each application, by the id of their registration.
    apps: Arc<BTreeMap<Arc<str>, Arc<Instances>>>,
    recent: Arc<Recent>,
}

/// The instances that clients see.
pub(crate) struct Catalog {
    registrar: Registrar,
    settings: EurekaSettings,
    changes: ServiceChanges,
    /// Copied before a change while a client is answered from it.
    seen: Snapshot,
    is_read: bool,
}

impl Catalog {
    pub(crate) fn new(registrar: Registrar, settings: EurekaSettings) -> Self {
        let changes = registrar.service_changes();
        Self { registrar, settings, changes, seen: Snapshot::default(), is_read: false }
    }

    /// Returns what there is now, for answers without the lock of the catalog.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.seen.clone()
    }

    /// Takes the changes since the last call.
    pub(crate) fn refresh(&mut self, now: Instant) {
        if self.seen.recent.has_expired(now) {
            Arc::make_mut(&mut self.seen.recent).expire(now);
        }
        match self.changes.next().now_or_never() {
            None => {}
            Some(ServicesChanged::Some(keys)) => keys.iter().for_each(|key| self.read(key, now)),
            Some(ServicesChanged::All) => {
                let mut keys: BTreeSet<ServiceKey> = self.registrar.services().into_iter().collect();
                keys.extend(self.seen.apps.keys().map(|app| {
                    let service = crate::record::service_of(app, &self.settings);
                    ServiceKey::new(Arc::clone(&self.settings.namespace), service)
                }));
                keys.iter().for_each(|key| self.read(key, now));
                self.is_read = true;
            }
        }
    }

    /// Reads a service and notes what differs.
    fn read(&mut self, key: &ServiceKey, now: Instant) {
        let Some(app) = app_of(key, &self.settings).map(Arc::<str>::from) else { return };
        let before = Arc::make_mut(&mut self.seen.apps).remove(&app);
        let mut before = before.map(Arc::unwrap_or_clone).unwrap_or_default();
        let mut after = Instances::new();
        for view in self.registrar.service(key) {
            let id = &view.record.instance.key.id;
            let known = before.remove(id);
            if let Some(known) = known.as_ref().filter(|known| known.view == view) {
                after.insert(Arc::clone(id), Arc::clone(known));
                continue;
            }
            match Entry::new(&view, &self.settings).map(Arc::new) {
                Some(entry) => {
                    let action = if known.is_some() { Action::Modified } else { Action::Added };
                    after.insert(Arc::clone(id), Arc::clone(&entry));
                    self.note(now, &app, action, entry);
                }
                None => known.into_iter().for_each(|gone| self.note(now, &app, Action::Deleted, gone)),
            }
        }
        before.into_values().for_each(|gone| self.note(now, &app, Action::Deleted, gone));
        if !after.is_empty() {
            Arc::make_mut(&mut self.seen.apps).insert(app, Arc::new(after));
        }
    }

    fn note(&mut self, at: Instant, app: &Arc<str>, action: Action, entry: Arc<Entry>) {
        // Instances that are there at the start are not changes.
        if self.is_read {
            let change = Change { at, app: Arc::clone(app), action, entry };
            Arc::make_mut(&mut self.seen.recent).note(change);
        }
    }
}

impl Snapshot {
    /// Returns the instances that a client may read and wants.
    pub(crate) fn select(
        &self,
        may_read: impl Fn(&InstanceKey) -> bool,
        wanted: impl Fn(&str, &Entry) -> bool,
    ) -> Selection {
        let mut counts = BTreeMap::new();
        let mut applications = Applications::new();
        for (app, instances) in &*self.apps {
            let chosen = instances.values().filter(|entry| wanted(app, entry));
            let chosen: Vec<_> = chosen.map(|entry| (Action::Added, Arc::clone(entry))).collect();
            // Rules name services, so one instance stands for all.
            if chosen.first().is_some_and(|(_, entry)| may_read(&entry.key)) {
                count(&mut counts, chosen.iter().map(|(_, entry)| &**entry));
                applications.push((Arc::clone(app), chosen));
            }
        }
        Selection { hash: pilotfish_eureka_wire::hash(&counts), applications }
    }

    /// Returns the last change of each instance that changed, with the hash of all instances.
    pub(crate) fn delta(&self, may_read: impl Fn(&InstanceKey) -> bool) -> Selection {
        let mut counts = BTreeMap::new();
        // Rules name services, so one answer is that of all instances of an application.
        let mut readable: BTreeMap<&Arc<str>, bool> = BTreeMap::new();
        for (app, instances) in &*self.apps {
            let is_readable = instances.values().next().is_some_and(|entry| may_read(&entry.key));
            readable.insert(app, is_readable);
            if is_readable {
                count(&mut counts, instances.values().map(|entry| &**entry));
            }
        }
        let mut last: BTreeMap<&Arc<str>, ChangesOf<'_>> = BTreeMap::new();
        for change in self.recent.iter() {
            if *readable.entry(&change.app).or_insert_with(|| may_read(&change.entry.key)) {
                let of_app = last.entry(&change.app).or_default();
                of_app.insert(&change.entry.key.id, (change.action, &change.entry));
            }
        }
        let of_app = |(app, changes): (&Arc<str>, ChangesOf<'_>)| {
            let changes = changes.into_values().map(|(action, entry)| (action, Arc::clone(entry)));
            (Arc::clone(app), changes.collect())
        };
        let applications = last.into_iter().map(of_app).collect();
        Selection { hash: pilotfish_eureka_wire::hash(&counts), applications }
    }

    /// Returns an instance that a client may read by its id.
    pub(crate) fn by_id(&self, id: &str, may_read: impl Fn(&InstanceKey) -> bool) -> Option<Arc<Entry>> {
        let encoded = pilotfish_registration_server::encode_id(id);
        let mut found = self.apps.values().filter_map(|instances| instances.get(encoded.as_str()));
        found.find(|entry| may_read(&entry.key)).cloned()
    }
}

impl Entry {
    pub(crate) fn has_vip(&self, name: &str, is_secure: bool) -> bool {
        let vips = if is_secure { &self.secure_vips } else { &self.vips };
        vips.iter().any(|vip| vip == name)
    }
}

fn count<'a>(counts: &mut BTreeMap<Status, usize>, entries: impl Iterator<Item = &'a Entry>) {
    for entry in entries {
        *counts.entry(entry.status).or_default() += 1;
    }
}
