//! Mapping of registrations to catalog services. Pure.
//!
//! | In ZooKeeper | Service |
//! |---|---|
//! | providers of an interface, of one group and version | `INTERFACE-GROUP-VERSION`, without empty parts |
//! | instances of an application | `APPLICATION` |
//!
//! A provider that Dubbo 3 registers both ways is one endpoint of the interface: the same protocol at the
//! same address and port.

mod application;
mod interface;
mod labels;

use crate::mirror::{Changed, Registrations};
use pilotfish_model::Namespace;
use pilotfish_registry::{CatalogPort, CatalogService};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of services without endpoints that are kept for one interface: groups and versions that had
/// providers since the start.
const MAX_EMPTY: usize = 16;

/// Group and version of an interface; either may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Variant {
    group: String,
    version: String,
}

/// Maps registrations to services. Remembers the ports of services: one that has lost its last provider
/// stays, without endpoints.
#[derive(Debug)]
pub(crate) struct Mapper {
    namespace: Namespace,
    /// Domain appended to application names.
    domain: String,
    interfaces: BTreeMap<String, BTreeMap<Variant, Vec<CatalogPort>>>,
    applications: BTreeMap<String, Vec<CatalogPort>>,
}

/// Changed and removed services.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) set: Vec<CatalogService>,
    pub(crate) removed: Vec<Arc<str>>,
}

impl Mapper {
    pub(crate) fn new(namespace: Namespace, domain: &str) -> Self {
        let domain = domain.trim_matches('.');
        let domain = if domain.is_empty() { String::new() } else { format!(".{domain}") };
        Self { namespace, domain, interfaces: BTreeMap::new(), applications: BTreeMap::new() }
    }

    pub(crate) fn all(&mut self, registered: &Registrations) -> Vec<CatalogService> {
        let interfaces: BTreeSet<&str> = registered.all_interfaces();
        self.interfaces.retain(|name, _| interfaces.contains(name.as_str()));
        self.applications.retain(|name, _| registered.applications.contains_key(name));
        let mut found = Difference::default();
        interfaces.into_iter().for_each(|name| self.interface(registered, name, &mut found));
        registered.applications.keys().for_each(|name| self.application(registered, name, &mut found));
        found.set
    }

    /// Returns the services affected by changed registrations.
    pub(crate) fn changed(&mut self, registered: &Registrations, changed: &Changed) -> Difference {
        let mut found = Difference::default();
        let mut interfaces: BTreeSet<&str> = changed.interfaces.iter().map(String::as_str).collect();
        for application in &changed.applications {
            self.application(registered, application, &mut found);
            interfaces.extend(registered.interfaces_of(application));
        }
        interfaces.into_iter().for_each(|name| self.interface(registered, name, &mut found));
        found
    }

    fn interface(&mut self, registered: &Registrations, name: &str, found: &mut Difference) {
        let mut services = interface::services(registered, name);
        let known = self.interfaces.remove(name).unwrap_or_default();
        let is_there = registered.interfaces.contains_key(name) || registered.mapping_of(name).is_some();
        let mut empty = 0;
        let mut ports = BTreeMap::new();
        for (variant, before) in known {
            if is_there && empty < MAX_EMPTY && !services.contains_key(&variant) {
                empty += 1;
                services.insert(variant, interface::Found::empty(before));
            } else if !services.contains_key(&variant) {
                found.removed.push(interface::id(name, &variant));
            }
        }
        for (variant, service) in services {
            ports.insert(variant.clone(), service.ports().to_vec());
            found.set.push(service.into_service(name, &variant, self.namespace.clone()));
        }
        if !ports.is_empty() {
            self.interfaces.insert(name.to_owned(), ports);
        }
    }

    fn application(&mut self, registered: &Registrations, name: &str, found: &mut Difference) {
        let Some(application) = registered.applications.get(name) else {
            if self.applications.remove(name).is_some() {
                found.removed.push(application::id(name));
            }
            return;
        };
        let mut service = application::service(name, application, &self.domain, self.namespace.clone());
        match self.applications.get(name) {
            // All instances are gone: the ports stay.
            Some(before) if service.instances.is_empty() => service.ports.clone_from(before),
            // Without instances the ports are unknown, so there is nothing to serve.
            None if service.instances.is_empty() => return,
            _ => {
                self.applications.insert(name.to_owned(), service.ports.clone());
            }
        }
        found.set.push(service);
    }
}

#[cfg(test)]
mod tests;
