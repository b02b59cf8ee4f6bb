//! Recent changes, from which watches resume.

use crate::directory::{Change, Filter};
use crate::{InstanceKey, InstanceView};
use std::collections::VecDeque;
use std::mem::size_of;

/// A ring buffer of changes in order, limited by count and bytes.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Entry>,
    /// Number of the first event in the ring.
    first: u64,
    /// Oldest revision from which a watch can resume.
    base: u64,
    bytes: usize,
    max_events: usize,
    max_bytes: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    event: WatchEvent,
    /// Only the health changed, not the record.
    is_health: bool,
}

/// A change of an instance in a watch.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent {
    /// Revision of the store at the change; for a change of health alone, the last revision before it.
    pub revision: u64,
    pub key: InstanceKey,
    /// Current state; `None` for a removed instance.
    pub instance: Option<InstanceView>,
}

/// A watch cannot resume, because the history does not reach back far enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOld;

/// A part of the history.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) events: Vec<WatchEvent>,
    /// Number of the next event to read.
    pub(crate) next: u64,
    /// Revision of the last event read; `None` if there is none.
    pub(crate) revision: Option<u64>,
}

impl History {
    pub(crate) fn new(base: u64, max_events: usize, max_bytes: usize) -> Self {
        Self { events: VecDeque::new(), first: 0, base, bytes: 0, max_events, max_bytes }
    }

    /// An empty history after a store was replaced. Numbers continue, so that every earlier position is too
    /// old.
    pub(crate) fn replaced(&self, base: u64, max_events: usize, max_bytes: usize) -> Self {
        Self { first: self.end() + 1, ..Self::new(base, max_events, max_bytes) }
    }

    /// Appends a change. Revisions never decrease.
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

    /// Number of the next event to be appended.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Returns the number of the first event after a revision: later changes of records, and changes of
    /// health since.
    pub(crate) fn after(&self, revision: u64) -> Result<u64, TooOld> {
        if revision < self.base {
            return Err(TooOld);
        }
        let is_known = |entry: &Entry| entry.event.revision < revision + u64::from(!entry.is_health);
        Ok(self.first + self.events.partition_point(is_known) as u64)
    }

    /// Returns the events from a number on that match a filter; slightly more than `most` at most.
    pub(crate) fn read(&self, from: u64, filter: &Filter, most: usize) -> Result<Read, TooOld> {
        let skip = from.checked_sub(self.first).ok_or(TooOld)?;
        let skip = usize::try_from(skip).map_err(|_| TooOld)?;
        let mut read = Read { events: Vec::new(), next: from, revision: None };
        for Entry { event, is_health } in self.events.iter().skip(skip) {
            // Records that changed together are read together, so that a watch can resume after any read.
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

    /// Oldest revision from which a watch can resume.
    pub(crate) fn oldest(&self) -> u64 {
        self.base
    }
}

/// Approximate number of bytes that an event holds.
fn weight(event: &WatchEvent) -> usize {
    let record = event.instance.as_ref().map_or(0, |view| view.record.instance.weight());
    size_of::<WatchEvent>() + record
}
