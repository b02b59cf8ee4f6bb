//! Leases in memory: detects instances that were not renewed in time.

#[cfg(test)]
mod tests;

use crate::InstanceKey;
use crate::clock::RunningClock;
use slab::Slab;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Leases by instance, for stores that keep them in memory.
///
/// A renewal is a lookup and a store of a number: the order of deadlines is only updated when an old deadline
/// passes, once per TTL for each lease. Deadlines are in [ticks](LeaseTable::TICK) of a [`RunningClock`], so
/// suspensions of the process and wall-clock changes expire no lease. A lease lapses between its TTL and four
/// ticks later, in running time.
#[derive(Debug)]
pub struct LeaseTable {
    clock: RunningClock,
    by_key: HashMap<InstanceKey, usize>,
    leases: Slab<Lease>,
    /// Leases by the tick of their next check. Lapsed ones are not included.
    due: BTreeSet<(u64, usize)>,
    events: Vec<LeaseEvent>,
    lapsed: usize,
}

#[derive(Debug)]
struct Lease {
    key: InstanceKey,
    ttl: u32,
    deadline: u64,
    /// Tick in `due`; `None` if lapsed.
    due: Option<u64>,
}

/// A lapse or renewal of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// Not renewed in time. The lease is kept until [`LeaseTable::end`].
    Lapsed(InstanceKey),
    /// Renewed after a lapse.
    Renewed(InstanceKey),
}

impl LeaseTable {
    /// Resolution of the times at which leases lapse.
    pub const TICK: Duration = Duration::from_millis(100);

    /// Creates an empty table whose clock begins at `now`.
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

    /// Starts or restarts a lease with this TTL. A lapsed lease is renewed without an event, because its
    /// record's write has one. Returns true if it had lapsed.
    pub fn start(&mut self, key: &InstanceKey, ttl: Duration) -> bool {
        let ttl = ticks(ttl).try_into().unwrap_or(u32::MAX);
        let deadline = self.deadline(ttl);
        if let Some(&index) = self.by_key.get(key) {
            let Some(lease) = self.leases.get_mut(index) else { return false };
            lease.ttl = ttl;
            lease.deadline = deadline;
            let before = lease.due;
            // A shorter TTL may be due before the next check.
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

    /// Renews a lease. Returns false if there is none.
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

    pub fn end(&mut self, key: &InstanceKey) {
        let Some(index) = self.by_key.remove(key) else { return };
        match self.leases.try_remove(index).and_then(|lease| lease.due) {
            Some(due) => {
                self.due.remove(&(due, index));
            }
            None => self.lapsed -= 1,
        }
    }

    /// Advances the clock, at the [cadence](RunningClock::CADENCE) of running clocks.
    pub fn tick(&mut self, now: Instant) {
        self.clock.advance(now);
    }

    /// Advances the clock, then does [`LeaseTable::lapse`].
    pub fn advance(&mut self, now: Instant, most: usize) -> bool {
        self.tick(now);
        self.lapse(most)
    }

    /// Lets overdue leases lapse; checks at most `most` leases. Returns true if more are due.
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

    /// Returns the events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<LeaseEvent> {
        std::mem::take(&mut self.events)
    }

    /// Number of leases, including lapsed ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// True if there are no leases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Number of lapsed leases.
    #[must_use]
    pub fn lapsed(&self) -> usize {
        self.lapsed
    }

    fn deadline(&self, ttl: u32) -> u64 {
        deadline(ticks(self.clock.running()), ttl)
    }
}

/// Returns the deadline of a lease with a margin of three ticks, so that it is never early: the clock is up
/// to a tick behind, a deadline is the beginning of a tick, and a short freeze of the process may count up to
/// a tick too much.
fn deadline(now: u64, ttl: u32) -> u64 {
    now + u64::from(ttl) + 3
}

/// Converts a duration to ticks, rounded up.
fn ticks(time: Duration) -> u64 {
    let tick = LeaseTable::TICK.as_millis();
    time.as_millis().div_ceil(tick).try_into().unwrap_or(u64::MAX)
}
