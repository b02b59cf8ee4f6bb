//! Schedule of DNS questions and evaluation of their answers: a state machine without IO and clocks.
//!
//! ```text
//! entry ─ SRV question ─▶ targets ─ A and AAAA questions ─▶ addresses ─▶ found
//!              │                            │
//!              └── each asked again when its TTL is over, or after a failure with backoff
//! ```
//!
//! The result of an entry is replaced once all its questions have answers. It stays while addresses of new
//! targets are being queried, and when questions fail.

use crate::entry::{Entry, EntryKind, Family};
use crate::name::{Name, Question, Records, Srv};
use pilotfish_runtime::{BackoffPolicy, DeadlineQueue, Jitter};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Backoff after a failed question.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(10));

/// Address of one server of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) target: Name,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) priority: u16,
    pub(crate) weight: u16,
    /// Number of addresses of the target: they share its weight.
    pub(crate) addresses: usize,
}

/// Result of each entry; `None` if it is unknown.
pub(crate) type FoundByEntry = Vec<Option<Arc<[Found]>>>;

/// Options of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanOptions {
    pub(crate) family: Family,
    pub(crate) min_ttl: Duration,
    pub(crate) max_ttl: Duration,
}

/// All questions with their due times, and the result of each entry.
pub(crate) struct Plan {
    entries: Arc<[Entry]>,
    options: PlanOptions,
    known: BTreeMap<Question, Known>,
    due: DeadlineQueue<Question>,
    /// Entries that need each question.
    users: BTreeMap<Question, BTreeSet<usize>>,
    /// Follow-up questions of each entry: the addresses of its SRV targets.
    targets: Vec<BTreeSet<Question>>,
    found: FoundByEntry,
    jitter: Jitter,
}

/// State of a question.
#[derive(Default)]
struct Known {
    /// Records of the last answer; `None` before the first.
    records: Option<Records>,
    /// Number of failures since the last answer, and the last reason.
    failure: Option<(u32, Arc<str>)>,
}

impl Known {
    /// True if the question was answered or has failed: no result is pending.
    const fn is_settled(&self) -> bool {
        self.records.is_some() || self.failure.is_some()
    }
}

impl Plan {
    /// Schedules all questions for now. Earlier results stay for entries whose questions fail.
    pub(crate) fn new(
        entries: &Arc<[Entry]>,
        options: PlanOptions,
        found: FoundByEntry,
        now: Instant,
    ) -> Self {
        let mut plan = Self {
            options,
            known: BTreeMap::new(),
            due: DeadlineQueue::default(),
            users: BTreeMap::new(),
            targets: vec![BTreeSet::new(); entries.len()],
            found,
            entries: entries.clone(),
            jitter: Jitter::default(),
        };
        plan.found.resize(entries.len(), None);
        for (index, entry) in entries.iter().enumerate() {
            for question in entry.questions(options.family) {
                plan.need(question, index, now);
            }
        }
        plan
    }

