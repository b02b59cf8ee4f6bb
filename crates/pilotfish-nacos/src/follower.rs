//! What to ask a server, and what follows from its answers and pushes: a state machine without IO and clocks.
//!
//! Lists tell which services there are, subscriptions what instances each has. Neither is believed at once when it takes all away: a service
//! that a list does not name any more, and one whose last instance is gone, are asked for once more.

use crate::mapping::{Mapping, Scope, ServiceName};
use crate::wire::{ServiceInfo, plain_name, split_name};
use pilotfish_registry::{CatalogPort, CatalogService, MAX_SERVICES};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How many names one page of a list has.
pub(crate) const PAGE: u32 = 500;
/// The longest name of a service that is kept, with some room above Nacos's own limit of 512.
const MAX_NAME: usize = 1024;

/// What to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// One page of the names in a scope; the first is 1.
    List(Scope, u32),
    /// The instances of a service, from now on with pushes.
    Service(ServiceName),
    /// No pushes any more.
    Unsubscribe(ServiceName),
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListPage {
    /// How many names there are on all pages.
    pub(crate) count: usize,
    pub(crate) names: Vec<String>,
}

/// What differs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) set: Vec<CatalogService>,
    pub(crate) removed: Vec<Arc<str>>,
}

/// See the module's description.
pub(crate) struct Follower {
    mapping: Mapping,
    /// An empty service keeps its last instances as long as it is listed.
    keep_empty: bool,
    /// Whether instances are asked for again with each list, because nobody pushes them.
    polls: bool,
    scopes: BTreeMap<Scope, Option<Listing>>,
    services: BTreeMap<ServiceName, Entry>,
    asks: VecDeque<Ask>,
    /// Asks that were given out and not answered.
    unanswered: usize,
    changed: BTreeMap<ServiceName, Option<CatalogService>>,
}

/// A list that is being read.
#[derive(Default)]
struct Listing {
    names: BTreeSet<Arc<str>>,
    /// Names on the pages so far, those that came twice among them.
    seen: usize,
}

/// What is known of a service.
#[derive(Default)]
struct Entry {
    /// Whether the last full list named it.
    is_listed: bool,
    /// An ask is queued or on its way.
    is_asked: bool,
    /// The answer that is on its way is the second one, and counts whatever it says.
    is_second: bool,
    /// Whether something was told of it, in this session or one before.
    is_known: bool,
    /// Whether the server would not tell of it.
    is_refused: bool,
    /// How many instances the last answer had.
    hosts: usize,
    last_ref_time: i64,
    /// The ports that it had last.
    ports: Vec<CatalogPort>,
    /// What was told of it last, where empty services keep it.
    kept: Option<CatalogService>,
}

/// A server refuses to tell of a service that it told of before.
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

    /// A session begins: everything is asked for anew. What was known before is needed to doubt what is missing.
    pub(crate) fn begin(&mut self, polls: bool) {
        self.polls = polls;
        self.asks.clear();
        self.unanswered = 0;
        self.changed.clear();
        self.scopes.values_mut().for_each(|listing| *listing = None);
        for entry in self.services.values_mut() {
            // Another server may have another clock.
            (entry.is_asked, entry.is_second, entry.last_ref_time) = (false, false, 0);
            entry.is_listed = false;
        }
        self.refresh();
    }

    /// Time to read the lists again. Those that are being read are left alone.
    pub(crate) fn refresh(&mut self) {
        for (scope, listing) in &mut self.scopes {
            if listing.is_none() {
                *listing = Some(Listing::default());
                self.asks.push_back(Ask::List(scope.clone(), 1));
            }
        }
    }

    /// The next one to ask. Each has to be answered: with [`Self::listed`], [`Self::answered`], [`Self::refused`] or
    /// [`Self::unsubscribed`].
    pub(crate) fn next(&mut self) -> Option<Ask> {
        let ask = self.asks.pop_front()?;
        self.unanswered += 1;
        Some(ask)
    }

    /// Whether all that was asked for is answered.
    pub(crate) fn is_settled(&self) -> bool {
        self.asks.is_empty() && self.unanswered == 0
    }

    /// What differs since the last call.
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

    /// A page of a list came.
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
        // Pages of a list that changes meanwhile may miss a name: then nobody is said to be missing.
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

    /// The answer to [`Ask::Service`] came.
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

    /// A push came. Its scope is that of the connection where it does not say.
    pub(crate) fn pushed(&mut self, namespace: &Arc<str>, info: &ServiceInfo) {
        let (group, plain) = split_name(&info.group_name, &info.name);
        let scope = Scope { namespace: namespace.clone(), group: group.into() };
        let name = ServiceName { scope, name: plain.into() };
        let Some(entry) = self.services.get_mut(&name) else { return };
        if !is_doubtful(entry, info) && (entry.is_listed || !info.hosts.is_empty()) {
            self.believe(&name, info);
        } else {
            entry.is_second = true;
            // The answer on its way may be older than this push.
            entry.is_asked = false;
            ask(&mut self.asks, &name, entry);
        }
    }

    /// The server refused to tell of a service. It is asked again with the next list.
    ///
    /// # Errors
    /// When it told of it before and nothing of that is at hand: then this session cannot tell all that there is.
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

    /// Whether the server refuses to tell of any service.
    pub(crate) fn has_refused(&self) -> bool {
        self.services.values().any(|entry| entry.is_refused)
    }

    /// The answer to [`Ask::Unsubscribe`] came, whatever it was.
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

/// Whether an answer is to be asked for again: it takes all away, or is older than what is known.
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
