//! Connections to this replica, and the resulting writes: a state machine without IO.
//!
//! Each entry has one task at a time, and only the newest matters: a workload that connects, disconnects and
//! connects again during a task causes one write, and one that does so repeatedly causes one write per
//! second. Failed tasks are retried with backoff as long as they apply; a periodic sweep finds lost ones.

use super::annotations::{Seen, later};
use super::entry::{EntryName, RegistrationRequest};
use super::stale_tracker::StaleEntry;
use k8s_openapi::jiff::Timestamp;
use pilotfish_admission::TokenBucket;
use pilotfish_runtime::{BackoffPolicy, DeadlineQueue};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum attempts of a task that may never succeed.
const TRIES: u32 = 5;
/// Delays between attempts: 5 ms, doubled up to 15 s.
const RETRY: BackoffPolicy =
    BackoffPolicy::new(Duration::from_millis(5), Duration::from_secs(15)).with_jitter(0.0);
/// Maximum burst of requests for one entry; each is regained after [`REGAIN`].
const BURST: u32 = 5;
/// Time to regain a request of the burst.
const REGAIN: Duration = Duration::from_secs(1);
/// Delay before a deleted entry of a connected workload is created again.
const MAKE_AGAIN: Duration = Duration::from_secs(1);
/// Interval at which the mark of a connection is renewed.
const RENEW: Duration = Duration::from_secs(30 * 60);
/// Time that a seemingly stale entry is watched once more. Longer than the backoff of a replica that cannot
/// write.
const PROBATION: Duration = Duration::from_secs(60);
/// Minimum interval of clean-ups: 20 per second.
const BETWEEN_CLEAN_UPS: Duration = Duration::from_millis(50);

/// Event of a connection, group or entry.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection with this number began.
    Connected { connection: u64, entry: EntryName, request: RegistrationRequest, at: Timestamp },
    /// The connection with this number ended.
    Disconnected { connection: u64, entry: EntryName, at: Timestamp },
    /// The workload reported its health.
    Health { entry: EntryName, at: Timestamp, health: Result<(), String> },
    /// A group was added.
    GroupAdded { namespace: String, name: String },
    /// The entry is marked as disconnected: another replica wrote it after its own connection had ended.
    Left { entry: EntryName },
    /// The entry was removed.
    Gone { entry: EntryName, at: Instant },
}

/// Write for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Marks it as connected since `at`.
    Connect { request: RegistrationRequest, at: Timestamp },
    /// Marks it as disconnected since `at`.
    Disconnect { at: Timestamp },
    /// Writes the health condition that was reported at `at`.
    Report { at: Timestamp, health: Result<(), String> },
    /// Deletes the entry if it is unchanged since it was `seen`, and `is_sure`.
    CleanUp { seen: Seen, is_sure: bool },
}

/// Outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The workload is connected to another replica, as far as is known.
    Elsewhere,
    /// The entry is unchanged since it was seen, and has to be checked once more.
    Again,
    /// A transient failure: try again after [`RETRY`].
    Retry,
    /// The entry does not exist, or not yet.
    Missing,
    /// A permanent failure: drop the task.
    GiveUp,
}

/// Pending check of an entry.
#[derive(Debug)]
struct CleanUp {
    at: Instant,
    seen: Seen,
    is_sure: bool,
}

#[derive(Debug)]
struct Entry {
    connections: BTreeMap<u64, (RegistrationRequest, Timestamp)>,
    /// Pending write of the newest connection or disconnection.
    connection: Option<Task>,
    report: Option<Task>,
    /// Last health report of the connected workload.
    health: Option<Task>,
    clean_up: Option<CleanUp>,
    /// True if the clean-up has a time slot among all.
    has_turn: bool,
    /// Time of the last successful write of a connection, if the entry was ours then.
    written: Option<Instant>,
    busy: bool,
    tries: u32,
    not_before: Option<Instant>,
    limiter: TokenBucket,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            connections: BTreeMap::new(),
            connection: None,
            report: None,
            health: None,
            clean_up: None,
            has_turn: false,
            written: None,
            busy: false,
            tries: 0,
            not_before: None,
            limiter: TokenBucket::new(BURST, REGAIN),
        }
    }
}

impl Entry {
    /// Time of the next task, if there is one: the inner `None` means now.
    fn when(&self) -> Option<Option<Instant>> {
        if self.busy {
            None
        } else if self.connection.is_some() || self.report.is_some() {
            Some(self.not_before.max(self.limiter.ready_at()))
        } else {
            self.clean_up.as_ref().map(|clean_up| Some(clean_up.at))
        }
    }

    fn newest(&self) -> Option<&(RegistrationRequest, Timestamp)> {
        self.connections.values().max_by_key(|(_, at)| *at)
    }

    fn connect(&mut self) {
        let Some((request, at)) = self.newest().cloned() else { return };
        self.connection = Some(Task::Connect { request, at });
        (self.clean_up, self.has_turn) = (None, false);
        (self.tries, self.not_before) = (0, None);
    }

