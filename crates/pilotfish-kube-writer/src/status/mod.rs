//! Writing back: the status of objects through the API server, for as long as this replica leads.
//!
//! ```text
//! worlds ── wanted statuses ─▶ StatusQueue (pure: what differs) ── Write ─▶ API server
//!                                ▲        ▲                             │
//!                                │        │ addresses of hosts          │
//!                                │    Allocator (pure: whose is free)   │
//!                                │        ▲                             │
//!                                └────────┴─ watches of the same objects ◀┘
//! ```

mod addresses;
mod messages;
mod queue;
mod request;
#[cfg(test)]
mod tests;
mod throttle;

pub use addresses::AddressRanges;

use crate::lease::Leadership;
use addresses::Allocator;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use messages::Messages;
use pilotfish_config::status::{Message, Status};
use pilotfish_config::{Problem, Severity};
use pilotfish_kube::request::{BACKOFF, within};
use pilotfish_kube::watch::{Change, Observer, Reader, Resource, Stored, Watch, WatchTarget, WatchUpdate};
use pilotfish_kube::{has_status, resources_of};
use pilotfish_model::{Kind, Object, ObjectKey, Revision, World};
use pilotfish_source::{Backoff, Jitter};
use queue::{Outcome, StatusQueue, Write};
use request::{WriteResponse, send};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use throttle::Throttle;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// The field manager under which status is written.
pub const FIELD_MANAGER: &str = "pilotfish-status";

/// Writes that may be under way at a time.
const AT_A_TIME: usize = 8;
/// How long one write may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How often the served kinds are discovered.
const REDISCOVER_AFTER: Duration = Duration::from_secs(30);
/// WatchUpdate of watches that may wait.
const WAITING: usize = 1024;

/// A world, and the statuses that differ from those of the world before.
pub struct DesiredStatuses {
    /// The world.
    pub world: Arc<World>,
    /// The statuses; `None` for objects that have none any more.
    pub changes: Vec<(ObjectKey, Option<Arc<Status>>)>,
    /// Whether the mesh's settings or a namespace changed, so that other namespaces may take part in the mesh now.
    pub namespaces: bool,
    /// What is doubtful about objects because of others, for those about which it differs; empty for what is well again.
    pub findings: Vec<(ObjectKey, Vec<Message>)>,
}

/// What happened to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is stored.
    Stored,
    /// Another writer was faster; it is computed again.
    Conflict,
    /// The object was deleted meanwhile.
    Gone,
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
            Self::Gone => "gone",
            Self::Failed => "failed",
        }
    }
}

/// Hears what is written.
pub trait WriteObserver: Send + Sync {
    /// A write of the status of an object of that kind came to an end.
    fn written(&self, kind: &'static str, what: Written);
}

/// What is written, and to which cluster.
#[derive(Clone)]
pub struct StatusSettings {
    /// The cluster's id, for messages.
    pub cluster: Arc<str>,
    /// Kinds whose statuses come from the control loop.
    pub wanted: Vec<Kind>,
    /// Kinds whose own problems are written into their status.
    pub analysed: Vec<Kind>,
    /// The ranges from which hosts of ServiceEntries are given addresses, where they are.
    pub addresses: Option<AddressRanges>,
    /// The revision whose objects have their status from us, with its tags.
    pub revision: watch::Receiver<Revision>,
    /// Hears what happens to watches.
    pub observer: Arc<dyn Observer>,
    /// Hears what is written.
    pub written: Arc<dyn WriteObserver>,
}

/// What the API server has, or why that is not known.
type Groups = Result<APIGroupDiscoveryList, String>;

/// Writes status while this replica leads.
pub struct StatusWriter {
    client: Client,
    settings: StatusSettings,
    leadership: Leadership,
    queue: StatusQueue,
    allocator: Option<Allocator>,
    /// Where kinds are served whose status can be written.
    resources: BTreeMap<Kind, Resource>,
    /// Those of them that the API server did not name the last time.
    missed: BTreeSet<Kind>,
    discoveries: JoinSet<Groups>,
    discover_at: Instant,
    backoff: Backoff,
    watches: JoinSet<()>,
    watched: BTreeMap<Kind, watch::Sender<Option<Resource>>>,
    writes: JoinSet<(Write, WriteResponse)>,
    throttle: Throttle,
    messages: Messages,
    /// Kinds whose status was not written the last time, of which the log has a warning.
    failing: BTreeSet<Kind>,
    jitter: Jitter,
}

impl StatusWriter {
    /// A writer for objects in the cluster of that client.
    #[must_use]
    pub fn new(client: Client, settings: StatusSettings, leadership: Leadership) -> Self {
        let jitter = Jitter::default();
        Self {
            client,
            leadership,
            queue: StatusQueue::default(),
            allocator: settings.addresses.map(Allocator::new),
            settings,
            resources: BTreeMap::new(),
            missed: BTreeSet::new(),
            discoveries: JoinSet::new(),
            discover_at: Instant::now(),
            backoff: Backoff::new(BACKOFF, jitter.fork("discovery")),
            watches: JoinSet::new(),
            watched: BTreeMap::new(),
            writes: JoinSet::new(),
            throttle: Throttle::new(jitter.fork("throttle")),
            messages: Messages::default(),
            failing: BTreeSet::new(),
            jitter,
        }
    }