    /// Returns a due question and unschedules it.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Question> {
        self.due.pop_due(now)
    }

    /// Returns the next due time.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.next()
    }

    /// Handles an answer, and returns the entries whose result changed.
    pub(crate) fn answered(
        &mut self,
        question: &Question,
        records: Records,
        ttl: Duration,
        now: Instant,
    ) -> BTreeSet<usize> {
        // The question may have been dropped while its answer was under way.
        let Some(known) = self.known.get_mut(question) else { return BTreeSet::new() };
        known.records = Some(records);
        known.failure = None;
        let ttl = ttl.min(self.options.max_ttl).max(self.options.min_ttl);
        self.due.set(question.clone(), now + ttl);
        let users = self.users.get(question).cloned().unwrap_or_default();
        for user in &users {
            self.follow(*user, now);
        }
        self.find(users)
    }

    /// Handles a failure: the last answer stays, and the question is rescheduled. Returns the entries whose
    /// result changed.
    pub(crate) fn failed(&mut self, question: &Question, reason: &str, now: Instant) -> BTreeSet<usize> {
        let Some(known) = self.known.get_mut(question) else { return BTreeSet::new() };
        let failures = known.failure.as_ref().map_or(0, |(failures, _)| *failures).saturating_add(1);
        known.failure = Some((failures, reason.into()));
        self.due.set(question.clone(), now + RETRY.wait(failures, self.jitter.fraction()));
        let users = self.users.get(question).cloned().unwrap_or_default();
        self.find(users)
    }

    /// True if each question was answered or has failed.
    pub(crate) fn is_settled(&self) -> bool {
        self.known.values().all(Known::is_settled)
    }

    /// True if at least one question was answered.
    pub(crate) fn has_answers(&self) -> bool {
        self.known.values().any(|known| known.records.is_some())
    }

    /// Returns the first failure in one line. Only the first, so that further failures do not change the
    /// reason.
    pub(crate) fn failure(&self) -> Option<String> {
        let mut failing =
            self.known.iter().filter_map(|(question, known)| Some((question, known.failure.as_ref()?)));
        failing.next().map(|(question, (_, reason))| format!("{question}: {reason}"))
    }

    pub(crate) fn found(&self) -> &FoundByEntry {
        &self.found
    }

    fn need(&mut self, question: Question, entry: usize, now: Instant) {
        if !self.known.contains_key(&question) {
            self.known.insert(question.clone(), Known::default());
            self.due.set(question.clone(), now);
        }
        self.users.entry(question).or_default().insert(entry);
    }

    fn leave(&mut self, question: &Question, entry: usize) {
        let Some(users) = self.users.get_mut(question) else { return };
        users.remove(&entry);
        if users.is_empty() {
            self.users.remove(question);
            self.known.remove(question);
            self.due.remove(question);
        }
    }

    /// Replaces the follow-up questions of an entry by those of its current targets.
    fn follow(&mut self, entry: usize, now: Instant) {
        let wanted: BTreeSet<Question> =
            self.services(entry).iter().flat_map(|srv| self.options.family.questions(&srv.target)).collect();
        let Some(targets) = self.targets.get_mut(entry) else { return };
        let before = std::mem::replace(targets, wanted.clone());
        for question in wanted.difference(&before) {
            self.need(question.clone(), entry, now);
        }
        for question in before.difference(&wanted) {
            self.leave(question, entry);
        }
    }

    /// Returns the SRV records of an entry; empty for an entry by addresses.
    fn services(&self, entry: usize) -> &[Srv] {
        let Some(entry) = self.entries.get(entry) else { return &[] };
        match (&entry.kind, self.root(entry)) {
            (EntryKind::Srv(_), Some(Records::Srv(services))) => services,
            _ => &[],
        }
    }

    /// Returns the answer to the first question of an entry.
    fn root(&self, entry: &Entry) -> Option<&Records> {
        let question = entry.questions(self.options.family).into_iter().next()?;
        self.known.get(&question)?.records.as_ref()
    }

    /// Updates the results of these entries, and returns the entries whose result changed.
    fn find(&mut self, entries: BTreeSet<usize>) -> BTreeSet<usize> {
        let mut changed = BTreeSet::new();
        for index in entries {
            let Some(new) = self.resolve(index) else { continue };
            let Some(place) = self.found.get_mut(index) else { continue };
            if place.as_deref() != Some(&new[..]) {
                *place = Some(new.into());
                changed.insert(index);
            }
        }
        changed
    }

    /// Computes the result of an entry. Returns `None` while answers are missing that could change it.
    fn resolve(&self, index: usize) -> Option<Vec<Found>> {
        let entry = self.entries.get(index)?;
        let own = entry.questions(self.options.family);
        let needed = own.iter().chain(self.targets.get(index)?);
        if !needed.into_iter().all(|question| self.known.get(question).is_some_and(Known::is_settled)) {
            return None;
        }
        let alone;
        let services = match (&entry.kind, entry.port) {
            (EntryKind::Addresses, Some(port)) => {
                alone = [Srv { priority: 0, weight: 0, port, target: entry.name.clone() }];
                &alone[..]
            }
            _ => {
                self.root(entry)?;
                self.services(index)
            }
        };
        let mut found = Vec::new();
        let mut is_unknown = false;
        for srv in services {
            match self.addresses(&srv.target) {
                Some(addresses) => found.extend(addresses.iter().map(|address| Found {
                    target: srv.target.clone(),
                    address: *address,
                    port: srv.port,
                    priority: srv.priority,
                    weight: srv.weight,
                    addresses: addresses.len(),
                })),
                None => is_unknown = true,
            }
        }
        // An empty result after failures is unknown, not empty.
        if found.is_empty() && is_unknown { None } else { Some(found) }
    }

    /// Returns the addresses of a name. `None` if none was found and a question failed.
    fn addresses(&self, name: &Name) -> Option<Vec<IpAddr>> {
        let mut addresses = Vec::new();
        let mut is_unknown = false;
        for question in self.options.family.questions(name) {
            match self.known.get(&question).and_then(|known| known.records.as_ref()) {
                Some(Records::Addresses(list)) => addresses.extend(list),
                _ => is_unknown = true,
            }
        }
        if addresses.is_empty() && is_unknown { None } else { Some(addresses) }
    }
}

#[cfg(test)]
mod tests;
