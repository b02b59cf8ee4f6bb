//! Updates of the world, computed from the registries' state for everything that was touched.

use super::entry::{RegistryState, Touched};
use super::merge::{self, Conflict};
use super::{AggregateController, MergePolicy, RegistryEntry};
use pilotfish_model::{NetworkGateway, Provider, ServiceKey, ShardKey, Update};
use std::collections::BTreeSet;
use std::sync::Arc;

impl AggregateController {
    /// Adds the updates for everything that was touched.
    pub(super) fn emit(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        self.touch_imported(&mut touched);
        let mut log = ConflictLog { silent: self.trying, lines: 0 };
        for key in std::mem::take(&mut touched.services) {
            self.note_conflicts(&key, &mut log);
            self.emit_services(key, &mut touched);
        }
        log.finish();
        for (key, shard) in touched.endpoints {
            let update = match self.endpoints_in_force(&key, &shard) {
                Some(endpoints) => Update::Endpoints(key, shard, endpoints),
                None => Update::RemoveShard(key, shard),
            };
            self.updates.push(update);
        }
        for (key, _) in touched.workloads {
            let workload = self.entries.values().find_map(|entry| entry.state.workloads.get(&key));
            self.updates.push(match workload {
                Some(workload) => Update::Workload(workload.clone()),
                None => Update::RemoveWorkload(key),
            });
        }
        if touched.gateways {
            let gateways: BTreeSet<NetworkGateway> = self
                .entries
                .values()
                .flat_map(|entry| entry.state.gateways.iter().cloned())
                .chain(crate::networks::static_gateways(self.mesh.networks.as_deref()))
                .collect();
            self.updates.push(Update::NetworkGateways(gateways.into_iter().collect()));
        }
    }

    /// Marks imported hosts as touched: a change of a Service changes the host that is, or was, its alias.
    fn touch_imported(&mut self, touched: &mut Touched) {
        self.clusterset.touch(touched);
        for host in std::mem::take(&mut touched.imports) {
            let Some(service) = self.clusterset.update(&host, self.entries.values()) else { continue };
            let holders = self.entries.values().filter(|entry| entry.state.endpoints.contains_key(&service));
            touched.endpoints.extend(holders.map(|entry| (host.clone(), entry.shard().clone())));
            touched.services.insert(host);
        }
        self.clusterset.touch(touched);
    }

    fn emit_services(&mut self, key: ServiceKey, touched: &mut Touched) {
        if self.settings.merge != MergePolicy::Union {
            // Another registry may win now, and with it its endpoints.
            let owned = |entry: &&RegistryEntry| {
                entry.state.endpoints.contains_key(self.clusterset.owner(&key, entry.shard()))
            };
            let having = self.entries.values().filter(owned);
            touched.endpoints.extend(having.map(|entry| (key.clone(), entry.shard().clone())));
        }
        let only = self.only_provider(&key);
        let counts = |provider: Provider| only.is_none_or(|only| provider == only);
        let imported = self.clusterset.service(&key, self.entries.values());
        let imported = imported.filter(|imported| counts(imported.provider)).map(|one| Arc::from([one]));
        let entries = self.entries.values().filter(|entry| counts(entry.shard().provider));
        let lists = entries.filter_map(|entry| entry.state.services.get(&key));
        let merged = merge::services(imported.iter().chain(lists));
        self.updates.push(Update::Services(key, merged));
    }

    /// The registries that have a service, or import it, in order of precedence.
    fn having<'a>(&'a self, key: &'a ServiceKey) -> impl Iterator<Item = &'a ShardKey> {
        let is_imported = self.clusterset.service(key, self.entries.values()).is_some();
        let has = move |state: &RegistryState| {
            state.services.contains_key(key) || (is_imported && state.imports.contains_key(key))
        };
        self.entries.values().filter(move |entry| has(&entry.state)).map(RegistryEntry::shard)
    }

    /// The provider whose registries alone provide a service; `None` if all do.
    fn only_provider(&self, key: &ServiceKey) -> Option<Provider> {
        if self.settings.merge == MergePolicy::Union {
            return None;
        }
        self.having(key).next().map(|shard| shard.provider)
    }

    /// Endpoints of a service that one registry contributes to the world.
    fn endpoints_in_force(
        &self,
        key: &ServiceKey,
        shard: &ShardKey,
    ) -> Option<Arc<[Arc<pilotfish_model::Endpoint>]>> {
        if self.only_provider(key).is_some_and(|only| shard.provider != only) {
            return None;
        }
        let owner = self.clusterset.owner(key, shard);
        self.entries.get(&self.rank(shard))?.state.endpoints.get(owner).cloned()
    }

    /// Updates the conflicts of a service, and logs new and resolved ones.
    fn note_conflicts(&mut self, key: &ServiceKey, log: &mut ConflictLog) {
        let policy = self.settings.merge;
        let new = merge::conflicts(key, self.having(key), policy);
        let old = if new.is_empty() {
            self.conflicts.remove(key)
        } else {
            self.conflicts.insert(key.clone(), new.clone())
        };
        let old = old.unwrap_or_default();
        self.conflicts_revision += u64::from(old != new);
        for conflict in new.iter().filter(|conflict| !old.contains(conflict)) {
            log.write(|| written(conflict, policy));
        }
        if new.is_empty() && !old.is_empty() {
            log.write(
                || tracing::info!(service = %key, "only registries of one type provide the service now"),
            );
        }
    }
}

/// Maximum number of log lines on conflicts in one round of updates: two registries may share all of their
/// services.
const LOGGED: usize = 20;

/// Counter of log lines on conflicts.
struct ConflictLog {
    silent: bool,
    lines: usize,
}

impl ConflictLog {
    fn write(&mut self, line: impl FnOnce()) {
        if self.silent {
            return;
        }
        self.lines += 1;
        if self.lines <= LOGGED {
            line();
        }
    }

    fn finish(&self) {
        if self.lines > LOGGED {
            let more = self.lines - LOGGED;
            tracing::info!(
                more,
                "more service conflicts began or ended; /debug/registryz?registries=true lists them"
            );
        }
    }
}

fn written(conflict: &Conflict, policy: MergePolicy) {
    let reason = conflict.reason();
    let Conflict { service, winner, loser, .. } = conflict;
    match policy {
        MergePolicy::Refuse => {
            tracing::error!(
                %service, %winner, %loser, reason,
                "two registries provide the same service: refused"
            );
        }
        MergePolicy::Union | MergePolicy::First => {
            tracing::info!(%service, %winner, %loser, reason, "two registries provide the same service");
        }
    }
}
