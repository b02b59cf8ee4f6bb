//! State of Consul's services in all data centres: decides which responses to accept, and which services they
//! change.

use crate::answer::{About, Entry};
use crate::mapping::{Mapping, PortMemory};
use pilotfish_registry::CatalogService;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Reason for rejecting a response that removes something, because the removal may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    /// The servers have no leader.
    #[error("Consul has no leader, and would take something away: what was known stays")]
    NoLeader,
    /// The token may not see everything.
    #[error(
        "the token does not show everything any more (it needs service:read and node:read): what was known \
         stays"
    )]
    Incomplete,
}

/// A list, and its completeness for the token.
#[derive(Debug)]
struct List<T> {
    items: T,
    is_complete: bool,
}

/// State of one name.
#[derive(Debug, Default)]
struct Service {
    by_datacenter: BTreeMap<usize, List<Vec<Entry>>>,
    ports: PortMemory,
    /// Ids of the published services.
    told: BTreeSet<Arc<str>>,
}

/// All names and services.
#[derive(Debug)]
pub(crate) struct Known {
    mapping: Mapping,
    /// Names of data centres for instances that do not have one.
    datacenters: Vec<String>,
    names: BTreeMap<usize, List<BTreeSet<Arc<str>>>>,
    services: BTreeMap<Arc<str>, Service>,
}

/// Services of one name to publish.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) set: Vec<CatalogService>,
    pub(crate) removed: Vec<Arc<str>>,
}

impl Known {
    pub(crate) fn new(mapping: Mapping, datacenters: &[Option<String>]) -> Self {
        let datacenters = datacenters.iter().map(|name| name.clone().unwrap_or_default()).collect();
        Self { mapping, datacenters, names: BTreeMap::new(), services: BTreeMap::new() }
    }

    /// Sets the names of a data centre, and returns the removed ones.
    pub(crate) fn set_names(
        &mut self,
        datacenter: usize,
        names: BTreeSet<Arc<str>>,
        about: About,
    ) -> Result<Vec<Arc<str>>, Doubt> {
        let before = self.names.get(&datacenter);
        let gone: Vec<_> =
            before.into_iter().flat_map(|list| list.items.difference(&names)).cloned().collect();
        let was_complete = before.is_some_and(|list| list.is_complete);
        let is_lost = if before.is_some() { !gone.is_empty() } else { names.is_empty() };
        doubt(about, is_lost, was_complete, names.is_empty())?;
        for name in &gone {
            if let Some(service) = self.services.get_mut(name) {
                service.by_datacenter.remove(&datacenter);
            }
        }
        self.names.insert(datacenter, List { items: names, is_complete: !about.incomplete });
        Ok(gone)
    }

    /// Sets the instances of a name in a data centre. Returns true if they changed.
    pub(crate) fn set(
        &mut self,
        datacenter: usize,
        name: &Arc<str>,
        mut entries: Vec<Entry>,
        about: About,
    ) -> Result<bool, Doubt> {
        let is_listed = self.names.get(&datacenter).is_some_and(|list| list.items.contains(name));
        if !is_listed {
            return Ok(false);
        }
        entries.sort_by(|a, b| place(a).cmp(&place(b)));
        let service = self.services.entry(name.clone()).or_default();
        let before = service.by_datacenter.get_mut(&datacenter);
        if let Some(before) = &before {
            let now: BTreeSet<_> = entries.iter().map(place).collect();
            let is_lost = before.items.iter().any(|entry| !now.contains(&place(entry)));
            doubt(about, is_lost, before.is_complete, entries.is_empty())?;
        }
        let is_complete = !about.incomplete;
        match before {
            Some(before) if before.items == entries => {
                before.is_complete = is_complete;
                Ok(false)
            }
            _ => {
                service.by_datacenter.insert(datacenter, List { items: entries, is_complete });
                Ok(true)
            }
        }
    }

    /// True if the token did not see everything: the names of a data centre, or the instances of one name.
    pub(crate) fn is_partial(&self, datacenter: usize, name: Option<&Arc<str>>) -> bool {
        let is_partial = match name {
            None => self.names.get(&datacenter).map(|list| !list.is_complete),
            Some(name) => {
                let list = self.services.get(name).and_then(|service| service.by_datacenter.get(&datacenter));
                list.map(|list| !list.is_complete)
            }
        };
        is_partial.unwrap_or_default()
    }

    /// Returns the names with an instance on a node.
    pub(crate) fn on_node(&self, datacenter: usize, node: &str) -> Vec<Arc<str>> {
        let has = |service: &Service| {
            let list = service.by_datacenter.get(&datacenter);
            list.is_some_and(|list| list.items.iter().any(|entry| entry.node.node == node))
        };
        self.services.iter().filter(|(_, service)| has(service)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the current services of a name, and the ids that it no longer has.
    pub(crate) fn tell(&mut self, name: &Arc<str>) -> Told {
        let Some(service) = self.services.get_mut(name) else { return Told::default() };
        if service.by_datacenter.is_empty() {
            let removed = std::mem::take(&mut service.told).into_iter().collect();
            self.services.remove(name);
            return Told { set: Vec::new(), removed };
        }
        let names = &self.datacenters;
        let lists = service.by_datacenter.iter().map(|(datacenter, list)| {
            (names.get(*datacenter).map_or("", String::as_str), list.items.as_slice())
        });
        let set = self.mapping.services(name, lists, &mut service.ports);
        let now: BTreeSet<_> = set.iter().map(|service| service.id.clone()).collect();
        let removed = service.told.difference(&now).cloned().collect();
        service.told = now;
        Told { set, removed }
    }

    pub(crate) fn tell_all(&mut self) -> Vec<CatalogService> {
        let names: Vec<_> = self.services.keys().cloned().collect();
        names.iter().flat_map(|name| self.tell(name).set).collect()
    }
}

/// Identity of an instance: node and service id.
fn place(entry: &Entry) -> (&str, &str) {
    (&entry.node.node, &entry.service.id)
}

/// Decides on accepting a response that removes something. Without a leader it is rejected. If the token does
/// not see everything, a partial removal is accepted only if it did not see everything before, either; a
/// complete removal is rejected.
fn doubt(about: About, is_lost: bool, was_complete: bool, is_empty: bool) -> Result<(), Doubt> {
    if !is_lost {
        return Ok(());
    }
    if about.no_leader {
        return Err(Doubt::NoLeader);
    }
    if about.incomplete && (was_complete || is_empty) {
        return Err(Doubt::Incomplete);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
