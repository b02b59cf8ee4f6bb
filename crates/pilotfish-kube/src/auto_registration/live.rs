//! Who is connected here, and what the API server has to be told of it: a state machine without IO.
//!
//! For each entry one thing is done at a time, and only the newest matters: a workload that connects, leaves and connects
//! again while something is under way is told of once. What fails is tried again, a limited number of times; the sweep
//! that runs now and then finds what was lost.

use super::entry::{Applicant, EntryName};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often something is tried.
const TRIES: u32 = 5;
/// The pause before the second try; twice as long before each further one.
const PAUSE: Duration = Duration::from_millis(5);
/// The pause between two clean-ups: 20 in a second.
const BETWEEN_CLEAN_UPS: Duration = Duration::from_millis(50);

/// What happens to connections.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection with this number begins.
    Connected { connection: u64, entry: EntryName, applicant: Applicant, at: Timestamp },
    /// It ended.
    Disconnected { connection: u64, entry: EntryName, at: Timestamp },
    /// The workload says how it is.
    Health { entry: EntryName, at: Timestamp, health: Result<(), String> },
    /// A group appeared.
    GroupAdded { namespace: String, name: String },
}

/// What has to be done for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// It is connected since.
    Connect { applicant: Applicant, at: Timestamp },
    /// It is not connected any more: since when it was, and since when it is not.
    Disconnect { connected: Timestamp, at: Timestamp },
    /// It said how it is.
    Report { at: Timestamp, health: Result<(), String> },
    /// Perhaps it is to go.
    CleanUp,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It failed in a way that may pass.
    Retry,
    /// It will not succeed.
    GiveUp,
}

#[derive(Debug, Default)]
struct Entry {
    connections: BTreeMap<u64, (Applicant, Timestamp)>,
    /// What has to be told, the newest of each.
    connection: Option<Task>,
    report: Option<Task>,
    clean_up: Option<Instant>,
    /// The time of the connection that was told last.
    told: Option<Timestamp>,
    busy: bool,
    tries: u32,
    not_before: Option<Instant>,
}

impl Entry {
    fn newest(&self) -> Option<&(Applicant, Timestamp)> {
        self.connections.values().max_by_key(|(_, at)| *at)
    }

    fn connect(&mut self) {
        let Some((applicant, at)) = self.newest().cloned() else { return };
        self.connection = Some(Task::Connect { applicant, at });
        self.clean_up = None;
        (self.tries, self.not_before) = (0, None);
    }

    fn is_idle(&self) -> bool {
        self.connections.is_empty()
            && self.connection.is_none()
            && self.report.is_none()
            && self.clean_up.is_none()
            && !self.busy
    }
}

/// See the module's description.
pub(super) struct Live {
    grace: Duration,
    entries: BTreeMap<EntryName, Entry>,
    next_clean_up: Option<Instant>,
}

