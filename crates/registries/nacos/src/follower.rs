//! Requests to a server, and evaluation of its answers and pushes: a state machine without IO and clocks.
//!
//! Lists name the services, subscriptions return their instances. Losses are confirmed by a second request:
//! for a service missing from a list, and for one that lost its last instance.

use crate::mapping::{Mapping, Scope, ServiceName};
use pilotfish_nacos_wire::{ServiceInfo, plain_name, split_name};
use pilotfish_registry::{CatalogPort, CatalogService, MAX_SERVICES};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Number of names per page of a list.
pub(crate) const PAGE: u32 = 500;
/// Maximum length of a service name in bytes, with some room above Nacos's own limit of 512.
const MAX_NAME: usize = 1024;

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Lists one page of the names in a scope; pages start at 1.
    List(Scope, u32),
    /// Gets the instances of a service, and subscribes to it.
    Service(ServiceName),
    /// Ends the subscription of a service.
    Unsubscribe(ServiceName),
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListPage {
    /// Total number of names on all pages.
    pub(crate) count: usize,
    pub(crate) names: Vec<String>,
}

/// Changed services since the last call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) set: Vec<CatalogService>,
    pub(crate) removed: Vec<Arc<str>>,
}

/// State of all services of a registry.
pub(crate) struct Follower {
    mapping: Mapping,
    /// Keep the last instances of an empty service as long as it is listed.
    keep_empty: bool,
    /// True if instances are requested again with each list, because the API has no pushes.
    polls: bool,
    scopes: BTreeMap<Scope, Option<Listing>>,
    services: BTreeMap<ServiceName, Entry>,
    asks: VecDeque<Ask>,
    /// Number of requests that are not answered yet.
    unanswered: usize,
    changed: BTreeMap<ServiceName, Option<CatalogService>>,
}

/// A list that is being read.
#[derive(Default)]
struct Listing {
    names: BTreeSet<Arc<str>>,
    /// Number of names on the pages so far, including duplicates.
    seen: usize,
}

/// State of a service.
#[derive(Default)]
struct Entry {
    /// True if the last complete list named it.
    is_listed: bool,
    /// A request is queued or in flight.
    is_asked: bool,
    /// The request in flight is the second one, whose answer is accepted in any case.
    is_second: bool,
    /// True if the service was published, in this session or an earlier one.
    is_known: bool,
    /// True if the server refused to return its instances.
    is_refused: bool,
    /// Number of instances in the last answer.
    hosts: usize,
    last_ref_time: i64,
    /// The last known ports.
    ports: Vec<CatalogPort>,
    /// The last published state, if empty services keep it.
    kept: Option<CatalogService>,
}

/// The server refuses a service that it returned before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostService;

impl Follower {
    pub(crate) fn new(mapping: Mapping, keep_empty: bool, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self {
            mapping,
            keep_empty,
            polls: false,
            scopes: scopes.into_iter().map(|scope| (scope, None)).collect(),
            services: BTreeMap::new(),
            asks: VecDeque::new(),
            unanswered: 0,
            changed: BTreeMap::new(),
        }
    }

    /// Starts a session: everything is requested again. State of earlier sessions is kept, to confirm losses.
    pub(crate) fn begin(&mut self, polls: bool) {
        self.polls = polls;
        self.asks.clear();
        self.unanswered = 0;
        self.changed.clear();
        self.scopes.values_mut().for_each(|listing| *listing = None);
        for entry in self.services.values_mut() {
            // Another server may have another clock, so its times are not comparable.
            (entry.is_asked, entry.is_second, entry.last_ref_time) = (false, false, 0);
            entry.is_listed = false;
        }
        self.refresh();
    }

    /// Starts reading the lists again, except those in progress.
    pub(crate) fn refresh(&mut self) {
        for (scope, listing) in &mut self.scopes {
            if listing.is_none() {
                *listing = Some(Listing::default());
                self.asks.push_back(Ask::List(scope.clone(), 1));
            }
        }
    }

    /// Returns the next request. Each must be completed: with [`Self::listed`], [`Self::answered`],
    /// [`Self::refused`] or [`Self::unsubscribed`].
    pub(crate) fn next(&mut self) -> Option<Ask> {
        let ask = self.asks.pop_front()?;
        self.unanswered += 1;
        Some(ask)
    }

    /// True if no request is queued or in flight.
    pub(crate) fn is_settled(&self) -> bool {
        self.asks.is_empty() && self.unanswered == 0
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        for (name, service) in std::mem::take(&mut self.changed) {
            match service {
                Some(service) => changes.set.push(service),
                None => changes.removed.push(name.to_string().into()),
            }
        }
        changes
    }

    /// Handles a page of a list.
    pub(crate) fn listed(&mut self, scope: &Scope, page: u32, answer: &ListPage) {
        self.unanswered = self.unanswered.saturating_sub(1);
        let Some(listing) = self.scopes.get_mut(scope).and_then(Option::as_mut) else { return };
        listing.seen += answer.names.len();
        let names = answer.names.iter().map(|name| plain_name(&scope.group, name));
        listing.names.extend(names.filter(|name| !name.is_empty() && name.len() <= MAX_NAME).map(Arc::from));
        let is_last =
            answer.names.is_empty() || listing.seen >= answer.count || listing.names.len() >= MAX_SERVICES;
        match (is_last, page.checked_add(1)) {
            (false, Some(next)) => self.asks.push_back(Ask::List(scope.clone(), next)),
            _ => self.list_is_read(scope, answer.count),
        }
    }

