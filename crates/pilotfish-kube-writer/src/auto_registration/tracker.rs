//! The connections to this replica, and what has to be written about them: a state machine without IO.
//!
//! Each entry has one task at a time, and only the newest matters: a workload that connects, leaves and connects
//! again while a task is under way is written once, and one that does so without end is written once in a second. What
//! fails is retried with backoff, for as long as it is true; the sweep that runs now and then finds what was lost.

use super::annotations::{Seen, later};
use super::entry::{EntryName, RegistrationRequest};
use super::stale_tracker::StaleEntry;
use k8s_openapi::jiff::Timestamp;
use pilotfish_source::{BackoffPolicy, DeadlineQueue, RateLimiter};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How often something is tried that may be hopeless.
const TRIES: u32 = 5;
/// The pauses between tries.
const RETRY: BackoffPolicy =
    BackoffPolicy::new(Duration::from_millis(5), Duration::from_secs(15)).with_jitter(0.0);
/// So many requests for one entry are made at once; each comes back after [`REGAIN`].
const BURST: u32 = 5;
/// How long a request of the burst takes to come back.
const REGAIN: Duration = Duration::from_secs(1);
/// After how long a deleted entry of a connected workload is made again.
const MAKE_AGAIN: Duration = Duration::from_secs(1);
/// A mark of a connection is renewed after so long.
const RENEW: Duration = Duration::from_secs(30 * 60);
/// How long a seemingly stale entry is watched once more. Longer than the backoff of a replica that cannot write.
const PROBATION: Duration = Duration::from_secs(60);
/// The pause between two clean-ups: 20 in a second.
const BETWEEN_CLEAN_UPS: Duration = Duration::from_millis(50);

/// What happens to connections.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection with this number begins.
    Connected { connection: u64, entry: EntryName, request: RegistrationRequest, at: Timestamp },
    /// It ended.
    Disconnected { connection: u64, entry: EntryName, at: Timestamp },
    /// The workload reports its health.
    Health { entry: EntryName, at: Timestamp, health: Result<(), String> },
    /// A group appeared.
    GroupAdded { namespace: String, name: String },
    /// The entry is marked as disconnected: another replica wrote so after its own connection had ended.
    Left { entry: EntryName },
    /// The entry is gone.
    Gone { entry: EntryName, at: Instant },
}

/// What has to be done for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// It is connected since.
    Connect { request: RegistrationRequest, at: Timestamp },
    /// It is not connected any more, since when.
    Disconnect { at: Timestamp },
    /// It reported its health.
    Report { at: Timestamp, health: Result<(), String> },
    /// It may be stale: it is deleted if it is unchanged since it was `seen`, and that is a sure sign.
    CleanUp { seen: Seen, is_sure: bool },
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Another replica has the workload, as far as can be known.
    Elsewhere,
    /// The entry is unchanged since it was seen, and is to be checked once more.
    Again,
    /// It failed in a way that passes.
    Retry,
    /// There is no such entry, or not yet.
    Missing,
    /// It will not succeed.
    GiveUp,
}

/// An entry is to be checked.
#[derive(Debug)]
struct CleanUp {
    at: Instant,
    seen: Seen,
    is_sure: bool,
}

#[derive(Debug)]
struct Entry {
    connections: BTreeMap<u64, (RegistrationRequest, Timestamp)>,
    /// What has to be written, the newest of each.
    connection: Option<Task>,
    report: Option<Task>,
    /// The last health report of the connected workload.
    health: Option<Task>,
    clean_up: Option<CleanUp>,
    /// Whether the time of the clean-up is its turn among all.
    has_turn: bool,
    /// When a connection was written last, and the entry was ours.
    written: Option<Instant>,
    busy: bool,
    tries: u32,
    not_before: Option<Instant>,
    limiter: RateLimiter,
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
            limiter: RateLimiter::new(BURST, REGAIN),
        }
    }
}

impl Entry {
    /// When something has to be done for it: the inner `None` is at once.
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

    /// A clean-up ended. While the API server is unreachable, a replica with the connection cannot renew its mark: it gets the time to.
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

    /// How long to wait after so many failures.
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

/// See the module's description.
pub(super) struct ConnectionTracker {
    grace: Duration,
    entries: BTreeMap<EntryName, Entry>,
    /// For which entries something has to be done, by time: what happens costs what it concerns, however many are connected.
    agenda: DeadlineQueue<EntryName, Option<Instant>>,
    next_clean_up: Option<Instant>,
    /// Whether all of this ends soon.
    is_ending: bool,
}

impl ConnectionTracker {
    pub(super) fn new(grace: Duration) -> Self {
        let (entries, agenda) = (BTreeMap::new(), DeadlineQueue::default());
        Self { grace, entries, agenda, next_clean_up: None, is_ending: false }
    }

    /// All of this ends soon: what waits is tried at once, and nothing for ever.
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

    /// Files an entry under the time when something has to be done for it; forgets one for which nothing is left.
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

    /// Takes in what happened.
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
                // Only the last one counts.
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

    /// Tells again of a connection that the entry does not show any more.
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

    /// Tells again of all connections that are like that.
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

    /// Whether an entry's workload is connected here.
    pub(super) fn is_connected(&self, entry: &EntryName) -> bool {
        self.entries.get(entry).is_some_and(|entry| !entry.connections.is_empty())
    }

    /// Whether there is something to write that cannot wait for another replica.
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

    /// Writes connections again whose entry is gone or not ours, or that were written long ago. `known` gives the latest time
    /// of an entry's mark, `None` when there is no such entry.
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
            // By the clock on the wall a mark might not differ, or be older than one that is known.
            for (_, at) in entry.connections.values_mut() {
                let is_late = known.flatten().is_some_and(|known| known >= *at);
                if is_old || is_late {
                    *at = later(clock.max(*at), known.flatten());
                }
            }
            true
        });
    }

    /// What has to be done now. Each must be answered with [`ConnectionTracker::done`].
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

    /// When [`ConnectionTracker::due`] has to be called again, even if nothing happens until then.
    pub(super) fn next(&self) -> Option<Instant> {
        self.agenda.next().flatten()
    }

    /// How a task ended.
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