    /// With this randomness for the times between requests.
    #[must_use]
    pub fn with_jitter(self, jitter: Jitter) -> Self {
        let backoff = Backoff::new(BACKOFF, jitter.fork("discovery"));
        let throttle = Throttle::new(jitter.fork("throttle"));
        Self { backoff, throttle, jitter, ..self }
    }

    /// Writes what is wanted until the sender is dropped, or this replica leads no longer. Writes that are under way then
    /// are given up: whether they are stored is not known, and the next leader writes what is missing.
    pub async fn run(mut self, mut wanted: mpsc::Receiver<DesiredStatuses>) {
        let (sender, mut updates) = mpsc::channel(WAITING);
        let mut leadership = self.leadership.clone();
        let mut revision = self.settings.revision.clone();
        loop {
            self.queue.set_revision(revision.borrow_and_update().clone());
            self.write();
            let due = self.wakes();
            tokio::select! {
                biased;
                () = leadership.lost() => return,
                Some(ended) = self.writes.join_next() => self.ended(ended),
                message = wanted.recv() => match message {
                    Some(DesiredStatuses { world, changes, namespaces, findings }) => {
                        self.queue.set_desired(world, changes, namespaces);
                        self.set_findings(findings);
                    }
                    None => return,
                },
                // Nobody sends another one where tags are not followed.
                Ok(()) = revision.changed() => {}
                Some((kind, update)) = updates.recv() => self.handle_watch(kind, update),
                Some(groups) = self.discoveries.join_next() => self.handle_discovery(groups, &sender),
                () = tokio::time::sleep_until(self.discover_at), if self.discoveries.is_empty() => {
                    drop(self.discoveries.spawn(groups(self.client.clone())));
                }
                () = tokio::time::sleep_until(due.unwrap_or(self.discover_at)), if due.is_some() => {}
            }
        }
    }

    /// When there may be something to write without anything else happening.
    fn wakes(&self) -> Option<Instant> {
        if self.writes.len() >= AT_A_TIME {
            return None;
        }
        self.throttle.ready_at(Instant::now()).or_else(|| self.queue.due())
    }

    /// Takes in what the API server has.
    fn handle_discovery(
        &mut self,
        groups: Result<Groups, JoinError>,
        sender: &mpsc::Sender<(Kind, WatchUpdate)>,
    ) {
        let wait = match groups.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(groups) => {
                self.update_watches(&groups, sender);
                self.backoff.reset();
                REDISCOVER_AFTER
            }
            Err(reason) => {
                tracing::debug!(cluster = %self.settings.cluster, reason, "cannot find out which kinds there are");
                self.backoff.wait()
            }
        };
        self.discover_at = Instant::now() + wait;
    }

    /// Finds where kinds are served, and watches them.
    fn update_watches(&mut self, groups: &APIGroupDiscoveryList, sender: &mpsc::Sender<(Kind, WatchUpdate)>) {
        let StatusSettings { wanted, analysed, addresses, .. } = &self.settings;
        let allocated = addresses.map(|_| Kind::ServiceEntry);
        let kinds: BTreeSet<Kind> = wanted.iter().chain(analysed).copied().chain(allocated).collect();
        let mut found = resources_of(groups, &kinds.into_iter().collect::<Vec<_>>());
        // A definition without the subresource has a status that cannot be written.
        found.retain(|kind, resource| has_status(groups, *kind, resource));
        // An API server that has just started may not know yet all that it has: what was there must be missing twice.
        let missed = std::mem::take(&mut self.missed);
        for (kind, resource) in &self.resources {
            if !found.contains_key(kind) && !missed.contains(kind) {
                self.missed.insert(*kind);
                found.insert(*kind, resource.clone());
            }
        }
        self.watched.retain(|kind, sender| {
            let there = found.contains_key(kind);
            if !there {
                sender.send_replace(None);
            }
            there
        });
        if let Some(allocator) = self.allocator.as_mut().filter(|_| !found.contains_key(&Kind::ServiceEntry))
        {
            allocator.vanished();
        }
        for (kind, resource) in &found {
            if self.resources.get(kind) == Some(resource) {
                continue;
            }
            match self.watched.get(kind) {
                Some(sender) => drop(sender.send_replace(Some(resource.clone()))),
                None => self.watch(*kind, resource, sender),
            }
        }
        self.resources = found;
    }

    fn watch(&mut self, kind: Kind, resource: &Resource, sender: &mpsc::Sender<(Kind, WatchUpdate)>) {
        let (resources, followed) = watch::channel(Some(resource.clone()));
        let StatusSettings { cluster, observer, .. } = &self.settings;
        let jitter = self.jitter.fork(kind.plural());
        let target = WatchTarget { cluster: cluster.clone(), kind, observer: observer.clone(), jitter };
        let watch = Watch::new(self.client.clone(), target, Reader::Stored(kind), sender.clone());
        self.watches.spawn(watch.run(followed));
        self.watched.insert(kind, resources);
    }

