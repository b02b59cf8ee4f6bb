//! The last changes, so that a watch can go on where another one ended.

use crate::directory::{Change, Filter};
use crate::{InstanceKey, InstanceView};
use std::collections::VecDeque;
use std::mem::size_of;

/// A ring of changes in the order in which they happened, bounded by count and bytes.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Entry>,
    /// The number of the first event in the ring.
    first: u64,
    /// From this revision on a watch can go on.
    base: u64,
    bytes: usize,
    max_events: usize,
    max_bytes: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    event: WatchEvent,
    /// The record is the one that it was: only its health changed.
    is_health: bool,
}

/// A change of an instance, as a watch tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent {
    /// The store's revision. That of a change of health alone is the revision that was reached before it.
    pub revision: u64,
    /// Which instance.
    pub key: InstanceKey,
    /// What it is now; `None` for gone.
    pub instance: Option<InstanceView>,
}

/// Why a watch cannot go on from a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOld;

/// A part of the history.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) events: Vec<WatchEvent>,
    /// The number at which to go on.
    pub(crate) next: u64,
    /// The revision that was reached; `None` where nothing was read.
    pub(crate) revision: Option<u64>,
}

impl History {
    pub(crate) fn new(base: u64, max_events: usize, max_bytes: usize) -> Self {
        Self { events: VecDeque::new(), first: 0, base, bytes: 0, max_events, max_bytes }
    }

    /// An empty history of another store. Numbers continue, so that every earlier place is too old.
    pub(crate) fn replaced(&self, base: u64, max_events: usize, max_bytes: usize) -> Self {
        Self { first: self.end() + 1, ..Self::new(base, max_events, max_bytes) }
    }

    /// Appends a change. Revisions do not fall.
    pub(crate) fn push(&mut self, change: Change) {
        let record = |view: &Option<InstanceView>| view.as_ref().map(|view| view.record.revision);
        let is_health = change.after.is_some() && record(&change.before) == record(&change.after);
        let event = WatchEvent { revision: change.revision, key: change.key, instance: change.after };
        self.bytes += weight(&event);
        self.events.push_back(Entry { event, is_health });
        while self.events.len() > self.max_events || self.bytes > self.max_bytes {
            let Some(Entry { event, .. }) = self.events.pop_front() else { break };
            self.first += 1;
            self.bytes -= weight(&event);
            self.base = event.revision + 1;
        }
    }

    /// The number that the next event will have.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The number of the first event after a revision was reached: later changes of records, and changes of health since.
    pub(crate) fn after(&self, revision: u64) -> Result<u64, TooOld> {
        if revision < self.base {
            return Err(TooOld);
        }
        let is_known = |entry: &Entry| entry.event.revision < revision + u64::from(!entry.is_health);
        Ok(self.first + self.events.partition_point(is_known) as u64)
    }

    /// The events from a number on that a filter lets through; not many more than `most`.
    pub(crate) fn read(&self, from: u64, filter: &Filter, most: usize) -> Result<Read, TooOld> {
        let skip = from.checked_sub(self.first).ok_or(TooOld)?;
        let skip = usize::try_from(skip).map_err(|_| TooOld)?;
        let mut read = Read { events: Vec::new(), next: from, revision: None };
        for Entry { event, is_health } in self.events.iter().skip(skip) {
            // Records that changed together stay together, so that a watch can go on after any of these reads.
            let is_apart = *is_health || read.revision != Some(event.revision);
            if read.events.len() >= most && is_apart {
                break;
            }
            read.next += 1;
            read.revision = Some(event.revision);
            if filter.matches(&event.key) {
                read.events.push(event.clone());
            }
        }
        Ok(read)
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The oldest revision from which a watch can go on.
    pub(crate) fn oldest(&self) -> u64 {
        self.base
    }
}

/// About how many bytes an event keeps alive.
fn weight(event: &WatchEvent) -> usize {
    let record = event.instance.as_ref().map_or(0, |view| view.record.instance.weight());
    size_of::<WatchEvent>() + record
}
