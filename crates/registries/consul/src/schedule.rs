//! Schedule of requests to Consul: a state machine without IO, so that its rules are tested as sequences.
//!
//! A question (request) is one of these:
//!
//! | Question | Blocks | Returns |
//! |---|---|---|
//! | [`Ask::Names`] | always | the service names, at every change of an instance; does not name its service |
//! | [`Ask::Checks`] | always, while services take turns | checks, which name services of changed health |
//! | [`Ask::Watch`] | after its first answer | the instances of a service |
//! | [`Ask::Fetch`] | never | the instances of a service that has changed |
//! | [`Ask::Probe`] | never | an index that shows changes of a service, without instances |
//!
//! If the limit of open questions allows it, every service is watched permanently. Otherwise services take
//! turns: each is watched once in [`Limits::wait`], for as long as the slots allow. Changes between turns are
//! found by the questions that are always open: if a check enters or leaves the states warning and critical,
//! its service is fetched; if the list of names returns, every service is probed, at a bounded rate. Half of
//! the slots are for the services that changed last: services that change often are watched permanently.

use crate::index::{Moved, WatchIndex};
use crate::triggers::CheckState;
use pilotfish_admission::TokenBucket;
use pilotfish_runtime::{BackoffPolicy, Jitter};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Backoff after an error.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(250), Duration::from_secs(15));
/// Rate limit of one query: a burst, then one per period.
const BURST: u32 = 10;
const PERIOD: Duration = Duration::from_millis(200);
/// Minimum time between two probes of all services: this per service, and at least [`MIN_SWEEP`].
const SWEEP_SHARE: Duration = Duration::from_millis(2);
const MIN_SWEEP: Duration = Duration::from_secs(1);
/// Minimum duration of a turn.
const MIN_TURN: Duration = Duration::from_millis(100);
/// Number of failures after which a service does not delay the initial load.
const PATIENCE: u32 = 3;

/// A service in a data centre.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Index of the data centre in the settings.
    pub(crate) datacenter: usize,
    pub(crate) name: Arc<str>,
}

/// A question; see the module's description.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    Names(usize),
    Checks(usize, CheckState),
    Watch(Key),
    Fetch(Key),
    Probe(Key),
}

impl Ask {
    pub(crate) const fn datacenter(&self) -> usize {
        match self {
            Self::Names(datacenter) | Self::Checks(datacenter, _) => *datacenter,
            Self::Watch(key) | Self::Fetch(key) | Self::Probe(key) => key.datacenter,
        }
    }

    /// Returns the service of the question.
    pub(crate) const fn service(&self) -> Option<&Key> {
        match self {
            Self::Names(_) | Self::Checks(..) => None,
            Self::Watch(key) | Self::Fetch(key) | Self::Probe(key) => Some(key),
        }
    }
}

/// A question to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) ask: Ask,
    /// The index; 0 for a question that does not block.
    pub(crate) index: u64,
    /// Maximum blocking time (Consul's parameter `wait`).
    pub(crate) wait: Duration,
    /// The listing of the service at the time of the question: answers about a service that was removed
    /// meanwhile, and perhaps listed again, are dropped.
    pub(crate) listing: u64,
}

/// Limits of open questions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of open questions.
    pub(crate) open: usize,
    pub(crate) datacenters: usize,
    /// Maximum blocking time of a question, and the time in which each service has a turn.
    pub(crate) wait: Duration,
}

impl Limits {
    /// Slots for the questions that are always open.
    const fn lists(&self) -> usize {
        3 * self.datacenters
    }

    /// Slots for watches: the remainder after lists, checks and some fetches.
    const fn places(&self) -> usize {
        let fetches = if self.open / 8 > 1 { self.open / 8 } else { 1 };
        let left = self.open.saturating_sub(self.lists() + fetches);
        if left == 0 { 1 } else { left }
    }
}

/// One query that is repeated with its last index.
#[derive(Debug)]
struct Line {
    index: WatchIndex,
    due: Instant,
    began: Instant,
    /// Index of the open question.
    open: Option<u64>,
    has_answered: bool,
    failures: u32,
    pace: TokenBucket,
}