impl Live {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, entries: BTreeMap::new(), next_clean_up: None }
    }

    /// Takes in what happened.
    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Connected { connection, entry, applicant, at } => {
                let entry = self.entries.entry(entry).or_default();
                entry.connections.insert(connection, (applicant, at));
                entry.connect();
            }
            Event::Disconnected { connection, entry, at } => {
                let Some(entry) = self.entries.get_mut(&entry) else { return };
                let newest = entry.newest().map(|(_, at)| *at);
                let Some(_) = entry.connections.remove(&connection) else { return };
                // Only the last one counts.
                if let (true, Some(connected)) = (entry.connections.is_empty(), newest) {
                    entry.connection = Some(Task::Disconnect { connected, at });
                    entry.report = None;
                    (entry.tries, entry.not_before) = (0, None);
                }
            }
            Event::Health { entry, at, health } => {
                let Some(entry) = self.entries.get_mut(&entry) else { return };
                if !entry.connections.is_empty() {
                    entry.report = Some(Task::Report { at, health });
                }
            }
            Event::GroupAdded { namespace, name } => {
                let of_group =
                    |applicant: &Applicant| applicant.group == name && applicant.namespace == namespace;
                for entry in self.entries.values_mut() {
                    if entry.newest().is_some_and(|(applicant, _)| of_group(applicant)) {
                        entry.connect();
                    }
                }
            }
        }
    }

    /// Whether somebody is connected here for an entry.
    pub(super) fn is_connected(&self, entry: &EntryName) -> bool {
        self.entries.get(entry).is_some_and(|entry| !entry.connections.is_empty())
    }

    /// Whether there is something to tell that cannot wait for another replica.
    pub(super) fn has_news(&self) -> bool {
        self.entries.values().any(|entry| entry.connection.is_some() || entry.report.is_some())
    }

    /// Somebody should look whether an entry is to go.
    pub(super) fn suspect(&mut self, entry: EntryName, now: Instant) {
        if !self.is_connected(&entry) {
            self.entries.entry(entry).or_default().clean_up.get_or_insert(now);
        }
    }

    /// Tells of connections again whose entry is gone, or that were told of before `before`: as connected since `now`.
    pub(super) fn renew(&mut self, exists: impl Fn(&EntryName) -> bool, before: Timestamp, now: Timestamp) {
        for (name, entry) in &mut self.entries {
            if entry.connection.is_some() || entry.connections.is_empty() {
                continue;
            }
            if exists(name) && entry.told.is_some_and(|told| told > before) {
                continue;
            }
            if entry.told.is_some_and(|told| told <= before) {
                entry.connections.values_mut().for_each(|(_, at)| *at = now);
            }
            entry.connect();
        }
    }

    /// What has to be done now. Each must be answered with [`Live::done`].
    pub(super) fn due(&mut self, now: Instant) -> Vec<(EntryName, Task)> {
        let mut tasks = Vec::new();
        for (name, entry) in &mut self.entries {
            if entry.busy || entry.not_before.is_some_and(|until| now < until) {
                continue;
            }
            let clean_up = |entry: &Entry| entry.clean_up.is_some_and(|at| at <= now);
            let task = entry.connection.clone().or_else(|| entry.report.clone());
            let task = match task {
                Some(task) => task,
                None if clean_up(entry) && self.next_clean_up.is_none_or(|next| now >= next) => {
                    self.next_clean_up = Some(now + BETWEEN_CLEAN_UPS);
                    Task::CleanUp
                }
                None => continue,
            };
            entry.busy = true;
            tasks.push((name.clone(), task));
        }
        tasks
    }

    /// When [`Live::due`] has to be asked even if nothing happens until then.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = |entry: &Entry| {
            if entry.busy {
                None
            } else if entry.connection.is_some() || entry.report.is_some() {
                entry.not_before
            } else {
                entry.clean_up.map(|at| self.next_clean_up.map_or(at, |next| next.max(at)))
            }
        };
        self.entries.values().filter_map(due).min()
    }

    /// How a task ended.
    pub(super) fn done(&mut self, name: &EntryName, task: &Task, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.busy = false;
        entry.tries += 1;
        let again = outcome == Outcome::Retry && entry.tries < TRIES;
        if again {
            entry.not_before = Some(now + PAUSE * 2u32.pow(entry.tries - 1));
        } else {
            if outcome == Outcome::Retry {
                tracing::warn!(entry = %name, ?task, "given up after {TRIES} tries; the next sweep looks again");
            }
            (entry.tries, entry.not_before) = (0, None);
            let is_newest = |newest: &Option<Task>| newest.as_ref() == Some(task);
            if is_newest(&entry.connection) {
                entry.connection = None;
            }
            if is_newest(&entry.report) {
                entry.report = None;
            }
            match task {
                Task::Connect { at, .. } if outcome == Outcome::Done => entry.told = Some(*at),
                Task::Disconnect { .. } if entry.connections.is_empty() => {
                    entry.clean_up = Some(now + self.grace);
                }
                Task::CleanUp => entry.clean_up = None,
                _ => {}
            }
        }
        if entry.is_idle() {
            self.entries.remove(name);
        }
    }
}
