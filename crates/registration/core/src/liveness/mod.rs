//! Liveness: removal of instances whose lease lapsed or whose drain time is over, and self-preservation.
//!
//! A state machine without IO: events with their time go in, verdicts on lapses and removals come out. Time
//! is that of a [`RunningClock`](crate::clock::RunningClock), so that suspending the process removes no
//! instance.

mod preservation;
mod service;
#[cfg(test)]
mod tests;

use crate::{InstanceKey, Record, RecordState, ServiceKey};
use service::LeasedService;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Settings of removals and of self-preservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivenessSettings {
    /// Time from the lapse of an instance to its removal; it is unhealthy meanwhile. `None`: twice its TTL,
    /// at least 10 s.
    pub remove_after: Option<Duration>,
    /// Enables self-preservation: if most leases of a service lapse together, the lapses are ignored.
    pub preservation: bool,
    /// Time within which lapses count as together; at least the TTL of the lease.
    pub preservation_window: Duration,
    /// Maximum duration of self-preservation.
    pub preservation_time: Duration,
}

impl Default for LivenessSettings {
    fn default() -> Self {
        Self {
            remove_after: None,
            preservation: true,
            preservation_window: Duration::from_secs(30),
            preservation_time: Duration::from_secs(15 * 60),
        }
    }
}

impl LivenessSettings {
    fn remove_after(&self, ttl: Duration) -> Duration {
        self.remove_after.unwrap_or((ttl * 2).max(Duration::from_secs(10)))
    }

    fn window(&self, ttl: Duration) -> Duration {
        self.preservation_window.max(ttl)
    }
}

/// A decision of liveness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The lease has lapsed or was renewed; a `preserved` lapse is ignored.
    Lapsed { key: InstanceKey, lapsed: bool, preserved: bool },
    /// Remove the record, if it still has this revision.
    Remove { key: InstanceKey, revision: u64 },
    /// Self-preservation of a service begins, with the numbers of lapsed and all leases.
    Preserving { service: ServiceKey, lapsed: usize, leased: usize },
    /// Self-preservation of a service ends: because most leases were renewed, or after its maximum duration.
    Preserved { service: ServiceKey, is_overdue: bool },
}

/// Retry interval of a removal.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Remove(InstanceKey),
    Release(ServiceKey),
}

/// State of leases and drains.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    settings: LivenessSettings,
    services: HashMap<ServiceKey, LeasedService>,
    /// Pending removals, with their time and revision.
    removals: HashMap<InstanceKey, Removal>,
    due: BTreeSet<(Duration, Due)>,
}

#[derive(Clone, Copy, Debug)]
struct Removal {
    at: Duration,
    revision: u64,
}

impl Liveness {
    pub(crate) fn new(settings: LivenessSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Forgets everything, for a reset of the store.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.settings);
    }

    /// Handles a created, changed or removed record. Its lease, if it has one, has not lapsed.
    pub(crate) fn changed(
        &mut self,
        key: &InstanceKey,
        before: Option<&Record>,
        after: Option<&Record>,
        now: Duration,
    ) -> Vec<Verdict> {
        self.cancel(key);
        let (had, has) = (before.and_then(Record::lease).is_some(), after.and_then(Record::lease).is_some());
        let verdicts = if had || has { self.update(key, had, has, now) } else { Vec::new() };
        if let Some(record) = after.filter(|record| record.state == RecordState::Draining) {
            self.schedule(key.clone(), now + record.instance.drain, record.revision);
        }
        verdicts
    }

    fn update(&mut self, key: &InstanceKey, had: bool, has: bool, now: Duration) -> Vec<Verdict> {
        let name = key.service_key();
        let service = self.services.entry(name.clone()).or_default();
        service.leased = service.leased + usize::from(has) - usize::from(had);
        service.forget(&key.id);
        let verdicts = self.recover(&name, now);
        if self.services.get(&name).is_some_and(|service| service.leased == 0) {
            self.services.remove(&name);
        }
        verdicts
    }

    /// Handles the lapse of a lease.
    pub(crate) fn lapsed(&mut self, record: &Record, now: Duration) -> Vec<Verdict> {
        let key = &record.instance.key;
        let Some(ttl) = record.lease() else { return Vec::new() };
        let name = key.service_key();
        let Some(service) = self.services.get_mut(&name) else { return Vec::new() };
        let remove_after = record.instance.remove_after.unwrap_or_else(|| self.settings.remove_after(ttl));
        let lapse =
            service::Lapse { at: now, ttl, remove_after, revision: record.revision, is_released: false };
        service.lapsed.insert(key.id.clone(), lapse);
        if service.preserving.is_some() {
            service.preserved.insert(key.id.clone());
            let mut verdicts = self.recover(&name, now);
            verdicts.push(Verdict::Lapsed { key: key.clone(), lapsed: true, preserved: true });
            return verdicts;
        }
        if self.settings.preservation && service.is_implausible(now, &self.settings) {
            return self.preserve(&name, now);
        }
        self.schedule(key.clone(), now + lapse.remove_after, record.revision);
        vec![Verdict::Lapsed { key: key.clone(), lapsed: true, preserved: false }]
    }

    /// Handles the renewal of a lapsed lease.
    pub(crate) fn renewed(&mut self, key: &InstanceKey, now: Duration) -> Vec<Verdict> {
        let name = key.service_key();
        let Some(service) = self.services.get_mut(&name) else { return Vec::new() };
        if !service.forget(&key.id) {
            return Vec::new();
        }
        self.cancel(key);
        let mut verdicts = vec![Verdict::Lapsed { key: key.clone(), lapsed: false, preserved: false }];
        verdicts.extend(self.recover(&name, now));
        verdicts
    }

    /// Returns at most `most` due verdicts. A removal is repeated at intervals until the record is removed.
    pub(crate) fn due(&mut self, now: Duration, most: usize) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        while verdicts.len() < most {
            let Some((at, _)) = self.due.first() else { break };
            if *at > now {
                break;
            }
            match self.due.pop_first() {
                Some((_, Due::Release(service))) => verdicts.extend(self.release(&service, now)),
                Some((_, Due::Remove(key))) => {
                    let Some(removal) = self.removals.get(&key).copied() else { continue };
                    self.schedule(key.clone(), now + RETRY, removal.revision);
                    verdicts.push(Verdict::Remove { key, revision: removal.revision });
                }
                None => break,
            }
        }
        verdicts
    }

    fn schedule(&mut self, key: InstanceKey, at: Duration, revision: u64) {
        self.cancel(&key);
        self.due.insert((at, Due::Remove(key.clone())));
        self.removals.insert(key, Removal { at, revision });
    }

    fn cancel(&mut self, key: &InstanceKey) {
        if let Some(removal) = self.removals.remove(key) {
            self.due.remove(&(removal.at, Due::Remove(key.clone())));
        }
    }
}
