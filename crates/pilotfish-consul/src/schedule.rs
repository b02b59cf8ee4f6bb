//! What to ask Consul next: a state machine without IO, so that its rules are tested as sequences.
//!
//! A question is one of these:
//!
//! | Question | Blocks | Tells |
//! |---|---|---|
//! | [`Ask::Names`] | always | which services there are; wakes at every change of an instance, but does not say of which |
//! | [`Ask::Checks`] | always, while services take turns | which services a change of health is about |
//! | [`Ask::Watch`] | after its first answer | the instances of a service |
//! | [`Ask::Fetch`] | never | the instances of a service that has changed |
//! | [`Ask::Probe`] | never | whether a service has changed: an answer without instances, whose index counts |
//!
//! With a place for each service, every service is watched all the time, and there is nothing else to do. With less, services take
//! turns: each is watched once in [`Limits::wait`], for as long as the places allow. What happens between its turns is told by the
//! questions that are always open: a service with a check that entered or left the states warning and critical is fetched, and when the
//! list of services wakes, every service is probed, at a bounded rate. Half of the places are for the services that changed last: who
//! changes often is watched all the time.

use crate::index::{Moved, WatchIndex};
use crate::triggers::CheckState;
use pilotfish_source::{BackoffPolicy, Jitter, RateLimiter};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After an error.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(250), Duration::from_secs(15));
/// A query that is answered again and again: so often at once, then one in so long.
const BURST: u32 = 10;
const PERIOD: Duration = Duration::from_millis(200);
/// All services are probed at most once in this time for each of them, and once in [`MIN_SWEEP`].
const SWEEP_SHARE: Duration = Duration::from_millis(2);
const MIN_SWEEP: Duration = Duration::from_secs(1);
/// A turn is at least so long.
const MIN_TURN: Duration = Duration::from_millis(100);
/// A service that failed so often does not hold up the others at the start.
const PATIENCE: u32 = 3;

/// A service in a data centre.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The number of the data centre in the settings.
    pub(crate) datacenter: usize,
    pub(crate) name: Arc<str>,
}

/// What is asked. See the module's description.
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

    /// The service that it is about.
    pub(crate) const fn service(&self) -> Option<&Key> {
        match self {
            Self::Names(_) | Self::Checks(..) => None,
            Self::Watch(key) | Self::Fetch(key) | Self::Probe(key) => Some(key),
        }
    }
}

/// A question to be asked now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) ask: Ask,
    /// 0 for one that does not block.
    pub(crate) index: u64,
    /// How long it blocks at most.
    pub(crate) wait: Duration,
    /// Which listing of its service it belongs to: answers about one that went away meanwhile, and perhaps came again, do not count.
    pub(crate) listing: u64,
}

/// What the questions may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open questions.
    pub(crate) open: usize,
    pub(crate) datacenters: usize,
    /// How long a question blocks at most, and how often each service has its turn.
    pub(crate) wait: Duration,
}

impl Limits {
    /// Places for the questions that are always open.
    const fn lists(&self) -> usize {
        3 * self.datacenters
    }

    /// Places for watches of services: what the lists and checks, and some fetches, leave.
    const fn places(&self) -> usize {
        let fetches = if self.open / 8 > 1 { self.open / 8 } else { 1 };
        let left = self.open.saturating_sub(self.lists() + fetches);
        if left == 0 { 1 } else { left }
    }
}

/// One query that is asked again and again.
#[derive(Debug)]
struct Line {
    index: WatchIndex,
    due: Instant,
    began: Instant,
    /// Asked with this index, not answered yet.
    open: Option<u64>,
    has_answered: bool,
    failures: u32,
    pace: RateLimiter,
}

impl Line {
    fn new(now: Instant) -> Self {
        let pace = RateLimiter::new(BURST, PERIOD);
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
    /// The index of the last answer that did not block. Others come from another place in an agent, and are not compared with it.
    seen: Option<u64>,
    /// A fetch or probe is open.
    is_asking: bool,
    retry: u32,
}

/// See the module's description.
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
    /// When all services of a data centre may be probed again, and whether they are to be.
    sweeps: Vec<(Instant, bool)>,
    /// The services that changed last, the last one first.
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

    /// Allows so many open questions from now on.
    pub(crate) fn set_open(&mut self, open: usize) {
        self.limits.open = open;
    }

    /// Whether services take turns, as there are more than places.
    pub(crate) fn takes_turns(&self) -> bool {
        self.services.len() > self.limits.places()
    }

    /// Whether no list of names was answered yet.
    pub(crate) fn has_no_names(&self) -> bool {
        self.names.iter().all(|line| !line.has_answered)
    }

