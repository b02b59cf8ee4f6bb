//! Leases in memory: which instances were renewed in time.

#[cfg(test)]
mod tests;

use crate::InstanceKey;
use crate::clock::RunningClock;
use slab::Slab;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Leases by instance, for stores that keep them in memory.
///
/// Renewing is a lookup and a number: what is due is found when the old deadline comes, once in a TTL for each lease. Deadlines are in
/// [ticks](LeaseTable::TICK) of a [`RunningClock`], so our own pauses and wall clocks expire nobody. A lease lapses between its TTL and four
/// ticks later, in running time.
#[derive(Debug)]
pub struct LeaseTable {
    clock: RunningClock,
    by_key: HashMap<InstanceKey, usize>,
    leases: Slab<Lease>,
    /// Leases by the tick at which to look at them. A lapsed one is not here.
    due: BTreeSet<(u64, usize)>,
    events: Vec<LeaseEvent>,
    lapsed: usize,
}

#[derive(Debug)]
struct Lease {
    key: InstanceKey,
    ttl: u32,
    deadline: u64,
    /// Its place in `due`; `None` for lapsed.
    due: Option<u64>,
}

/// What happened to a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// It was not renewed in time. It is kept until [`LeaseTable::end`].
    Lapsed(InstanceKey),
    /// It had lapsed and was renewed.
    Renewed(InstanceKey),
}

impl LeaseTable {
    /// How exact leases are.
    pub const TICK: Duration = Duration::from_millis(100);

    /// No leases.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            clock: RunningClock::new(now),
            by_key: HashMap::new(),
            leases: Slab::new(),
            due: BTreeSet::new(),
            events: Vec::new(),
            lapsed: 0,
        }
    }

    /// Begins a lease, or begins it anew with that TTL. A lapsed one is renewed without an event: who writes a record tells of it.
    /// Returns whether it had lapsed.
    pub fn start(&mut self, key: &InstanceKey, ttl: Duration) -> bool {
        let ttl = ticks(ttl).try_into().unwrap_or(u32::MAX);
        let deadline = self.deadline(ttl);
        if let Some(&index) = self.by_key.get(key) {
            let Some(lease) = self.leases.get_mut(index) else { return false };
            lease.ttl = ttl;
            lease.deadline = deadline;
            let before = lease.due;
            // A shorter TTL can be due before the table would look.
            if before.is_none_or(|due| due > deadline) {
                lease.due = Some(deadline);
                before.map(|due| self.due.remove(&(due, index)));
                self.due.insert((deadline, index));
            }
            self.lapsed -= usize::from(before.is_none());
            return before.is_none();
        }
        let index = self.leases.insert(Lease { key: key.clone(), ttl, deadline, due: Some(deadline) });
        self.by_key.insert(key.clone(), index);
        self.due.insert((deadline, index));
        false
    }

    /// Begins a lease anew. False when there is none.
    pub fn renew(&mut self, key: &InstanceKey) -> bool {
        let Some(&index) = self.by_key.get(key) else { return false };
        let now = ticks(self.clock.running());
        let Some(lease) = self.leases.get_mut(index) else { return false };
        lease.deadline = deadline(now, lease.ttl);
        if lease.due.is_none() {
            lease.due = Some(lease.deadline);
            self.due.insert((lease.deadline, index));
            self.lapsed -= 1;
            self.events.push(LeaseEvent::Renewed(lease.key.clone()));
        }
        true
    }

    /// Forgets a lease.
    pub fn end(&mut self, key: &InstanceKey) {
        let Some(index) = self.by_key.remove(key) else { return };
        match self.leases.try_remove(index).and_then(|lease| lease.due) {
            Some(due) => {
                self.due.remove(&(due, index));
            }
            None => self.lapsed -= 1,
        }
    }

    /// Moves the clock on, at the [cadence](RunningClock::CADENCE) of such clocks.
    pub fn tick(&mut self, now: Instant) {
        self.clock.advance(now);
    }

    /// Moves the clock on and does what [`LeaseTable::lapse`] does.
    pub fn advance(&mut self, now: Instant, most: usize) -> bool {
        self.tick(now);
        self.lapse(most)
    }

    /// Lets lapse what was not renewed in time; at most `most` leases are looked at. True if more are due.
    pub fn lapse(&mut self, most: usize) -> bool {
        let now = ticks(self.clock.running());
        for _ in 0..most {
            let Some(&(due, index)) = self.due.first() else { return false };
            if due > now {
                return false;
            }
            self.due.pop_first();
            let Some(lease) = self.leases.get_mut(index) else { continue };
            if lease.deadline > now {
                lease.due = Some(lease.deadline);
                self.due.insert((lease.deadline, index));
            } else {
                lease.due = None;
                self.lapsed += 1;
                self.events.push(LeaseEvent::Lapsed(lease.key.clone()));
            }
        }
        self.due.first().is_some_and(|(due, _)| *due <= now)
    }

    /// What happened since the last call, in its order.
    pub fn take_events(&mut self) -> Vec<LeaseEvent> {
        std::mem::take(&mut self.events)
    }

    /// How many leases there are, lapsed ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there are no leases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// How many of them have lapsed.
    #[must_use]
    pub fn lapsed(&self) -> usize {
        self.lapsed
    }

    fn deadline(&self, ttl: u32) -> u64 {
        deadline(ticks(self.clock.running()), ttl)
    }
}

/// The clock is up to a tick behind, a deadline is the beginning of a tick, and the step that a short freeze falls into counts up to
/// a tick too much: never early takes three of them.
fn deadline(now: u64, ttl: u32) -> u64 {
    now + u64::from(ttl) + 3
}

/// Whole ticks; a part of one counts as one.
fn ticks(time: Duration) -> u64 {
    let tick = LeaseTable::TICK.as_millis();
    time.as_millis().div_ceil(tick).try_into().unwrap_or(u64::MAX)
}
