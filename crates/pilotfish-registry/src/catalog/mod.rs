//! What a registry without objects has, as its product describes it, and what becomes of it.
//!
//! ```text
//! product's answer ─ its crate maps ─▶ CatalogService ─ Catalog: names, ports, limits, guard, what differs ─▶ RegistryBatch
//! ```
//!
//! A registry maps what its product says to [`CatalogService`]s and does no more. Names that are no host names or labels,
//! services that collide, ports without a protocol, answers that change nothing, and answers that lose suspiciously much are
//! dealt with here, in one way for all registries. A state machine without IO and clocks.

mod convert;
mod entry;
mod names;
mod options;
mod problems;

pub use entry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
pub use options::{CATALOG_OPTIONS, CatalogDefaults, CatalogOptions, RegistryOption};
pub use problems::CatalogProblems;

use crate::live::RegistryBatch;
use convert::{Content, Converted, Converter};
use pilotfish_model::{ServiceKey, ShardKey};
use pilotfish_source::{HeldLoss, LossGuard, LossVerdict, ReadExtent};
use problems::Problems;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// How many services one registry may have; those beyond, in the order of their ids, are left out.
pub const MAX_SERVICES: usize = 100_000;
/// How many instances one registry may have.
pub const MAX_INSTANCES: usize = 1_000_000;

/// What a registry has, and what of it was sent.
pub struct Catalog {
    converter: Converter,
    guard: LossGuard,
    /// What the product has, by its own ids.
    entries: BTreeMap<Arc<str>, Arc<Converted>>,
    /// Whose host is whose: the first id describes it, others collide.
    owners: BTreeMap<ServiceKey, BTreeSet<Arc<str>>>,
    /// What was sent.
    published: BTreeMap<ServiceKey, Arc<Content>>,
    problems: Problems,
    totals: Totals,
    complete: bool,
}

/// Sums over all entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    /// Endpoints that may receive traffic.
    usable: usize,
    instances: usize,
}

/// What became of an answer.
#[derive(Debug)]
pub enum Change {
    /// Something differs, and is to be sent.
    Batch(RegistryBatch),
    /// Nothing differs.
    Unchanged,
    /// It would lose too much: the state before stays in force until a second answer, from a full read after
    /// [`HeldLoss::until`], says the same.
    Held(HeldLoss),
}

impl Catalog {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(shard: ShardKey, options: CatalogOptions) -> Self {
        Self {
            guard: LossGuard::new(options.guard),
            converter: Converter::new(shard, options),
            entries: BTreeMap::new(),
            owners: BTreeMap::new(),
            published: BTreeMap::new(),
            problems: Problems::default(),
            totals: Totals::default(),
            complete: false,
        }
    }

    /// Takes a full and good answer: a service that it does not name is gone.
    pub fn replace(&mut self, services: Vec<CatalogService>, now: Instant) -> Change {
        let given: BTreeSet<Arc<str>> = services.iter().map(|service| service.id.clone()).collect();
        let gone = self.entries.keys().filter(|id| !given.contains(*id)).cloned().collect();
        let change = self.change(services, gone, now, ReadExtent::Full);
        if self.complete || matches!(change, Change::Held(_)) {
            return change;
        }
        self.complete = true;
        let mut batch = RegistryBatch::complete();
        for content in self.published.values() {
            content.set(None, &mut batch);
        }
        Change::Batch(batch)
    }

    /// Takes a good answer about some services: each of `set` as a whole, and ids that are gone. Before the first
    /// [`Catalog::replace`] nothing can be compared, and the answer is kept for it.
    pub fn apply(&mut self, set: Vec<CatalogService>, removed: Vec<Arc<str>>, now: Instant) -> Change {
        let change = self.change(set, removed, now, ReadExtent::Partial);
        if self.complete { change } else { Change::Unchanged }
    }

    /// Notes that something of the product's, by its name there, cannot be used although it belongs to no service, or to one that goes on
    /// without it; `None` when it can be again. It is logged with the next answer that is taken.
    pub fn note(&mut self, id: &Arc<str>, problem: Option<Arc<str>>) {
        self.problems.note_item(id, problem);
    }

    /// What is wrong with what the product has.
    #[must_use]
    pub fn problems(&self) -> CatalogProblems {
        self.problems.view()
    }

    /// The answer that waits for a second one.
    #[must_use]
    pub fn held(&self) -> Option<HeldLoss> {
        self.guard.held()
    }

    /// Takes the next full answer as the second one: an operator accepts what is held back.
    pub fn accept(&mut self, now: Instant) {
        self.guard.accept(now);
    }

    /// The registry whose catalog this is.
    #[must_use]
    pub fn shard(&self) -> &ShardKey {
        self.converter.shard()
    }