impl Line {
    fn new(now: Instant) -> Self {
        let pace = TokenBucket::new(BURST, PERIOD);
        Self {
            index: WatchIndex::default(),
            due: now,
            began: now,
            open: None,
            has_answered: false,
            failures: 0,
            pace,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.open.is_none() && self.due <= now
    }

    fn begin(&mut self, now: Instant) -> u64 {
        self.pace.take(now);
        self.began = now;
        *self.open.insert(self.index.ask())
    }

    fn answered(&mut self, index: u64, now: Instant) -> Moved {
        self.open = None;
        self.has_answered = true;
        self.failures = 0;
        self.due = now + self.pace.wait(now);
        self.index.answered(index)
    }

    fn failed(&mut self, now: Instant, jitter: &mut Jitter) {
        self.open = None;
        self.index.forget();
        self.failures = self.failures.saturating_add(1);
        self.due = now + RETRY.wait(self.failures, jitter.fraction());
    }
}

#[derive(Debug)]
struct Service {
    line: Line,
    listing: u64,
    /// The index of the last answer that did not block. Indexes of blocking answers come from another source
    /// in an agent, and are not comparable.
    seen: Option<u64>,
    /// True if a fetch or probe is open.
    is_asking: bool,
    retry: u32,
}

/// State of all queries.
#[derive(Debug)]
pub(crate) struct Schedule {
    limits: Limits,
    jitter: Jitter,
    names: Vec<Line>,
    checks: BTreeMap<(usize, CheckState), Line>,
    services: BTreeMap<Key, Service>,
    watches: BTreeSet<(Instant, Key)>,
    fetches: BTreeMap<Key, Instant>,
    probes: BTreeSet<Key>,
    /// For each data centre: the earliest time of the next probe of all services, and whether one is
    /// requested.
    sweeps: Vec<(Instant, bool)>,
    /// The services that changed last, most recent first.
    lively: VecDeque<Key>,
    open: usize,
    open_watches: usize,
    listings: u64,
}

impl Schedule {
    pub(crate) fn new(limits: Limits, jitter: Jitter, now: Instant) -> Self {
        let lines = |_| Line::new(now);
        let states = (0..limits.datacenters).flat_map(|dc| CheckState::ALL.map(|state| (dc, state)));
        Self {
            jitter,
            names: (0..limits.datacenters).map(lines).collect(),
            checks: states.map(|of| (of, Line::new(now))).collect(),
            services: BTreeMap::new(),
            watches: BTreeSet::new(),
            fetches: BTreeMap::new(),
            probes: BTreeSet::new(),
            sweeps: vec![(now, false); limits.datacenters],
            lively: VecDeque::new(),
            open: 0,
            open_watches: 0,
            listings: 0,
            limits,
        }
    }

    /// Sets the maximum number of open questions.
    pub(crate) fn set_open(&mut self, open: usize) {
        self.limits.open = open;
    }

    /// True if services take turns because there are fewer slots than services.
    pub(crate) fn takes_turns(&self) -> bool {
        self.services.len() > self.limits.places()
    }

    /// True if no list of names was answered yet.
    pub(crate) fn has_no_names(&self) -> bool {
        self.names.iter().all(|line| !line.has_answered)
    }

    /// True if every query was answered, or failed too often to wait for it.
    pub(crate) fn is_loaded(&self) -> bool {
        let is_loaded = |service: &Service| service.line.has_answered || service.line.failures >= PATIENCE;
        self.names.iter().all(|line| line.has_answered) && self.services.values().all(is_loaded)
    }

