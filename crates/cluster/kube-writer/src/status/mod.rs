//! Status writer: writes the status of objects through the API server while this replica leads.
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
use pilotfish_runtime::{Backoff, Jitter};
use queue::{Outcome, StatusQueue, Write};
use request::{WriteResponse, send};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use throttle::Throttle;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// Field manager of status writes.
pub const FIELD_MANAGER: &str = "pilotfish-status";

/// Maximum number of concurrent writes.
const AT_A_TIME: usize = 8;
/// Timeout of one write.
const ANSWER: Duration = Duration::from_secs(10);
/// Interval at which the served kinds are discovered.
const REDISCOVER_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of queued watch updates.
const WAITING: usize = 1024;

/// A world, and the statuses that differ from those of the previous world.
pub struct DesiredStatuses {
    pub world: Arc<World>,
    /// Changed statuses; `None` for objects that no longer have one.
    pub changes: Vec<(ObjectKey, Option<Arc<Status>>)>,
    /// True if the mesh's settings or a namespace changed, so that other namespaces may now be part of the
    /// mesh.
    pub namespaces: bool,
    /// Changed findings of the reference analysis; empty for objects without any now.
    pub findings: Vec<(ObjectKey, Vec<Message>)>,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Stored,
    /// Another writer was faster; the write is computed again.
    Conflict,
    /// The object was deleted in the meantime.
    Gone,
    /// The write failed and is retried.
    Failed,
}

impl Written {
    /// Value of a metric label.
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

/// Receiver of writes, for metrics.
pub trait WriteObserver: Send + Sync {
    /// Called at the end of a status write for an object of that kind.
    fn written(&self, kind: &'static str, what: Written);
}

/// Settings of the status writer.
#[derive(Clone)]
pub struct StatusSettings {
    /// Cluster id, for messages.
    pub cluster: Arc<str>,
    /// Kinds whose statuses come from the control loop.
    pub wanted: Vec<Kind>,
    /// Kinds whose own problems are written into their status.
    pub analysed: Vec<Kind>,
    /// Ranges for the addresses of ServiceEntry hosts, if they are allocated.
    pub addresses: Option<AddressRanges>,
    /// Revision whose objects are written, with its tags.
    pub revision: watch::Receiver<Revision>,
    /// Receiver of watch events.
    pub observer: Arc<dyn Observer>,
    /// Receiver of the results of writes, for metrics.
    pub written: Arc<dyn WriteObserver>,
}

/// Kinds that the API server serves, or the reason why they are unknown.
type Groups = Result<APIGroupDiscoveryList, String>;

/// Writes status while this replica leads.
pub struct StatusWriter {
    client: Client,
    settings: StatusSettings,
    leadership: Leadership,
    queue: StatusQueue,
    allocator: Option<Allocator>,
    /// Served kinds with a writable status.
    resources: BTreeMap<Kind, Resource>,
    /// Known kinds that were missing in the last discovery.
    missed: BTreeSet<Kind>,
    discoveries: JoinSet<Groups>,
    discover_at: Instant,
    backoff: Backoff,
    watches: JoinSet<()>,
    watched: BTreeMap<Kind, watch::Sender<Option<Resource>>>,
    writes: JoinSet<(Write, WriteResponse)>,
    throttle: Throttle,
    messages: Messages,
    /// Kinds whose last write failed, with a warning in the log.
    failing: BTreeSet<Kind>,
    jitter: Jitter,
}

impl StatusWriter {
    /// Creates a writer for the cluster of that client.
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

    /// Sets the randomness for the times between requests.
    #[must_use]
    pub fn with_jitter(self, jitter: Jitter) -> Self {
        let backoff = Backoff::new(BACKOFF, jitter.fork("discovery"));
        let throttle = Throttle::new(jitter.fork("throttle"));
        Self { backoff, throttle, jitter, ..self }
    }

    /// Writes statuses until the sender is dropped, or this replica no longer leads. Writes in flight are
    /// aborted then: they may or may not be stored, and the next leader writes missing ones.
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
                // The sender is dropped if tags are not followed.
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

    /// Time of the next pending write, if no event comes before.
    fn wakes(&self) -> Option<Instant> {
        if self.writes.len() >= AT_A_TIME {
            return None;
        }
        self.throttle.ready_at(Instant::now()).or_else(|| self.queue.due())
    }

    /// Handles the result of a discovery.
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
                tracing::debug!(cluster = %self.settings.cluster, reason, "cannot discover kinds; retrying");
                self.backoff.wait()
            }
        };
        self.discover_at = Instant::now() + wait;
    }

    /// Finds served kinds, and watches them.
    fn update_watches(&mut self, groups: &APIGroupDiscoveryList, sender: &mpsc::Sender<(Kind, WatchUpdate)>) {
        let StatusSettings { wanted, analysed, addresses, .. } = &self.settings;
        let allocated = addresses.map(|_| Kind::ServiceEntry);
        let kinds: BTreeSet<Kind> = wanted.iter().chain(analysed).copied().chain(allocated).collect();
        let mut found = resources_of(groups, &kinds.into_iter().collect::<Vec<_>>());
        // A definition without the status subresource has a status that cannot be written.
        found.retain(|kind, resource| has_status(groups, *kind, resource));
        // An API server that has just started may not serve all kinds yet: a known kind must be missing
        // twice.
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
                        // Sent by other readers only.
                        Change::Apply { .. } | Change::Rejected { .. } | Change::Json { .. } => {}
                    }
                }
            }
            WatchUpdate::Listed => {
                if let Some(allocator) = self.allocator.as_mut().filter(|_| kind == Kind::ServiceEntry) {
                    allocator.listed();
                }
            }
            WatchUpdate::Failed(reason) => {
                tracing::debug!(
                    cluster = %self.settings.cluster,
                    %kind,
                    reason,
                    "stored statuses cannot be read"
                );
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
        // Only statuses from the control loop depend on the content.
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

    /// Starts writes that are due, within the rate limit.
    fn write(&mut self) {
        while self.writes.len() < AT_A_TIME {
            let now = Instant::now();
            // Checked before each write: only the current leader may write.
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

    /// Path of an object's status.
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
                tracing::error!(%error, "a status write ended early");
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

    /// Logs a warning once for each kind, not for each of a thousand objects.
    fn failed(&mut self, key: &ObjectKey, reason: &str) {
        if self.failing.insert(key.kind) {
            tracing::warn!(
                object = %key,
                reason,
                "cannot write the status; retrying (others of the kind: debug)"
            );
        } else {
            tracing::debug!(object = %key, reason, "cannot write the status; retrying");
        }
    }

    fn well(&mut self, kind: Kind) {
        if self.failing.remove(&kind) {
            tracing::info!(%kind, "statuses of the kind are written again");
        }
    }
}

/// Discovers the kinds that the API server serves.
async fn groups(client: Client) -> Groups {
    within(ANSWER, client.list_api_groups_aggregated()).await.map_err(|error| error.to_string())
}

/// Converts a problem to a message in the object's status.
fn message(problem: &Problem) -> Message {
    let path = problem.path.to_string();
    let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let error = problem.severity == Severity::Error;
    Message { error, text: format!("{place}{}", problem.message) }
}

/// Current time in the format of conditions.
fn clock() -> String {
    let now = Timestamp::now().as_second();
    Timestamp::from_second(now).map(|now| now.to_string()).unwrap_or_default()
}
