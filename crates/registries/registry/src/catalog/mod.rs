//! Content of a registry with a source of its own, as described by its product, and its conversion to the
//! model.
//!
//! ```text
//! product's answer ─ its crate maps ─▶ CatalogService ─ Catalog: names, limits, guard, diff ─▶ RegistryBatch
//! ```
//!
//! A registry only maps its product's answers to [`CatalogService`]s. The catalog handles names that are no
//! host names or labels, colliding services, ports without a protocol, answers without changes, and answers
//! that lose suspiciously many endpoints, in the same way for all registries. It is a state machine without
//! IO and clocks.

mod convert;
mod entry;
mod names;
mod options;
mod problems;

pub use entry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
pub use names::hostname;
pub use options::{CATALOG_OPTIONS, CatalogDefaults, CatalogOptions, GUARD_OPTION, GUARD_WAIT_OPTION};
pub use problems::CatalogProblems;

use crate::live::RegistryBatch;
use convert::{Content, Converted, Converter};
use pilotfish_model::{ServiceKey, ShardKey};
use pilotfish_runtime::{HeldLoss, LossGuard, LossVerdict, ReadExtent};
use problems::Problems;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Limit on the services of a registry. Further ones, in the order of their ids, are left out.
pub const MAX_SERVICES: usize = 100_000;
/// Limit on the instances of a registry.
pub const MAX_INSTANCES: usize = 1_000_000;

/// Content of a registry, and the part of it that was sent.
pub struct Catalog {
    converter: Converter,
    guard: LossGuard,
    /// Converted services by the product's ids.
    entries: BTreeMap<Arc<str>, Arc<Converted>>,
    /// Ids of the services by host. The first id is published, the others collide.
    owners: BTreeMap<ServiceKey, BTreeSet<Arc<str>>>,
    /// Content as it was sent.
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

/// Result of an answer.
#[derive(Debug)]
pub enum Change {
    /// Differences that must be sent.
    Batch(RegistryBatch),
    Unchanged,
    /// The answer would lose too many endpoints. The previous state stays in force until a second answer,
    /// from a full read after [`HeldLoss::until`], confirms it.
    Held(HeldLoss),
}

impl Catalog {
    /// Returns an empty catalog.
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

    /// Applies a complete answer: services that it lacks are removed.
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

    /// Applies an answer about some services: complete values in `set`, and removed ids. Before the first
    /// [`Catalog::replace`] the services are stored but not sent.
    pub fn apply(&mut self, set: Vec<CatalogService>, removed: Vec<Arc<str>>, now: Instant) -> Change {
        let change = self.change(set, removed, now, ReadExtent::Partial);
        if self.complete { change } else { Change::Unchanged }
    }

    /// Sets or clears the problem of an entry of the product, by its name there, that does not keep a service
    /// from being used. It is logged with the next answer that is applied.
    pub fn note(&mut self, id: &Arc<str>, problem: Option<Arc<str>>) {
        self.problems.note_item(id, problem);
    }

    /// Returns the problems of the product's entries.
    #[must_use]
    pub fn problems(&self) -> CatalogProblems {
        self.problems.view()
    }

    /// Returns the loss that waits for its confirmation.
    #[must_use]
    pub fn held(&self) -> Option<HeldLoss> {
        self.guard.held()
    }

    /// Accepts the held loss on behalf of an operator: the next complete answer confirms it.
    pub fn accept(&mut self, now: Instant) {
        self.guard.accept(now);
    }

    /// Returns the shard of the registry.
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

    /// Number of usable endpoints that services lose, not offset by gains of other services. Within one
    /// service, replaced endpoints are not a loss.
    fn lost(&self, differing: &BTreeMap<Arc<str>, Option<Arc<Converted>>>) -> usize {
        let lost = |(id, now): (&Arc<str>, &Option<Arc<Converted>>)| {
            let before = self.entries.get(id).map_or(0, |before| before.usable);
            before.saturating_sub(now.as_ref().map_or(0, |now| now.usable))
        };
        differing.iter().map(lost).sum()
    }

    /// Leaves out new services beyond the limits; returns the sums with the others.
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

    /// Stores the entries, and returns the differences from the content that was sent.
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
        self.problems.log();
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

    /// Returns the differences for the first owner of each host. Removals precede additions, because a
    /// service may have moved from one host to another with its workloads.
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