    /// Sets the services of a data centre.
    pub(crate) fn list(&mut self, datacenter: usize, names: &BTreeSet<Arc<str>>, now: Instant) {
        let gone: Vec<Key> = self
            .services
            .keys()
            .filter(|key| key.datacenter == datacenter && !names.contains(&key.name))
            .cloned()
            .collect();
        for key in gone {
            if let Some(service) = self.services.remove(&key) {
                self.open_watches -= usize::from(service.line.open.is_some());
                self.watches.remove(&(service.line.due, key.clone()));
            }
            self.fetches.remove(&key);
            self.probes.remove(&key);
            self.lively.retain(|known| *known != key);
        }
        for name in names {
            let key = Key { datacenter, name: name.clone() };
            if !self.services.contains_key(&key) {
                self.watches.insert((now, key.clone()));
                self.listings += 1;
                let (line, listing) = (Line::new(now), self.listings);
                let service = Service { line, listing, seen: None, is_asking: false, retry: 0 };
                self.services.insert(key, service);
            }
        }
    }

    /// Handles a report that a service changed.
    pub(crate) fn touch(&mut self, key: &Key, now: Instant) {
        let Some(service) = self.services.get(key) else { return };
        // A blocking query will return the change; one that does not block may have been answered before it.
        if service.line.open.is_none_or(|index| index == 0) {
            self.fetches.insert(key.clone(), now);
        }
    }

    /// Handles an answer with changes: the service is watched permanently until others have changed since.
    pub(crate) fn changed(&mut self, key: &Key, now: Instant) {
        if !self.takes_turns() {
            return;
        }
        self.lively.retain(|known| known != key);
        self.lively.push_front(key.clone());
        self.lively.truncate(self.limits.places() / 2);
        let Some(service) = self.services.get_mut(key) else { return };
        if self.watches.remove(&(service.line.due, key.clone())) {
            service.line.due = now + service.line.pace.wait(now);
            self.watches.insert((service.line.due, key.clone()));
        }
    }

    /// Requests a probe of all services of a data centre.
    pub(crate) fn sweep(&mut self, datacenter: usize) {
        if let Some((_, is_wanted)) = self.sweeps.get_mut(datacenter) {
            *is_wanted = true;
        }
    }

    /// Returns the next question to send. It is open until [`Schedule::answered`] or [`Schedule::failed`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<Question> {
        self.begin_sweeps(now);
        let question = self.next_list(now).or_else(|| {
            if self.open_others() >= self.limits.open.saturating_sub(self.limits.lists()) {
                return None;
            }
            // Services that change often are always watched: they precede probes and late turns.
            let question = self.next_fetch(now).or_else(|| self.next_lively(now));
            question.or_else(|| self.next_probe()).or_else(|| self.next_watch(now))
        })?;
        self.open += 1;
        Some(question)
    }

    /// Returns the time of the next question if no answer arrives before.
    pub(crate) fn wake(&self, now: Instant) -> Option<Instant> {
        let lists = self.names.iter().chain(self.checks.values().filter(|_| self.takes_turns()));
        let lists = lists.filter(|line| line.open.is_none()).map(|line| line.due);
        let sweeps = self.sweeps.iter().filter(|(_, is_wanted)| *is_wanted).map(|(at, _)| *at);
        let watches = self.watches.range((now, Key { datacenter: usize::MAX, name: Arc::default() })..);
        let queued = watches.map(|(at, _)| *at).find(|at| *at > now).into_iter();
        let queued = queued.chain(self.fetches.values().copied());
        // Due questions that were not sent wait for a slot, not for a time.
        lists.chain(sweeps).chain(queued).filter(|at| *at > now).min()
    }

    /// True if the answer to the question is still relevant.
    pub(crate) fn is_current(&self, question: &Question) -> bool {
        let service = |key| self.services.get(key).is_some_and(|service| service.listing == question.listing);
        question.ask.service().is_none_or(service)
    }

