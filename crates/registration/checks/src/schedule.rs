//! Schedule and results of all checks: a state machine without IO.

use crate::{CheckSettings, Machine, Outcome, Verdict};
use pilotfish_registration::{Check, Instance, InstanceKey, Record, RecordState};
use pilotfish_runtime::{DeadlineQueue, Jitter};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// First checks of instances that come together are spread over this time, or over their interval where that
/// is shorter.
const FIRST: Duration = Duration::from_secs(1);
/// Maximum jitter as a fraction of an interval, so that the checks of a fleet do not synchronize.
const SPREAD: f64 = 0.05;

/// Checked instances with their due times and results.
#[derive(Debug)]
pub struct Schedule {
    settings: CheckSettings,
    jitter: Jitter,
    instances: HashMap<InstanceKey, Entry>,
    due: DeadlineQueue<(InstanceKey, usize)>,
    /// Number of checks of each address.
    addresses: HashMap<IpAddr, usize>,
    /// Unchecked instances that wait because the limit of all checks is reached.
    waiting: BTreeSet<InstanceKey>,
    /// Unchecked instances that wait because the limit of their address is reached.
    waiting_of: HashMap<IpAddr, BTreeSet<InstanceKey>>,
    checks: usize,
    running: usize,
    /// Distinguishes an instance from an earlier one of the same name.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    record: Arc<Record>,
    generation: u64,
    /// One for each check. Empty if the instance is not checked.
    machines: Vec<Machine>,
    refusal: Option<Refusal>,
    /// Last published state: true if the instance passes.
    told: Option<bool>,
}

impl Entry {
    /// Returns the verdict of the published state.
    fn verdict(&self) -> Option<Verdict> {
        let passes = self.told?;
        let failing = self.machines.iter().position(|machine| machine.passes() == Some(false));
        let failure = failing.filter(|_| !passes).and_then(|index| {
            let (check, machine) = (self.record.instance.checks.get(index)?, self.machines.get(index)?);
            Some(describe(check, machine.reason().map_or("", |reason| reason)).into())
        });
        Some(Verdict { key: self.record.instance.key.clone(), revision: self.record.revision, failure })
    }
}

/// Reason for not checking an instance. It counts as one without checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// Its address is not allowed, see [`crate::Networks`].
    Address,
    /// A check names a port that the instance does not have.
    Port,
    /// The limit of checks of one address is reached.
    AddressLimit,
    /// The limit of all checks is reached.
    Limit,
}

/// A check that is due now.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Identifies the check when its result is returned.
    pub ticket: Ticket,
    /// The instance's own address and port.
    pub target: SocketAddr,
    pub check: Check,
}

/// Reference to one check of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    key: InstanceKey,
    generation: u64,
    index: usize,
}

impl Schedule {
    #[must_use]
    pub fn new(settings: CheckSettings, jitter: Jitter) -> Self {
        Self {
            settings,
            jitter,
            instances: HashMap::new(),
            due: DeadlineQueue::default(),
            addresses: HashMap::new(),
            waiting: BTreeSet::new(),
            waiting_of: HashMap::new(),
            checks: 0,
            running: 0,
            generation: 0,
        }
    }

    /// Sets a record. Results are kept if address, ports and checks are unchanged. Returns the verdict to
    /// publish for the new revision.
    pub fn set(&mut self, record: Arc<Record>, now: Instant) -> Option<Verdict> {
        let (key, revision) = (record.instance.key.clone(), record.revision);
        if let Some(entry) = self.instances.get_mut(&key)
            && asks_the_same(&entry.record, &record)
        {
            let is_new = entry.record.revision != revision;
            entry.record = record;
            return entry.verdict().filter(|_| is_new);
        }
        let before = self.take_out(&key);
        if record.state == RecordState::Serving && !record.instance.checks.is_empty() {
            self.put_in(record, now);
        }
        let before = before?;
        self.admit(&before, now);
        // The new checks have no result yet.
        (before.told == Some(false)).then_some(Verdict { key, revision, failure: None })
    }

    pub fn remove(&mut self, key: &InstanceKey, now: Instant) {
        if let Some(entry) = self.take_out(key) {
            self.admit(&entry, now);
        }
    }

