//! Statistics for metrics and status.

use super::state::Shared;
use super::{Deregistered, Registered, Registrar, RegistrarError, RenewalError};
use crate::{Counts, ServiceKey};
use std::sync::atomic::{AtomicU64, Ordering};

/// Current state, and counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrarStats {
    /// Numbers of instances, services and owners.
    pub counts: Counts,
    /// The revision of the store.
    pub revision: u64,
    /// True once the store was read.
    pub is_ready: bool,
    /// Reason that the store is unreachable.
    pub disconnected: Option<String>,
    /// Number of instances whose removal the store could not record yet.
    pub withdrawn: usize,
    /// Services that are in self-preservation now.
    pub preserving: Vec<ServiceKey>,
    /// Number of open watches.
    pub watches: usize,
    /// Number of changes in the history of watches.
    pub history_events: usize,
    /// Approximate bytes of these changes.
    pub history_bytes: usize,
    /// Registrations that changed a record.
    pub registered: u64,
    /// Registrations of identical records.
    pub registered_again: u64,
    /// Registrations that were refused or failed.
    pub register_errors: u64,
    pub renewed: u64,
    /// Renewals that were refused or failed.
    pub renew_errors: u64,
    /// Deregistrations, including those of instances that were not registered.
    pub deregistered: u64,
    /// Deregistrations that were refused or failed.
    pub deregister_errors: u64,
    /// Number of lapsed leases.
    pub lapsed: u64,
    /// Records removed after their lease had lapsed, or their drain time was over.
    pub expired: u64,
    /// Number of times that self-preservation began.
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
    /// Returns the current statistics.
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