    /// Handles the index of a valid answer, and returns its change.
    pub(crate) fn answered(&mut self, question: &Question, index: u64, now: Instant) -> Moved {
        self.open = self.open.saturating_sub(1);
        if !self.is_current(question) {
            return Moved::Same;
        }
        match &question.ask {
            Ask::Names(datacenter) => {
                self.names.get_mut(*datacenter).map_or(Moved::Same, |line| line.answered(index, now))
            }
            Ask::Checks(datacenter, state) => {
                let line = self.checks.get_mut(&(*datacenter, *state));
                line.map_or(Moved::Same, |line| line.answered(index, now))
            }
            Ask::Watch(key) => self.watch_answered(key, index, now),
            Ask::Fetch(key) => {
                let Some(service) = self.services.get_mut(key) else { return Moved::Same };
                (service.is_asking, service.seen, service.retry) = (false, Some(index), 0);
                service.line.has_answered = true;
                service.line.index.answered(index);
                Moved::On
            }
            Ask::Probe(key) => {
                let Some(service) = self.services.get_mut(key) else { return Moved::Same };
                service.is_asking = false;
                if service.seen == Some(index) {
                    return Moved::Same;
                }
                self.fetches.insert(key.clone(), now);
                Moved::On
            }
        }
    }

    /// Handles a failed question. It is retried later, without its index.
    pub(crate) fn failed(&mut self, question: &Question, now: Instant) {
        self.open = self.open.saturating_sub(1);
        if !self.is_current(question) {
            return;
        }
        let jitter = &mut self.jitter;
        match &question.ask {
            Ask::Names(datacenter) => {
                if let Some(line) = self.names.get_mut(*datacenter) {
                    line.failed(now, jitter);
                }
            }
            Ask::Checks(datacenter, state) => {
                if let Some(line) = self.checks.get_mut(&(*datacenter, *state)) {
                    line.failed(now, jitter);
                }
            }
            Ask::Watch(key) => {
                let Some(service) = self.services.get_mut(key) else { return };
                self.open_watches = self.open_watches.saturating_sub(1);
                service.line.failed(now, jitter);
                self.watches.insert((service.line.due, key.clone()));
            }
            Ask::Fetch(key) | Ask::Probe(key) => {
                let Some(service) = self.services.get_mut(key) else { return };
                service.is_asking = false;
                service.retry = service.retry.saturating_add(1);
                self.fetches.insert(key.clone(), now + RETRY.wait(service.retry, jitter.fraction()));
            }
        }
    }

    /// Number of open questions about services. Slots for lists are reserved.
    fn open_others(&self) -> usize {
        let lists = self.names.iter().chain(self.checks.values()).filter(|line| line.open.is_some());
        self.open.saturating_sub(lists.count())
    }

    fn begin_sweeps(&mut self, now: Instant) {
        for datacenter in 0..self.sweeps.len() {
            let Some((at, is_wanted)) =
                self.sweeps.get_mut(datacenter).filter(|(at, wanted)| *wanted && *at <= now)
            else {
                continue;
            };
            *is_wanted = false;
            let own = self.services.iter().filter(|(key, _)| key.datacenter == datacenter);
            let closed = own.filter(|(_, service)| service.line.open.is_none_or(|index| index == 0));
            let before = self.probes.len();
            self.probes.extend(closed.map(|(key, _)| key.clone()));
            let probes = u32::try_from(self.probes.len() - before).unwrap_or(u32::MAX);
            *at = now + SWEEP_SHARE.saturating_mul(probes).max(MIN_SWEEP);
        }
    }

    /// Returns the next of the questions that are always open.
    fn next_list(&mut self, now: Instant) -> Option<Question> {
        let (takes_turns, wait) = (self.takes_turns(), self.limits.wait);
        for (datacenter, line) in self.names.iter_mut().enumerate() {
            if line.is_due(now) {
                // Half the wait of other queries: it also detects a silent server.
                let ask = Ask::Names(datacenter);
                return Some(Question { ask, index: line.begin(now), wait: wait / 2, listing: 0 });
            }
        }
        let mut checks = self.checks.iter_mut().filter(|_| takes_turns);
        let ((datacenter, state), line) = checks.find(|(_, line)| line.is_due(now))?;
        Some(Question { ask: Ask::Checks(*datacenter, *state), index: line.begin(now), wait, listing: 0 })
    }

    /// True if no question about the service is open, so that an older answer cannot arrive after a newer
    /// one.
    fn is_free(&self, key: &Key) -> bool {
        self.services.get(key).is_some_and(|service| !service.is_asking && service.line.open.is_none())
    }