    /// Returns the next due time; `None` if nothing is scheduled or the limit of concurrent probes is
    /// reached.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.due.next().filter(|_| self.running < self.settings.at_once)
    }

    /// Returns a due probe. Its result must be returned with [`Self::finish`].
    pub fn start(&mut self, now: Instant) -> Option<Probe> {
        while self.running < self.settings.at_once {
            let (key, index) = self.due.pop_due(now)?;
            let Some(entry) = self.instances.get(&key) else { continue };
            let Some(check) = entry.record.instance.checks.get(index) else { continue };
            let Some(target) = target(&entry.record.instance, check) else { continue };
            self.running += 1;
            let ticket = Ticket { key, generation: entry.generation, index };
            return Some(Probe { ticket, target, check: check.clone() });
        }
        None
    }

    /// Adds a result. Returns the verdict to publish if the state of the instance changed.
    pub fn finish(&mut self, ticket: Ticket, outcome: Outcome, now: Instant) -> Option<Verdict> {
        self.running = self.running.saturating_sub(1);
        let Ticket { key, generation, index } = ticket;
        let entry = self.instances.get_mut(&key).filter(|entry| entry.generation == generation)?;
        let check = entry.record.instance.checks.get(index)?;
        let machine = entry.machines.get_mut(index)?;
        let spread = 1.0 + SPREAD * (2.0 * self.jitter.fraction() - 1.0);
        self.due.set((key.clone(), index), now + check.interval.mul_f64(spread));
        if !machine.take(outcome, check) {
            return None;
        }
        let passes = entry.machines.iter().all(|machine| machine.passes() != Some(false));
        if entry.told == Some(passes) || (entry.told.is_none() && passes) {
            entry.told = Some(passes);
            return None;
        }
        entry.told = Some(passes);
        entry.verdict()
    }

    #[must_use]
    pub const fn checks(&self) -> usize {
        self.checks
    }

    /// Number of probes in flight.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.running
    }

    /// Number of failing instances.
    #[must_use]
    pub fn failing(&self) -> usize {
        self.instances.values().filter(|entry| entry.told == Some(false)).count()
    }

    /// Returns the verdicts of failing instances.
    pub fn failures(&self) -> impl Iterator<Item = Verdict> {
        self.instances.values().filter(|entry| entry.told == Some(false)).filter_map(Entry::verdict)
    }

    /// Returns unchecked instances and the reason.
    pub fn refused(&self) -> impl Iterator<Item = (&InstanceKey, Refusal)> {
        self.instances.iter().filter_map(|(key, entry)| Some((key, entry.refusal?)))
    }

    fn put_in(&mut self, record: Arc<Record>, now: Instant) {
        self.generation += 1;
        let instance = &record.instance;
        let (key, count) = (instance.key.clone(), instance.checks.len());
        let refusal = self.refusal(instance);
        let machines = if refusal.is_none() { vec![Machine::default(); count] } else { Vec::new() };
        match refusal {
            None => {
                self.checks += count;
                if let Some(address) = instance.addresses.first() {
                    *self.addresses.entry(*address).or_default() += count;
                }
                for (index, check) in instance.checks.iter().enumerate() {
                    let spread = check.interval.min(FIRST).mul_f64(self.jitter.fraction());
                    self.due.set((key.clone(), index), now + spread);
                }
            }
            Some(Refusal::Limit) => {
                self.waiting.insert(key.clone());
            }
            Some(Refusal::AddressLimit) => {
                if let Some(address) = instance.addresses.first() {
                    self.waiting_of.entry(*address).or_default().insert(key.clone());
                }
            }
            Some(Refusal::Address | Refusal::Port) => {}
        }
        let entry = Entry { record, generation: self.generation, machines, refusal, told: None };
        self.instances.insert(key, entry);
    }

    /// Removes an instance and its checks from all indexes.
    fn take_out(&mut self, key: &InstanceKey) -> Option<Entry> {
        let entry = self.instances.remove(key)?;
        let count = entry.machines.len();
        for index in 0..count {
            self.due.remove(&(key.clone(), index));
        }
        self.checks -= count;
        self.waiting.remove(key);
        if let Some(address) = entry.record.instance.addresses.first() {
            if let Some(waiting) = self.waiting_of.get_mut(address) {
                waiting.remove(key);
                if waiting.is_empty() {
                    self.waiting_of.remove(address);
                }
            }
            if let Some(of_address) = self.addresses.get_mut(address) {
                *of_address -= count;
                if *of_address == 0 {
                    self.addresses.remove(address);
                }
            }
        }
        Some(entry)
    }

    /// Schedules instances that waited for the limits that this one held.
    fn admit(&mut self, gone: &Entry, now: Instant) {
        if gone.machines.is_empty() {
            return;
        }
        if let Some(address) = gone.record.instance.addresses.first() {
            while let Some(key) = self.waiting_of.get(address).and_then(BTreeSet::first).cloned() {
                if self.try_again(&key, now).is_some() {
                    break;
                }
            }
        }
        while let Some(key) = self.waiting.first().cloned() {
            if self.try_again(&key, now) == Some(Refusal::Limit) {
                break;
            }
        }
    }

    /// Tries to schedule a waiting instance.
    fn try_again(&mut self, key: &InstanceKey, now: Instant) -> Option<Refusal> {
        let entry = self.take_out(key)?;
        self.put_in(entry.record, now);
        self.instances.get(key).and_then(|entry| entry.refusal)
    }

    fn refusal(&self, instance: &Instance) -> Option<Refusal> {
        let count = instance.checks.len();
        let Some(address) = instance.addresses.first() else { return Some(Refusal::Address) };
        if !self.settings.networks.allows(*address) {
            return Some(Refusal::Address);
        }
        if instance.checks.iter().any(|check| target(instance, check).is_none()) {
            return Some(Refusal::Port);
        }
        if self.checks + count > self.settings.checks {
            return Some(Refusal::Limit);
        }
        let of_address = self.addresses.get(address).copied().unwrap_or_default();
        (of_address + count > self.settings.address_checks).then_some(Refusal::AddressLimit)
    }
}

/// Returns the target of a check: the primary address and to one of the instance's ports, by default the
/// first.
fn target(instance: &Instance, check: &Check) -> Option<SocketAddr> {
    let port = instance.ports.iter().find(|port| check.port.is_none_or(|number| number == port.number))?;
    Some(SocketAddr::new(*instance.addresses.first()?, port.number.get()))
}

fn asks_the_same(before: &Record, now: &Record) -> bool {
    if before.state != now.state {
        return false;
    }
    let (before, now) = (&before.instance, &now.instance);
    let ports = |instance: &Instance| instance.ports.iter().map(|port| port.number).collect::<Vec<_>>();
    before.checks == now.checks
        && before.addresses.first() == now.addresses.first()
        && ports(before) == ports(now)
}

fn describe(check: &Check, reason: &str) -> String {
    use pilotfish_registration::CheckKind::{Grpc, Http, Tcp};
    let kind = match check.kind {
        Http { .. } => "HTTP",
        Tcp => "TCP",
        Grpc { .. } => "gRPC",
    };
    format!("{kind} check: {reason}")
}

#[cfg(test)]
mod tests;