    /// Whether everything was answered, or failed so often that the rest is not to wait for it.
    pub(crate) fn is_loaded(&self) -> bool {
        let is_loaded = |service: &Service| service.line.has_answered || service.line.failures >= PATIENCE;
        self.names.iter().all(|line| line.has_answered) && self.services.values().all(is_loaded)
    }

    /// The services that there are in a data centre.
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

    /// A service has changed.
    pub(crate) fn touch(&mut self, key: &Key, now: Instant) {
        let Some(service) = self.services.get(key) else { return };
        // A query that waits for a change will tell; one that was asked without waiting may have been answered before the change.
        if service.line.open.is_none_or(|index| index == 0) {
            self.fetches.insert(key.clone(), now);
        }
    }

    /// A service turned out to have changed: it is watched from now on, until others have changed since.
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

    /// Some service of a data centre may have changed.
    pub(crate) fn sweep(&mut self, datacenter: usize) {
        if let Some((_, is_wanted)) = self.sweeps.get_mut(datacenter) {
            *is_wanted = true;
        }
    }

    /// The next question to be asked now. It is open until [`Schedule::answered`] or [`Schedule::failed`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<Question> {
        self.begin_sweeps(now);
        let question = self.next_list(now).or_else(|| {
            if self.open_others() >= self.limits.open.saturating_sub(self.limits.lists()) {
                return None;
            }
            // Those that change often are watched all the time: neither probes nor those whose turn is late come before them.
            let question = self.next_fetch(now).or_else(|| self.next_lively(now));
            question.or_else(|| self.next_probe()).or_else(|| self.next_watch(now))
        })?;
        self.open += 1;
        Some(question)
    }

    /// When there may be a next question although nothing was answered.
    pub(crate) fn wake(&self, now: Instant) -> Option<Instant> {
        let lists = self.names.iter().chain(self.checks.values().filter(|_| self.takes_turns()));
        let lists = lists.filter(|line| line.open.is_none()).map(|line| line.due);
        let sweeps = self.sweeps.iter().filter(|(_, is_wanted)| *is_wanted).map(|(at, _)| *at);
        let watches = self.watches.range((now, Key { datacenter: usize::MAX, name: Arc::default() })..);
        let queued = watches.map(|(at, _)| *at).find(|at| *at > now).into_iter();
        let queued = queued.chain(self.fetches.values().copied());
        // What is due and was not asked waits for an answer, not for a time.
        lists.chain(sweeps).chain(queued).filter(|at| *at > now).min()
    }

    /// Whether an answer counts.
    pub(crate) fn is_current(&self, question: &Question) -> bool {
        let service = |key| self.services.get(key).is_some_and(|service| service.listing == question.listing);
        question.ask.service().is_none_or(service)
    }

    /// Takes the index of a good answer, and says what it means.
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

    /// A question was not answered well. It is asked again later, and anew.
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

    /// Open questions about services. Places for lists are never theirs.
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

    /// The questions that are always open.
    fn next_list(&mut self, now: Instant) -> Option<Question> {
        let (takes_turns, wait) = (self.takes_turns(), self.limits.wait);
        for (datacenter, line) in self.names.iter_mut().enumerate() {
            if line.is_due(now) {
                // Twice as often as others: it is also how a server that is silent is noticed.
                let ask = Ask::Names(datacenter);
                return Some(Question { ask, index: line.begin(now), wait: wait / 2, listing: 0 });
            }
        }
        let mut checks = self.checks.iter_mut().filter(|_| takes_turns);
        let ((datacenter, state), line) = checks.find(|(_, line)| line.is_due(now))?;
        Some(Question { ask: Ask::Checks(*datacenter, *state), index: line.begin(now), wait, listing: 0 })
    }

    /// A service that is being asked waits, so that no older answer comes after a newer one.
    fn is_free(&self, key: &Key) -> bool {
        self.services.get(key).is_some_and(|service| !service.is_asking && service.line.open.is_none())
    }

    fn next_fetch(&mut self, now: Instant) -> Option<Question> {
        let mut due = self.fetches.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key);
        let key = due.find(|key| self.is_free(key))?.clone();
        self.fetches.remove(&key);
        // A fetch tells what a probe would.
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

    /// The watch of a service that changed not long ago.
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

    /// Whether changes of health between turns are told: services are read after that, so that no change falls between.
    fn is_told_of(&self, datacenter: usize) -> bool {
        let mut states =
            self.checks.range((datacenter, CheckState::Warning)..=(datacenter, CheckState::Critical));
        !self.takes_turns() || states.all(|(_, line)| line.has_answered || line.failures > 0)
    }

    /// How long a service is watched at a time.
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
                // The first turns are spread over the whole time.
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
