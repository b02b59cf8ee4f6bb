//! Writing back: the status of objects through the API server, for as long as this replica leads.
//!
//! ```text
//! worlds ── wanted statuses ─▶ Book (pure: what differs) ── Write ─▶ API server
//!                                ▲                                      │
//!                                └──── watches of the same objects ◀────┘
//! ```

mod book;
#[cfg(test)]
mod tests;

use crate::lease::Leadership;
use crate::source::resources_of;
use crate::watch::{Backoff, Change, News, Observer, Place, Reader, Resource, Stored, Watch, chain};
use book::{Book, Outcome, Write};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use pilotfish_config::status::{Message, Status};
use pilotfish_config::{Problem, Severity};
use pilotfish_model::{Kind, ObjectKey, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// The field manager under which status is written.
pub const FIELD_MANAGER: &str = "pilotfish-status";

/// Writes that may be under way at a time.
const AT_A_TIME: usize = 8;
/// Writes that may come at once, and how soon there may be another one after that: 100 in a second, as istiod has it.
const BURST: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);
/// How long one write may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How often it is looked which kinds there are.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// News of watches that may wait.
const WAITING: usize = 1024;

/// A world, and the statuses that differ from those of the world before.
pub struct Wanted {
    /// The world.
    pub world: Arc<World>,
    /// The statuses; `None` for objects that have none any more.
    pub changes: Vec<(ObjectKey, Option<Arc<Status>>)>,
}

/// What happened to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is stored.
    Stored,
    /// Somebody else was faster; it is made anew.
    Conflict,
    /// It failed; it is tried again.
    Failed,
}

impl Written {
    /// In one word, for labels of metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }
}

/// Who is told what is written.
pub trait WriteObserver: Send + Sync {
    /// A write of the status of an object of that kind came to an end.
    fn written(&self, kind: &'static str, what: Written);
}

/// What is written, and to which cluster.
#[derive(Clone)]
pub struct StatusSettings {
    /// The cluster's id, for messages.
    pub cluster: Arc<str>,
    /// Kinds of which it is said what is wanted.
    pub wanted: Vec<Kind>,
    /// Kinds whose objects are told what is wrong with them by themselves.
    pub analysed: Vec<Kind>,
    /// Who is told what happens to watches.
    pub observer: Arc<dyn Observer>,
    /// Who is told what is written.
    pub written: Arc<dyn WriteObserver>,
}

/// Writes status while this replica leads.
pub struct StatusWriter {
    client: Client,
    settings: StatusSettings,
    leadership: Leadership,
    book: Book,
    resources: BTreeMap<Kind, Resource>,
    watches: JoinSet<()>,
    watched: BTreeMap<Kind, watch::Sender<Option<Resource>>>,
    writes: JoinSet<(Write, Outcome)>,
    allowance: Allowance,
}

impl StatusWriter {
    /// A writer for objects in the cluster of that client.
    #[must_use]
    pub fn new(client: Client, settings: StatusSettings, leadership: Leadership) -> Self {
        Self {
            client,
            settings,
            leadership,
            book: Book::default(),
            resources: BTreeMap::new(),
            watches: JoinSet::new(),
            watched: BTreeMap::new(),
            writes: JoinSet::new(),
            allowance: Allowance::new(Instant::now()),
        }
    }

    /// Writes what is wanted until nobody wants anything any more, or this replica leads no longer. Writes that are under way then
    /// are given up: whether they are stored is not known, and whoever leads next writes what is missing.
    pub async fn run(mut self, mut wanted: mpsc::Receiver<Wanted>) {
        let (say, mut heard) = mpsc::channel(WAITING);
        let mut leadership = self.leadership.clone();
        let mut look = Instant::now();
        let mut backoff = Backoff::default();
        loop {
            self.write();
            let due = self.wakes();
            tokio::select! {
                biased;
                () = leadership.lost() => return,
                Some(ended) = self.writes.join_next() => self.ended(ended),
                message = wanted.recv() => match message {
                    Some(Wanted { world, changes }) => self.book.want(world, changes),
                    None => return,
                },
                Some((kind, news)) = heard.recv() => self.hear(kind, news),
                () = tokio::time::sleep_until(look) => {
                    look = Instant::now() + match self.look(&say).await {
                        Ok(()) => { backoff.reset(); LOOK_AGAIN }
                        Err(reason) => {
                            tracing::debug!(cluster = %self.settings.cluster, reason, "cannot find out which kinds there are");
                            backoff.next(Duration::ZERO)
                        }
                    };
                }
                () = tokio::time::sleep_until(due.unwrap_or(look)), if due.is_some() => {}
            }
        }
    }

    /// When there may be something to write without anything else happening.
    fn wakes(&self) -> Option<Instant> {
        if self.writes.len() >= AT_A_TIME {
            return None;
        }
        let refill = self.allowance.refill();
        refill.or_else(|| self.book.due())
    }

    /// Finds out where kinds are served, and watches them.
    async fn look(&mut self, say: &mpsc::Sender<(Kind, News)>) -> Result<(), String> {
        let groups = match timeout(ANSWER, self.client.list_api_groups_aggregated()).await {
            Ok(Ok(groups)) => groups,
            Ok(Err(error)) => return Err(chain(&error)),
            Err(_) => return Err(format!("no answer within {} s", ANSWER.as_secs())),
        };
        let StatusSettings { wanted, analysed, .. } = &self.settings;
        let kinds: Vec<Kind> = wanted.iter().chain(analysed).copied().collect();
        let found = resources_of(&groups, &kinds);
        self.watched.retain(|kind, tell| {
            let there = found.contains_key(kind);
            if !there {
                tell.send_replace(None);
            }
            there
        });
        for (kind, resource) in &found {
            if self.resources.get(kind) == Some(resource) {
                continue;
            }
            match self.watched.get(kind) {
                Some(tell) => drop(tell.send_replace(Some(resource.clone()))),
                None => self.watch(*kind, resource, say),
            }
        }
        self.resources = found;
        Ok(())
    }

