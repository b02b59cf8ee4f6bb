//! What stands in ZooKeeper, read and understood.

use crate::dubbo::{DubboUrl, Instance, Metadata, Override};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that is registered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Registrations {
    pub(crate) interfaces: BTreeMap<String, Interface>,
    pub(crate) applications: BTreeMap<String, Application>,
    mapping: BTreeMap<String, BTreeSet<String>>,
    /// The same the other way round.
    mapped: BTreeMap<String, BTreeSet<String>>,
}

/// An interface of Dubbo.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Interface {
    /// By the names of their nodes.
    pub(crate) providers: BTreeMap<String, Arc<DubboUrl>>,
    pub(crate) overrides: BTreeMap<String, Override>,
}

/// An application.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Application {
    /// By the names of their nodes.
    pub(crate) instances: BTreeMap<String, Arc<Instance>>,
    /// What its revisions provide, of those that its instances have and ZooKeeper stores.
    pub(crate) metadata: BTreeMap<String, Arc<Metadata>>,
}

/// Of what something differs since it was last asked.
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
    /// The applications that provide an interface, as Dubbo's mapping has it.
    pub(crate) fn applications_of(&self, interface: &str) -> impl Iterator<Item = (&str, &Application)> {
        let names = self.mapping.get(interface).into_iter().flatten();
        names.filter_map(|name| Some((name.as_str(), self.applications.get(name)?)))
    }

    /// The interfaces that an application provides, as Dubbo's mapping has it.
    pub(crate) fn interfaces_of(&self, application: &str) -> impl Iterator<Item = &str> {
        self.mapped.get(application).into_iter().flatten().map(String::as_str)
    }

    /// All interfaces: those with nodes of their own, and those that are mapped.
    pub(crate) fn all_interfaces(&self) -> BTreeSet<&str> {
        self.interfaces.keys().chain(self.mapping.keys()).map(String::as_str).collect()
    }

    /// Interfaces that are mapped.
    pub(crate) fn mapped_interfaces(&self) -> impl Iterator<Item = &str> {
        self.mapping.keys().map(String::as_str)
    }

    /// The applications that an interface is mapped to, whether they have instances or not.
    pub(crate) fn mapping_of(&self, interface: &str) -> Option<&BTreeSet<String>> {
        self.mapping.get(interface)
    }

    /// Says which applications provide an interface. Returns whether that is new.
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
