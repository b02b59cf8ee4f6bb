//! Figures for metrics and status.

use super::state::Shared;
use super::{Deregistered, Registered, Registrar, RegistrarError, RenewalError};
use crate::{Counts, ServiceKey};
use std::sync::atomic::{AtomicU64, Ordering};

/// What happened since the start, and what there is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrarStats {
    /// Instances, services and owners.
    pub counts: Counts,
    /// The revision of the store.
    pub revision: u64,
    /// Whether the store was read.
    pub is_ready: bool,
    /// Why the store cannot be reached.
    pub disconnected: Option<String>,
    /// Instances whose removal the store could not record yet.
    pub withdrawn: usize,
    /// Services whose lapsed leases are not believed.
    pub preserving: Vec<ServiceKey>,
    /// Watches that are open.
    pub watches: usize,
    /// Changes in the history of watches.
    pub history_events: usize,
    /// About their bytes.
    pub history_bytes: usize,
    /// Registrations that changed something.
    pub registered: u64,
    /// Registrations of what was there.
    pub registered_again: u64,
    /// Registrations that were refused or failed.
    pub register_errors: u64,
    /// Renewals.
    pub renewed: u64,
    /// Renewals that were refused or failed.
    pub renew_errors: u64,
    /// Deregistrations, those of what was not there included.
    pub deregistered: u64,
    /// Deregistrations that were refused or failed.
    pub deregister_errors: u64,
    /// Leases that lapsed.
    pub lapsed: u64,
    /// Records that were removed because their lease had lapsed, or their grace time was over.
    pub expired: u64,
    /// How often lapses of a service were not believed.
    pub preservations: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    registered: AtomicU64,
    registered_again: AtomicU64,
    register_errors: AtomicU64,
    renewed: AtomicU64,
    renew_errors: AtomicU64,
    deregistered: AtomicU64,
    deregister_errors: AtomicU64,
    pub(super) lapsed: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) preservations: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn registrations(&self, answers: &[Result<Registered, RegistrarError>]) {
        let good = answers.iter().flatten();
        add(&self.registered, good.clone().filter(|answer| answer.changed).count());
        add(&self.registered_again, good.clone().filter(|answer| !answer.changed).count());
        add(&self.register_errors, answers.len() - good.count());
    }

    pub(super) fn renewals(&self, answers: &[Result<(), RenewalError>]) {
        let good = answers.iter().flatten().count();
        add(&self.renewed, good);
        add(&self.renew_errors, answers.len() - good);
    }

    pub(super) fn deregistrations(&self, answers: &[Result<Deregistered, RegistrarError>]) {
        let good = answers.iter().flatten().count();
        add(&self.deregistered, good);
        add(&self.deregister_errors, answers.len() - good);
    }
}

impl Registrar {
    /// What happened since the start, and what there is now.
    #[must_use]
    pub fn stats(&self) -> RegistrarStats {
        let Shared { state, counters, .. } = &*self.shared;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let state = state.read();
        RegistrarStats {
            counts: state.directory.counts(),
            revision: state.directory.revision(),
            is_ready: state.is_ready,
            disconnected: state.disconnected.clone(),
            withdrawn: state.withdrawn.len(),
            preserving: state.liveness.preserving(),
            watches: state.watchers.len(),
            history_events: state.history.len(),
            history_bytes: state.history.bytes(),
            registered: read(&counters.registered),
            registered_again: read(&counters.registered_again),
            register_errors: read(&counters.register_errors),
            renewed: read(&counters.renewed),
            renew_errors: read(&counters.renew_errors),
            deregistered: read(&counters.deregistered),
            deregister_errors: read(&counters.deregister_errors),
            lapsed: read(&counters.lapsed),
            expired: read(&counters.expired),
            preservations: read(&counters.preservations),
        }
    }
}
