//! Parsed registrations.

use crate::dubbo::{DubboUrl, Instance, Metadata, Override};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All registrations of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Registrations {
    pub(crate) interfaces: BTreeMap<String, Interface>,
    pub(crate) applications: BTreeMap<String, Application>,
    mapping: BTreeMap<String, BTreeSet<String>>,
    /// Interfaces by application: the inverse of `mapping`.
    mapped: BTreeMap<String, BTreeSet<String>>,
}

/// A Dubbo interface with its providers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Interface {
    /// Providers by node name.
    pub(crate) providers: BTreeMap<String, Arc<DubboUrl>>,
    pub(crate) overrides: BTreeMap<String, Override>,
}

/// An application with its instances.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Application {
    /// Instances by node name.
    pub(crate) instances: BTreeMap<String, Arc<Instance>>,
    /// Metadata by revision, for revisions that instances have and ZooKeeper stores.
    pub(crate) metadata: BTreeMap<String, Arc<Metadata>>,
}

/// Interfaces and applications with changes since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) interfaces: BTreeSet<String>,
    pub(crate) applications: BTreeSet<String>,
}

impl Changed {
    pub(crate) fn is_empty(&self) -> bool {
        self.interfaces.is_empty() && self.applications.is_empty()
    }
}

impl Registrations {
    /// Returns the applications that provide an interface, according to Dubbo's mapping.
    pub(crate) fn applications_of(&self, interface: &str) -> impl Iterator<Item = (&str, &Application)> {
        let names = self.mapping.get(interface).into_iter().flatten();
        names.filter_map(|name| Some((name.as_str(), self.applications.get(name)?)))
    }

    /// Returns the interfaces that an application provides, according to Dubbo's mapping.
    pub(crate) fn interfaces_of(&self, application: &str) -> impl Iterator<Item = &str> {
        self.mapped.get(application).into_iter().flatten().map(String::as_str)
    }

    /// Returns all interfaces: those with their own nodes, and mapped ones.
    pub(crate) fn all_interfaces(&self) -> BTreeSet<&str> {
        self.interfaces.keys().chain(self.mapping.keys()).map(String::as_str).collect()
    }

    /// Returns the mapped interfaces.
    pub(crate) fn mapped_interfaces(&self) -> impl Iterator<Item = &str> {
        self.mapping.keys().map(String::as_str)
    }

    /// Returns the applications of an interface, with or without instances.
    pub(crate) fn mapping_of(&self, interface: &str) -> Option<&BTreeSet<String>> {
        self.mapping.get(interface)
    }

    /// Sets the applications of an interface. Returns true if they changed.
    pub(super) fn map(&mut self, interface: &str, applications: &BTreeSet<String>) -> bool {
        let before = match applications.is_empty() {
            true => self.mapping.remove(interface),
            false => self.mapping.insert(interface.to_owned(), applications.clone()),
        }
        .unwrap_or_default();
        for gone in before.difference(applications) {
            if let Some(interfaces) = self.mapped.get_mut(gone) {
                interfaces.remove(interface);
                if interfaces.is_empty() {
                    self.mapped.remove(gone);
                }
            }
        }
        for new in applications.difference(&before) {
            self.mapped.entry(new.clone()).or_default().insert(interface.to_owned());
        }
        before != *applications
    }
}