    fn change(
        &mut self,
        set: Vec<CatalogService>,
        removed: Vec<Arc<str>>,
        now: Instant,
        extent: ReadExtent,
    ) -> Change {
        let mut differing: BTreeMap<Arc<str>, Option<Arc<Converted>>> =
            removed.into_iter().filter(|id| self.entries.contains_key(id)).map(|id| (id, None)).collect();
        for service in set {
            let id = service.id.clone();
            let before = self.entries.get(&id);
            let converted = self.converter.convert(service, before.map(|known| &**known));
            if before.is_none_or(|before| **before != converted) {
                differing.insert(id, Some(Arc::new(converted)));
            } else {
                differing.remove(&id);
            }
        }
        let after = self.limit(&mut differing);
        let kept = self.totals.usable.saturating_sub(self.lost(&differing));
        let verdict = self.guard.judge(self.totals.usable, kept, now, extent);
        if let LossVerdict::Hold(held) = verdict {
            return Change::Held(held);
        }
        self.totals = after;
        let batch = self.take(differing);
        if batch.is_empty() { Change::Unchanged } else { Change::Batch(batch) }
    }

    /// Number of usable endpoints that services lose, whichever others gain. Within one service, endpoints replace each other
    /// all the time.
    fn lost(&self, differing: &BTreeMap<Arc<str>, Option<Arc<Converted>>>) -> usize {
        let lost = |(id, now): (&Arc<str>, &Option<Arc<Converted>>)| {
            let before = self.entries.get(id).map_or(0, |before| before.usable);
            before.saturating_sub(now.as_ref().map_or(0, |now| now.usable))
        };
        differing.iter().map(lost).sum()
    }

    /// Leaves out new services beyond the limits, and returns the sums with the rest.
    fn limit(&mut self, differing: &mut BTreeMap<Arc<str>, Option<Arc<Converted>>>) -> Totals {
        let (mut services, mut totals) = (self.entries.len(), self.totals);
        for id in differing.keys() {
            if let Some(before) = self.entries.get(id) {
                services -= 1;
                totals.usable -= before.usable;
                totals.instances -= before.instances;
            }
        }
        let mut over = Vec::new();
        for (id, converted) in differing.iter() {
            let Some(converted) = converted else { continue };
            let instances = totals.instances + converted.instances;
            if services == MAX_SERVICES || instances > MAX_INSTANCES {
                over.push(id.clone());
                continue;
            }
            services += 1;
            totals.usable += converted.usable;
            totals.instances = instances;
        }
        for id in &over {
            differing.insert(id.clone(), None);
        }
        self.problems.over_limit(over.len());
        totals
    }

    /// Makes the entries so, and returns what differs from what was sent.
    fn take(&mut self, differing: BTreeMap<Arc<str>, Option<Arc<Converted>>>) -> RegistryBatch {
        let mut touched = BTreeSet::new();
        for (id, converted) in differing {
            if let Some(content) = self.entries.remove(&id).and_then(|before| before.content.clone()) {
                self.disown(&content.key, &id);
                touched.insert(content.key.clone());
            }
            self.problems.set(&id, converted.as_ref().map_or(&[], |converted| &converted.problems));
            let Some(converted) = converted else { continue };
            if let Some(content) = &converted.content {
                self.owners.entry(content.key.clone()).or_default().insert(id.clone());
                touched.insert(content.key.clone());
            }
            self.entries.insert(id, converted);
        }
        let batch = self.publish(touched);
        self.problems.log(self.converter.shard());
        batch
    }

    fn disown(&mut self, key: &ServiceKey, id: &Arc<str>) {
        if let Some(owners) = self.owners.get_mut(key) {
            owners.remove(id);
            if owners.is_empty() {
                self.owners.remove(key);
            }
        }
    }

    /// Sends what the first owner of each host has, as far as it differs. What is gone comes first: a service may have moved from one
    /// host to another with its workloads.
    fn publish(&mut self, touched: BTreeSet<ServiceKey>) -> RegistryBatch {
        let mut batch = RegistryBatch::partial();
        let mut set = Vec::new();
        for key in touched {
            let owners = self.owners.get(&key);
            self.problems.collision(&key, owners);
            let first = owners.and_then(BTreeSet::first).and_then(|id| self.entries.get(id));
            let first = first.and_then(|converted| converted.content.clone());
            let before = self.published.remove(&key);
            if let Some(before) = &before {
                before.remove(first.as_deref(), &mut batch);
            }
            set.extend(first.map(|first| (key, first, before)));
        }
        for (key, first, before) in set {
            first.set(before.as_deref(), &mut batch);
            self.published.insert(key, first);
        }
        batch
    }
}

#[cfg(test)]
mod tests;
