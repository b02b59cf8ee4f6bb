//! The names of services, for lists.
//!
//! Derived from the directory: each use takes the services that changed.

use crate::NacosSettings;
use crate::record::service_of;
use crate::service::{Scope, ServiceId};
use futures::FutureExt;
use pilotfish_registration::{InstanceKey, Registrar, ServiceChanges, ServiceKey, ServicesChanged};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Names of the services with an instance of a client of Nacos.
pub(crate) struct Catalog {
    registrar: Registrar,
    settings: NacosSettings,
    changes: ServiceChanges,
    scopes: BTreeMap<Scope, BTreeMap<Arc<str>, ServiceKey>>,
    /// Several services of Nacos may have one host.
    known: HashMap<ServiceKey, BTreeSet<ServiceId>>,
}

/// A page of names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Number of names on all pages.
    pub(crate) count: usize,
    pub(crate) names: Vec<Arc<str>>,
}

impl Catalog {
    pub(crate) fn new(registrar: Registrar, settings: NacosSettings) -> Self {
        let changes = registrar.service_changes();
        Self { registrar, settings, changes, scopes: BTreeMap::new(), known: HashMap::new() }
    }

    /// Takes the changes since the last call.
    pub(crate) fn refresh(&mut self) {
        let keys: BTreeSet<ServiceKey> = match self.changes.next().now_or_never() {
            None => return,
            Some(ServicesChanged::Some(keys)) => keys,
            Some(ServicesChanged::All) => {
                self.registrar.services().into_iter().chain(self.known.keys().cloned()).collect()
            }
        };
        let namespace = Arc::clone(&self.settings.namespace);
        keys.into_iter().filter(|key| key.namespace == namespace).for_each(|key| self.read(key));
    }

    fn read(&mut self, key: ServiceKey) {
        let views = self.registrar.service(&key);
        let texts: BTreeSet<&Arc<str>> = views.iter().filter_map(|view| service_of(&view.record)).collect();
        let found: BTreeSet<ServiceId> =
            texts.into_iter().filter_map(|text| ServiceId::parse(text)).collect();
        let before = self.known.remove(&key).unwrap_or_default();
        for gone in before.difference(&found) {
            if let Some(names) = self.scopes.get_mut(&gone.scope) {
                names.remove(&gone.name);
                if names.is_empty() {
                    self.scopes.remove(&gone.scope);
                }
            }
        }
        for new in found.difference(&before) {
            let names = self.scopes.entry(new.scope.clone()).or_default();
            names.insert(Arc::clone(&new.name), key.clone());
        }
        if !found.is_empty() {
            self.known.insert(key, found);
        }
    }

    /// Returns a page of the names that a client may read, sorted. Pages begin with 1.
    pub(crate) fn page(
        &self,
        scope: &Scope,
        page: usize,
        size: usize,
        may_read: impl Fn(&InstanceKey) -> bool,
    ) -> Page {
        let all = self.scopes.get(scope).into_iter().flatten();
        // Rules name services, so one answer is that of all instances.
        let may = |key: &ServiceKey| {
            may_read(&InstanceKey::new(Arc::clone(&key.namespace), Arc::clone(&key.service), ""))
        };
        let names: Vec<&Arc<str>> = all.filter(|(_, key)| may(key)).map(|(name, _)| name).collect();
        let first = page.saturating_sub(1).saturating_mul(size);
        Page { count: names.len(), names: names.into_iter().skip(first).take(size).cloned().collect() }
    }
}