    fn list_is_read(&mut self, scope: &Scope, count: usize) {
        let Some(listing) = self.scopes.get_mut(scope).and_then(Option::take) else { return };
        // A list that changes between pages may miss a name: then no service counts as missing.
        let is_whole = listing.names.len() >= count;
        for name in &listing.names {
            let name = ServiceName { scope: scope.clone(), name: name.clone() };
            let entry = self.services.entry(name.clone()).or_default();
            let is_new = !entry.is_listed;
            entry.is_listed = true;
            if is_new || self.polls || entry.is_refused {
                ask(&mut self.asks, &name, entry);
            }
        }
        let own = self.services.iter_mut().filter(|(name, _)| name.scope == *scope);
        for (name, entry) in own.filter(|(name, _)| !listing.names.contains(&name.name)) {
            if is_whole {
                entry.is_listed = false;
            }
            ask(&mut self.asks, name, entry);
        }
    }

    /// Handles the answer to [`Ask::Service`].
    pub(crate) fn answered(&mut self, name: &ServiceName, info: &ServiceInfo) {
        self.unanswered = self.unanswered.saturating_sub(1);
        let Some(entry) = self.services.get_mut(name) else { return };
        entry.is_asked = false;
        if !entry.is_listed && info.hosts.is_empty() {
            self.remove(name);
            return;
        }
        if std::mem::take(&mut entry.is_second) || !is_doubtful(entry, info) {
            self.believe(name, info);
        } else {
            entry.is_second = true;
            ask(&mut self.asks, name, entry);
        }
    }

    /// Handles a push. `namespace` is that of the connection, as pushes have none.
    pub(crate) fn pushed(&mut self, namespace: &Arc<str>, info: &ServiceInfo) {
        let (group, plain) = split_name(&info.group_name, &info.name);
        let scope = Scope { namespace: namespace.clone(), group: group.into() };
        let name = ServiceName { scope, name: plain.into() };
        let Some(entry) = self.services.get_mut(&name) else { return };
        if !is_doubtful(entry, info) && (entry.is_listed || !info.hosts.is_empty()) {
            self.believe(&name, info);
        } else {
            entry.is_second = true;
            // The answer in flight may be older than this push.
            entry.is_asked = false;
            ask(&mut self.asks, &name, entry);
        }
    }

    /// Handles a refused service. It is requested again with the next list.
    ///
    /// # Errors
    /// When the service was published before and its last state is not kept: then this session cannot publish
    /// a complete catalog.
    pub(crate) fn refused(&mut self, name: &ServiceName) -> Result<(), LostService> {
        self.unanswered = self.unanswered.saturating_sub(1);
        let Some(entry) = self.services.get_mut(name) else { return Ok(()) };
        (entry.is_asked, entry.is_second, entry.is_refused) = (false, false, true);
        match (entry.is_known, &entry.kept) {
            (true, Some(kept)) => {
                self.changed.insert(name.clone(), Some(kept.clone()));
                Ok(())
            }
            (true, None) => Err(LostService),
            (false, _) => Ok(()),
        }
    }

    /// True if the server refuses at least one service.
    pub(crate) fn has_refused(&self) -> bool {
        self.services.values().any(|entry| entry.is_refused)
    }

    /// Handles any answer to [`Ask::Unsubscribe`].
    pub(crate) fn unsubscribed(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    fn believe(&mut self, name: &ServiceName, info: &ServiceInfo) {
        let Some(entry) = self.services.get_mut(name) else { return };
        (entry.is_known, entry.is_refused) = (true, false);
        entry.hosts = info.hosts.len();
        entry.last_ref_time = info.last_ref_time;
        let mapped = self.mapping.service(name, info, &entry.ports);
        if self.keep_empty
            && mapped.instances.is_empty()
            && let Some(kept) = &entry.kept
        {
            self.changed.insert(name.clone(), Some(kept.clone()));
            return;
        }
        if !mapped.instances.is_empty() {
            entry.ports = Mapping::ports(&mapped);
        }
        if self.keep_empty {
            entry.kept = Some(mapped.clone());
        }
        self.changed.insert(name.clone(), Some(mapped));
    }

    fn remove(&mut self, name: &ServiceName) {
        if self.services.remove(name).is_some_and(|entry| entry.is_known) {
            self.changed.insert(name.clone(), None);
        }
        if !self.polls {
            self.asks.push_back(Ask::Unsubscribe(name.clone()));
        }
    }
}

/// True if an answer needs a second request: it has no instances any more, or is older than the last one.
fn is_doubtful(entry: &Entry, info: &ServiceInfo) -> bool {
    info.last_ref_time < entry.last_ref_time || (info.hosts.is_empty() && entry.hosts > 0)
}

fn ask(asks: &mut VecDeque<Ask>, name: &ServiceName, entry: &mut Entry) {
    if !std::mem::replace(&mut entry.is_asked, true) {
        asks.push_back(Ask::Service(name.clone()));
    }
}

#[cfg(test)]
mod tests;