    /// Handles the end of a clean-up. While the API server is unreachable, the replica with the connection
    /// cannot renew its mark, so it gets more time.
    fn cleaned_up(&mut self, seen: &Seen, outcome: Outcome, now: Instant) {
        let is_latest = self.clean_up.as_ref().is_some_and(|clean_up| clean_up.seen == *seen);
        let next = match outcome {
            Outcome::Again => Some((now + PROBATION, true)),
            Outcome::Retry => Some((now + self.pause(), false)),
            Outcome::Done | Outcome::Elsewhere | Outcome::Missing | Outcome::GiveUp => None,
        };
        if next.is_none_or(|(_, is_sure)| is_sure) {
            self.tries = 0;
        }
        if is_latest {
            self.clean_up = next.map(|(at, is_sure)| CleanUp { at, seen: seen.clone(), is_sure });
            self.has_turn = false;
        }
    }

    /// Pause after the failures so far.
    fn pause(&self) -> Duration {
        RETRY.wait(self.tries, 1.0)
    }

    fn is_idle(&self) -> bool {
        self.connections.is_empty()
            && self.connection.is_none()
            && self.report.is_none()
            && self.clean_up.is_none()
            && !self.busy
    }
}

/// State of all connections, as described in the module.
pub(super) struct ConnectionTracker {
    grace: Duration,
    entries: BTreeMap<EntryName, Entry>,
    /// Entries by the time of their next task, so that the cost of an event does not depend on the number of
    /// connections.
    agenda: DeadlineQueue<EntryName, Option<Instant>>,
    next_clean_up: Option<Instant>,
    /// True during shutdown: a transient failure then ends a task after [`TRIES`] attempts.
    is_ending: bool,
}

impl ConnectionTracker {
    pub(super) fn new(grace: Duration) -> Self {
        let (entries, agenda) = (BTreeMap::new(), DeadlineQueue::default());
        Self { grace, entries, agenda, next_clean_up: None, is_ending: false }
    }