    fn watch(&mut self, kind: Kind, resource: &Resource, say: &mpsc::Sender<(Kind, News)>) {
        let (tell, told) = watch::channel(Some(resource.clone()));
        let StatusSettings { cluster, observer, .. } = &self.settings;
        let place = Place { cluster: cluster.clone(), kind, observer: observer.clone() };
        let watch = Watch::new(self.client.clone(), place, Reader::Stored(kind), say.clone());
        self.watches.spawn(watch.run(told));
        self.watched.insert(kind, tell);
    }

    fn hear(&mut self, kind: Kind, news: News) {
        match news {
            News::Changes(changes) => {
                for change in changes {
                    match change {
                        Change::Stored { key, problems, stored, .. }
                            if self.settings.analysed.contains(&kind) =>
                        {
                            self.book.analysed(key, problems.iter().map(message).collect(), stored);
                        }
                        Change::Stored { key, object, stored, .. } => self.book.stored(key, object, stored),
                        Change::Delete(key) => self.book.gone(&key),
                        // Only said by other readers.
                        Change::Apply { .. } | Change::Refused { .. } => {}
                    }
                }
            }
            News::Failed(reason) => {
                tracing::debug!(cluster = %self.settings.cluster, %kind, reason, "stored statuses cannot be read");
            }
            News::Listed | News::Healthy => {}
        }
    }

    /// Starts what is due and allowed.
    fn write(&mut self) {
        while self.writes.len() < AT_A_TIME {
            let now = Instant::now();
            // Asked before each write: what is stored must be ours to say in this very moment.
            let Some(until) = self.leadership.until() else { return };
            if !self.allowance.has(now) {
                return;
            }
            let Some(write) = self.book.next(now, &clock()) else { return };
            let Some(path) = self.path(&write.key) else {
                self.book.ended(&write, Outcome::Failed, now);
                continue;
            };
            self.allowance.take();
            let client = self.client.clone();
            let limit = until.min(now + ANSWER);
            self.writes.spawn(async move {
                let outcome = send(&client, &path, &write, limit).await;
                (write, outcome)
            });
        }
    }

    /// The path of an object's status.
    fn path(&self, key: &ObjectKey) -> Option<String> {
        let (base, plural) = self.resources.get(&key.kind)?.path.rsplit_once('/')?;
        let namespace = match key.namespace.as_str() {
            "" => String::new(),
            namespace => format!("/namespaces/{namespace}"),
        };
        Some(format!("{base}{namespace}/{plural}/{}/status?fieldManager={FIELD_MANAGER}", key.name))
    }

    fn ended(&mut self, ended: Result<(Write, Outcome), tokio::task::JoinError>) {
        match ended {
            Ok((write, outcome)) => {
                let what = match &outcome {
                    Outcome::Written(_) => Written::Stored,
                    Outcome::Conflict => Written::Conflict,
                    Outcome::Failed => Written::Failed,
                };
                self.settings.written.written(write.key.kind.plural(), what);
                self.book.ended(&write, outcome, Instant::now());
            }
            Err(error) => tracing::error!(%error, "a write of a status broke off"),
        }
    }
}

/// A problem, for people who look at the object.
fn message(problem: &Problem) -> Message {
    let path = problem.path.to_string();
    let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let error = problem.severity == Severity::Error;
    Message { error, text: format!("{place}{}", problem.message) }
}

/// The time, in the form of conditions.
fn clock() -> String {
    let now = Timestamp::now().as_second();
    Timestamp::from_second(now).map(|now| now.to_string()).unwrap_or_default()
}

/// Sends a write, which is given up at `limit`.
async fn send(client: &Client, path: &str, write: &Write, limit: Instant) -> Outcome {
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(write.patch.to_string().into_bytes());
    let request = match request {
        Ok(request) => request,
        Err(error) => {
            tracing::error!(object = %write.key, %error, "no request for this object");
            return Outcome::Failed;
        }
    };
    match tokio::time::timeout_at(limit, client.request::<Stored>(request)).await {
        Ok(Ok(stored)) => {
            tracing::debug!(object = %write.key, "status written");
            Outcome::Written(stored)
        }
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Outcome::Conflict,
        Ok(Err(error)) => {
            let reason = chain(&error);
            tracing::warn!(object = %write.key, reason, "the status is not written; it is tried again");
            Outcome::Failed
        }
        Err(_) => Outcome::Failed,
    }
}

/// How many writes there may be: a burst, and then one after each pause.
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    fn has(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.since).as_millis() / PAUSE.as_millis().max(1);
        let more = u32::try_from(more).unwrap_or(BURST).min(BURST - self.left.min(BURST));
        self.left += more;
        self.since = if self.left >= BURST { now } else { self.since + PAUSE * more };
        self.left > 0
    }

    fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// When there is one again, if there is none.
    fn refill(&self) -> Option<Instant> {
        (self.left == 0).then(|| self.since + PAUSE)
    }
}
