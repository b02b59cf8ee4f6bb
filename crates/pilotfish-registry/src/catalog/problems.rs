//! What is wrong with what a product has: kept by service, so that what is mended is gone, and logged once.

use pilotfish_model::{ServiceKey, ShardKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many problems are shown.
const SHOWN: usize = 100;
/// How many new ones are logged of one change.
const LOGGED: usize = 10;

/// What is wrong with what a product has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogProblems {
    /// How many there are.
    pub total: usize,
    /// The first of them, one line each.
    pub first: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Problems {
    by_service: BTreeMap<Arc<str>, Box<[Arc<str>]>>,
    /// Of things that are no services, by their names.
    by_item: BTreeMap<Arc<str>, Arc<str>>,
    collisions: BTreeMap<ServiceKey, Arc<str>>,
    over_limit: usize,
    new: Vec<Arc<str>>,
    unlogged: usize,
}

impl Problems {
    /// What is wrong with one service, by its id.
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

    /// What is wrong with something that is no service.
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

    /// Whose a host is: with several, all but the first lose it.
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

    /// How many services of the last answer are beyond the limits.
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

    /// Logs what is new.
    pub(super) fn log(&mut self, registry: &ShardKey) {
        for problem in self.new.drain(..) {
            tracing::warn!(%registry, %problem, "a registry has something that cannot be used");
        }
        if self.unlogged > 0 {
            let more = self.unlogged;
            tracing::warn!(%registry, more, "a registry has more that cannot be used: see `pilotfish problems`");
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
