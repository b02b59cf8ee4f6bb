//! Problems of the entries of a product, kept by service until the entry is corrected, and logged once.

use pilotfish_model::ServiceKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Limit on the number of problems that are shown.
const SHOWN: usize = 100;
/// Limit on the number of new problems that are logged for one change.
const LOGGED: usize = 10;

/// Problems of the entries of a product, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogProblems {
    /// Number of all problems.
    pub total: usize,
    /// First problems, one line each.
    pub first: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Problems {
    by_service: BTreeMap<Arc<str>, Box<[Arc<str>]>>,
    /// Problems of entries that are not services, by name.
    by_item: BTreeMap<Arc<str>, Arc<str>>,
    collisions: BTreeMap<ServiceKey, Arc<str>>,
    over_limit: usize,
    new: Vec<Arc<str>>,
    unlogged: usize,
}

impl Problems {
    /// Replaces the problems of a service, by its id.
    pub(super) fn set(&mut self, id: &Arc<str>, problems: &[Arc<str>]) {
        let before = self.by_service.remove(id);
        for problem in problems {
            if before.as_ref().is_none_or(|before| !before.contains(problem)) {
                self.note(problem);
            }
        }
        if !problems.is_empty() {
            self.by_service.insert(id.clone(), problems.into());
        }
    }

    /// Replaces the problem of an entry that is not a service.
    pub(super) fn note_item(&mut self, id: &Arc<str>, problem: Option<Arc<str>>) {
        let Some(problem) = problem else {
            self.by_item.remove(id);
            return;
        };
        if self.by_item.get(id) != Some(&problem) {
            self.note(&problem);
            self.by_item.insert(id.clone(), problem);
        }
    }

    /// Replaces the collision of a host. Of several owners, all but the first are left out.
    pub(super) fn collision(&mut self, key: &ServiceKey, owners: Option<&BTreeSet<Arc<str>>>) {
        let Some(owners) = owners.filter(|owners| owners.len() > 1) else {
            self.collisions.remove(key);
            return;
        };
        let mut names = owners.iter();
        let winner = names.next().cloned().unwrap_or_default();
        let losers: Vec<&str> = names.take(5).map(|name| &**name).collect();
        let more = if owners.len() > 6 { " and more" } else { "" };
        let (host, namespace) = (&key.hostname, &key.namespace);
        let text: Arc<str> = format!(
            "{}{more}: left out, as its host {host} in the namespace {namespace} is that of {winner}",
            losers.join(", ")
        )
        .into();
        if self.collisions.get(key) != Some(&text) {
            self.note(&text);
            self.collisions.insert(key.clone(), text);
        }
    }

    /// Sets the number of services of the last answer that exceed the limits.
    pub(super) fn over_limit(&mut self, services: usize) {
        if services > 0 && self.over_limit == 0 {
            self.note(&over_limit(services));
        }
        self.over_limit = services;
    }

    fn note(&mut self, problem: &Arc<str>) {
        if self.new.len() < LOGGED {
            self.new.push(problem.clone());
        } else {
            self.unlogged += 1;
        }
    }

    /// Logs problems that have not been logged yet.
    pub(super) fn log(&mut self) {
        for problem in self.new.drain(..) {
            tracing::warn!(%problem, "an entry of a registry cannot be used");
        }
        if self.unlogged > 0 {
            let more = self.unlogged;
            tracing::warn!(more, "more entries of a registry cannot be used: see `pilotfish problems`");
            self.unlogged = 0;
        }
    }

    pub(super) fn view(&self) -> CatalogProblems {
        let by_service = self.by_service.values();
        let total = by_service.clone().map(|problems| problems.len()).sum::<usize>();
        let total = total + self.by_item.len() + self.collisions.len();
        let limit = (self.over_limit > 0).then(|| over_limit(self.over_limit));
        let all = by_service
            .flat_map(|problems| problems.iter())
            .chain(self.by_item.values())
            .chain(self.collisions.values())
            .cloned();
        CatalogProblems {
            total: total + usize::from(limit.is_some()),
            first: limit.into_iter().chain(all).take(SHOWN).collect(),
        }
    }
}

fn over_limit(services: usize) -> Arc<str> {
    format!(
        "{services} services are left out: a registry has at most {} services and {} instances",
        super::MAX_SERVICES,
        super::MAX_INSTANCES
    )
    .into()
}