    fn handle_watch(&mut self, kind: Kind, update: WatchUpdate) {
        match update {
            WatchUpdate::Changes(changes) => {
                for change in changes {
                    match change {
                        Change::Stored { key, object, problems, stored } => {
                            self.stored(key, object, &problems, stored);
                        }
                        Change::Delete(key) => self.gone(&key),
                        // Only other readers send these.
                        Change::Apply { .. } | Change::Rejected { .. } => {}
                    }
                }
            }
            WatchUpdate::Listed => {
                if let Some(allocator) = self.allocator.as_mut().filter(|_| kind == Kind::ServiceEntry) {
                    allocator.listed();
                }
            }
            WatchUpdate::Failed(reason) => {
                tracing::debug!(cluster = %self.settings.cluster, %kind, reason, "stored statuses cannot be read");
            }
            WatchUpdate::Healthy => {}
        }
        for (key, addresses) in self.allocator.as_mut().map(Allocator::settle).unwrap_or_default() {
            self.queue.allocated(&key, addresses);
        }
    }

    fn stored(&mut self, key: ObjectKey, object: Option<Object>, problems: &[Problem], stored: Stored) {
        if self.settings.analysed.contains(&key.kind) {
            let messages = self.messages.stored(&key, problems.iter().map(message).collect());
            self.queue.analysed(&key, messages);
        }
        if let Some(allocator) = self.allocator.as_mut().filter(|_| key.kind == Kind::ServiceEntry) {
            allocator.stored(&key, object.as_ref(), &stored.status);
        }
        // Only statuses that are made of worlds are about the content.
        let object = object.filter(|_| self.settings.wanted.contains(&key.kind));
        self.queue.stored(key, object, stored);
    }

    fn set_findings(&mut self, findings: Vec<(ObjectKey, Vec<Message>)>) {
        for (key, found) in findings {
            if let Some(messages) = self.messages.found(&key, found) {
                self.queue.analysed(&key, messages);
            }
        }
    }

    fn gone(&mut self, key: &ObjectKey) {
        self.messages.gone(key);
        if let Some(allocator) = &mut self.allocator {
            allocator.gone(key);
        }
        self.queue.gone(key);
    }

    /// Starts what is due and allowed.
    fn write(&mut self) {
        while self.writes.len() < AT_A_TIME {
            let now = Instant::now();
            // Checked before each write: only the leader of this very moment may write.
            let Some(until) = self.leadership.until() else { return };
            if !self.throttle.is_ready(now) {
                return;
            }
            let Some(write) = self.queue.next(now, &clock()) else { return };
            let Some(path) = self.path(&write.key) else {
                self.queue.ended(&write, Outcome::Failed, now);
                continue;
            };
            self.throttle.take(now);
            let client = self.client.clone();
            let limit = until.min(now + ANSWER);
            self.writes.spawn(async move {
                let answer = send(&client, &path, &write, limit).await;
                (write, answer)
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

    fn ended(&mut self, ended: Result<(Write, WriteResponse), JoinError>) {
        let (write, answer) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "a write of a status broke off");
                return;
            }
        };
        let now = Instant::now();
        match &answer {
            WriteResponse::Unavailable(_, after) => self.throttle.failed(now, *after),
            _ => self.throttle.succeeded(),
        }
        let (what, outcome) = match answer {
            WriteResponse::Stored(stored) => {
                self.well(write.key.kind);
                (Written::Stored, Outcome::Written(stored))
            }
            WriteResponse::Conflict => (Written::Conflict, Outcome::Conflict),
            WriteResponse::Gone => (Written::Gone, Outcome::Conflict),
            WriteResponse::Rejected(reason) | WriteResponse::Unavailable(reason, _) => {
                self.failed(&write.key, &reason);
                (Written::Failed, Outcome::Failed)
            }
        };
        self.settings.written.written(write.key.kind.plural(), what);
        self.queue.ended(&write, outcome, now);
    }

    /// Tells people once, not for each of a thousand objects.
    fn failed(&mut self, key: &ObjectKey, reason: &str) {
        if self.failing.insert(key.kind) {
            tracing::warn!(object = %key, reason, "the status is not written; it is tried again, and others of the kind as well");
        } else {
            tracing::debug!(object = %key, reason, "the status is not written; it is tried again");
        }
    }

    fn well(&mut self, kind: Kind) {
        if self.failing.remove(&kind) {
            tracing::info!(%kind, "statuses of the kind are written again");
        }
    }
}

/// Asks the API server what it has.
async fn groups(client: Client) -> Groups {
    within(ANSWER, client.list_api_groups_aggregated()).await.map_err(|error| error.to_string())
}

/// A problem, as a message in the object's status.
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
