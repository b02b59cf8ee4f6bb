//! Names that no resource has: what they are answered with is known without computing anything, so the memo keeps nothing of them.
//!
//! Clients can make up as many names as their limits allow, and a result of the memo is large beside a name. A load assignment is of a host.
//! While no service has that host, the name waits here for one.

use crate::engine::EncodedResource;
use crate::translator::view::{Absence, View};
use pilotfish_model::{Fact, Hostname, World};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Names of a view that were asked for and that no resource has yet, by the host that would have to come.
#[derive(Default)]
pub(super) struct Absent(HashMap<Hostname, Vec<Arc<str>>>);

/// Hosts that the table keeps room for when it has become empty.
const FEW: usize = 256;

impl Absent {
    /// Whether it has nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, host: Hostname, name: &Arc<str>) {
        let names = self.0.entry(host).or_default();
        if !names.contains(name) {
            // Most hosts have one or two.
            names.reserve_exact(1);
            names.push(Arc::clone(name));
        }
    }

    /// Forgets a name.
    pub(super) fn remove(&mut self, view: &View, name: &str) {
        if let Some(Absence::While(host)) = view.absence(name)
            && let Entry::Occupied(mut names) = self.0.entry(host)
        {
            names.get_mut().retain(|known| **known != *name);
            if names.get().is_empty() {
                names.remove();
            }
            if self.0.capacity() > FEW.max(4 * self.0.len()) {
                self.0.shrink_to(2 * self.0.len());
            }
        }
    }

    /// Takes out the names that may have a resource now: those of hosts of which services came or went.
    pub(super) fn take<'f>(&mut self, changed: impl IntoIterator<Item = &'f Fact>) -> Vec<Arc<str>> {
        let hosts = changed.into_iter().filter_map(|fact| match fact {
            Fact::Host(host) => Some(host),
            _ => None,
        });
        hosts.filter_map(|host| self.0.remove(host)).flatten().collect()
    }

    /// Every name.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.values().flatten()
    }

    /// A name was asked for that no resource has, as [`of`] told.
    pub(super) fn asked(&mut self, host: Option<Hostname>, name: &Arc<str>) {
        if let Some(host) = host {
            self.add(host, name);
        }
    }
}

/// What a name is answered with that no resource has, and the host that would have to come; `None` when some resource may have the name.
pub(super) fn of(view: &View, world: &World, name: &str) -> Option<(Option<Hostname>, EncodedResource)> {
    let host = match view.absence(name)? {
        Absence::Always => None,
        Absence::While(host) if world.services_of_host(&host).next().is_none() => Some(host),
        Absence::While(_) => return None,
    };
    Some((host, view.placeholder(name)?))
}