    fn next_fetch(&mut self, now: Instant) -> Option<Question> {
        let mut due = self.fetches.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key);
        let key = due.find(|key| self.is_free(key))?.clone();
        self.fetches.remove(&key);
        // A fetch makes a probe unnecessary.
        self.probes.remove(&key);
        self.ask_at_once(Ask::Fetch(key))
    }

    fn next_probe(&mut self) -> Option<Question> {
        let key = self.probes.iter().find(|key| self.is_free(key))?.clone();
        self.probes.remove(&key);
        self.ask_at_once(Ask::Probe(key))
    }

    fn ask_at_once(&mut self, ask: Ask) -> Option<Question> {
        let service = self.services.get_mut(ask.service()?)?;
        service.is_asking = true;
        let listing = service.listing;
        Some(Question { ask, index: 0, wait: Duration::ZERO, listing })
    }

    /// Returns the watch of a recently changed service.
    fn next_lively(&mut self, now: Instant) -> Option<Question> {
        if self.open_watches >= self.limits.places() {
            return None;
        }
        let entry = self.lively.iter().find_map(|key| {
            let entry = (self.services.get(key)?.line.due, key.clone());
            (entry.0 <= now && self.watches.contains(&entry) && self.is_free(key)).then_some(entry)
        })?;
        self.watch(entry, now)
    }

    fn next_watch(&mut self, now: Instant) -> Option<Question> {
        let places = self.limits.places();
        if self.open_watches >= places {
            return None;
        }
        let is_ready = |(at, key): &&(Instant, Key)| {
            let service = self.services.get(key);
            *at <= now && self.is_told_of(key.datacenter) && service.is_some_and(|service| !service.is_asking)
        };
        let entry = self.watches.iter().take_while(|(at, _)| *at <= now).find(is_ready).cloned()?;
        self.watch(entry, now)
    }

    fn watch(&mut self, entry: (Instant, Key), now: Instant) -> Option<Question> {
        self.watches.remove(&entry);
        let (_, key) = entry;
        let wait = self.turn(&key);
        let service = self.services.get_mut(&key)?;
        let (index, listing) = (service.line.begin(now), service.listing);
        self.open_watches += 1;
        Some(Question { ask: Ask::Watch(key), index, wait, listing })
    }

    /// True if health changes between turns are detected: services are read only then, so that no change is
    /// missed.
    fn is_told_of(&self, datacenter: usize) -> bool {
        let mut states =
            self.checks.range((datacenter, CheckState::Warning)..=(datacenter, CheckState::Critical));
        !self.takes_turns() || states.all(|(_, line)| line.has_answered || line.failures > 0)
    }

    /// Duration of one turn of a service.
    fn turn(&self, key: &Key) -> Duration {
        if !self.takes_turns() || self.lively.contains(key) {
            return self.limits.wait;
        }
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let places = number(self.limits.places().saturating_sub(self.lively.len()));
        let share = self.limits.wait.saturating_mul(places) / number(self.services.len()).max(1);
        share.max(MIN_TURN)
    }

    fn watch_answered(&mut self, key: &Key, index: u64, now: Instant) -> Moved {
        let takes_turns = self.takes_turns() && !self.lively.contains(key);
        let Some(service) = self.services.get_mut(key) else { return Moved::Same };
        let Some(asked) = service.line.open else { return Moved::Same };
        self.open_watches = self.open_watches.saturating_sub(1);
        let moved = service.line.answered(index, now);
        if asked == 0 {
            service.seen = Some(index);
        }
        if takes_turns {
            let next = if asked == 0 {
                // The first turns are spread over the whole interval.
                now + self.limits.wait.mul_f64(self.jitter.fraction())
            } else {
                service.line.began + self.limits.wait
            };
            service.line.due = service.line.due.max(next);
        }
        self.watches.insert((service.line.due, key.clone()));
        moved
    }
}

#[cfg(test)]
mod tests;