    /// Begins the shutdown: pending tasks are tried at once, and not repeated without end.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
        let names: Vec<EntryName> = self.entries.keys().cloned().collect();
        for name in names {
            if let Some(entry) = self.entries.get_mut(&name) {
                (entry.tries, entry.not_before) = (0, None);
                entry.limiter.reset();
            }
            self.file(&name);
        }
    }

    /// Updates an entry's time in the agenda; drops an entry without any state.
    fn file(&mut self, name: &EntryName) {
        let Some(entry) = self.entries.get(name) else { return };
        if let Some(at) = entry.when() {
            self.agenda.set(name.clone(), at);
            return;
        }
        self.agenda.remove(name);
        if entry.is_idle() {
            self.entries.remove(name);
        }
    }

    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Connected { connection, entry: name, request, at } => {
                let entry = self.entries.entry(name.clone()).or_default();
                entry.connections.insert(connection, (request, at));
                entry.connect();
                self.file(&name);
            }
            Event::Disconnected { connection, entry: name, at } => {
                let Some(entry) = self.entries.get_mut(&name) else { return };
                let Some(_) = entry.connections.remove(&connection) else { return };
                // Only the end of the last connection matters.
                if entry.connections.is_empty() {
                    entry.connection = Some(Task::Disconnect { at });
                    (entry.report, entry.health) = (None, None);
                    (entry.tries, entry.not_before) = (0, None);
                }
                self.file(&name);
            }
            Event::Health { entry: name, at, health } => {
                let Some(entry) = self.entries.get_mut(&name) else { return };
                if !entry.connections.is_empty() {
                    entry.report = Some(Task::Report { at, health });
                    entry.health.clone_from(&entry.report);
                }
                self.file(&name);
            }
            Event::Left { entry } => self.connect_again(&entry, None),
            Event::Gone { entry, at } => self.connect_again(&entry, Some(at + MAKE_AGAIN)),
            Event::GroupAdded { namespace, name } => {
                let of_group =
                    |request: &RegistrationRequest| request.group == name && request.namespace == namespace;
                self.connect_where(|_, entry| entry.newest().is_some_and(|(request, _)| of_group(request)));
            }
        }
    }

    /// Schedules another write of a connection that the entry does not show.
    fn connect_again(&mut self, name: &EntryName, not_before: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.connections.is_empty() || entry.connection.is_some() {
            return;
        }
        entry.connect();
        entry.report.clone_from(&entry.health);
        entry.not_before = not_before;
        self.file(name);
    }

    /// Schedules another write for all connections that match.
    fn connect_where(&mut self, mut features: impl FnMut(&EntryName, &mut Entry) -> bool) {
        let mut found = Vec::new();
        for (name, entry) in &mut self.entries {
            if features(name, entry) {
                entry.connect();
                entry.report.clone_from(&entry.health);
                found.push(name.clone());
            }
        }
        found.iter().for_each(|name| self.file(name));
    }

    /// True if an entry's workload is connected here.
    pub(super) fn is_connected(&self, entry: &EntryName) -> bool {
        self.entries.get(entry).is_some_and(|entry| !entry.connections.is_empty())
    }

    /// True if there are pending writes that no other replica will make.
    pub(super) fn has_news(&self) -> bool {
        self.entries.values().any(|entry| entry.connection.is_some() || entry.report.is_some())
    }

    /// Schedules the check of a stale entry.
    pub(super) fn stale(&mut self, stale: StaleEntry) {
        let StaleEntry { name, mark, at, is_sure } = stale;
        if self.is_connected(&name) {
            return;
        }
        let entry = self.entries.entry(name.clone()).or_default();
        let seen = Seen::ConnectionMark(mark);
        let is_known = |known: &CleanUp| known.seen == Seen::LeftHere || known.seen == seen;
        if !entry.busy && entry.connection.is_none() && !entry.clean_up.as_ref().is_some_and(is_known) {
            entry.clean_up = Some(CleanUp { at, seen, is_sure });
            entry.has_turn = false;
        }
        self.file(&name);
    }

    /// Schedules another write for connections whose entry is missing or not ours, or was written long ago.
    /// `known` returns the latest time of an entry's mark, `None` if there is no such entry.
    pub(super) fn renew(
        &mut self,
        known: impl Fn(&EntryName) -> Option<Option<Timestamp>>,
        (now, clock): (Instant, Timestamp),
    ) {
        self.connect_where(|name, entry| {
            if entry.connection.is_some() || entry.connections.is_empty() {
                return false;
            }
            let known = known(name);
            let is_old = entry.written.is_some_and(|written| now.duration_since(written) >= RENEW);
            if known.is_some() && entry.written.is_some() && !is_old {
                return false;
            }
            // By the wall clock, a mark might be unchanged, or older than a known one.
            for (_, at) in entry.connections.values_mut() {
                let is_late = known.flatten().is_some_and(|known| known >= *at);
                if is_old || is_late {
                    *at = later(clock.max(*at), known.flatten());
                }
            }
            true
        });
    }

    /// Tasks that are due. Each must be answered with [`ConnectionTracker::done`].
    pub(super) fn due(&mut self, now: Instant) -> Vec<(EntryName, Task)> {
        let mut tasks = Vec::new();
        while let Some(name) = self.agenda.pop_due(Some(now)) {
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            if let Some(task) = entry.connection.clone().or_else(|| entry.report.clone()) {
                entry.busy = true;
                entry.limiter.take(now);
                tasks.push((name.clone(), task));
            } else {
                let turn = self.next_clean_up.filter(|next| *next > now && !entry.has_turn);
                self.next_clean_up = match (turn, &mut entry.clean_up) {
                    (Some(turn), Some(clean_up)) => {
                        (clean_up.at, entry.has_turn) = (turn, true);
                        Some(turn + BETWEEN_CLEAN_UPS)
                    }
                    (_, clean_up) => {
                        let task = clean_up.as_ref().map(|CleanUp { seen, is_sure, .. }| Task::CleanUp {
                            seen: seen.clone(),
                            is_sure: *is_sure,
                        });
                        entry.busy = task.is_some();
                        tasks.extend(task.map(|task| (name.clone(), task)));
                        Some(self.next_clean_up.unwrap_or(now).max(now + BETWEEN_CLEAN_UPS))
                    }
                };
            }
            self.file(&name);
        }
        tasks
    }

    /// Time at which [`ConnectionTracker::due`] has to be called again, even without an event.
    pub(super) fn next(&self) -> Option<Instant> {
        self.agenda.next().flatten()
    }

    /// Handles the outcome of a task.
    pub(super) fn done(&mut self, name: &EntryName, task: &Task, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.busy = false;
        entry.tries = entry.tries.saturating_add(1);
        if let Task::CleanUp { seen, .. } = task {
            entry.cleaned_up(seen, outcome, now);
            return self.file(name);
        }
        let again = match outcome {
            Outcome::Retry => entry.tries < TRIES || !self.is_ending,
            Outcome::Missing => entry.tries < TRIES,
            Outcome::Done | Outcome::Elsewhere | Outcome::Again | Outcome::GiveUp => false,
        };
        if again {
            entry.not_before = Some(now + entry.pause());
        } else {
            (entry.tries, entry.not_before) = (0, None);
            let is_newest = |newest: &Option<Task>| newest.as_ref() == Some(task);
            if is_newest(&entry.connection) {
                entry.connection = None;
            }
            if is_newest(&entry.report) {
                entry.report = None;
            }
            match task {
                Task::Connect { .. } => entry.written = (outcome == Outcome::Done).then_some(now),
                Task::Disconnect { .. } if entry.connections.is_empty() => {
                    let at = now + self.grace;
                    entry.clean_up = Some(CleanUp { at, seen: Seen::LeftHere, is_sure: true });
                    entry.has_turn = false;
                }
                _ => {}
            }
        }
        self.file(name);
    }
}
