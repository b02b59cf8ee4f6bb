//! Workloads outside of Kubernetes register themselves by connecting: a proxy that names a WorkloadGroup gets a WorkloadEntry
//! for as long as it is connected, and a workload with an entry reports its health there.
//!
//! ```text
//!  streams ── Event ──▶ ConnectionTracker ── Task ──▶ Registry ── reads, annotations, writes ──▶ API server
//!             (pure: who is connected)   (rim around the pure rules of `annotations` and `entry`)
//! ```
//!
//! A proxy is admitted from what is known already, without a request to the API server; the entry is written while the first answers
//! are on their way. Every replica does this for its own streams; the annotations in the entries (which replica, since when) keep
//! replicas from undoing each other's work, so none has to lead.

mod address;
mod annotations;
mod entry;
mod mailbox;
mod stale_tracker;
#[cfg(test)]
mod tests;
mod tracker;
#[cfg(test)]
mod tracker_tests;

pub use address::AddressRule;
pub use entry::{EntryName, RegistrationRequest};

use annotations::{CleanUp, Connected, ConnectionMark, Seen, Verdict, later};
use entry::make;
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use mailbox::{EventReceiver, EventSender, mailbox};
use pilotfish_config::networking::{WorkloadEntry, WorkloadGroup};
use pilotfish_kube::client::Client;
use pilotfish_kube::request::{RequestError, within};
use pilotfish_model::{Kind, Namespace, Object, ObjectKey, Typed, World};
use pilotfish_source::ErrorClass;
use serde_json::Value;
use stale_tracker::StaleTracker;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracker::{ConnectionTracker, Event, Outcome, Task};

/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(10);
/// Requests at a time.
const AT_A_TIME: usize = 16;
/// The sweep runs once in so many grace periods.
const SWEEP: u32 = 10;
/// And at least as often as this, so that annotations are renewed in time.
const LONGEST_SWEEP: Duration = Duration::from_secs(5 * 60);
/// How often a failure that lasts is logged.
const REPORT_AGAIN: Duration = Duration::from_secs(30);

/// The newest world.
pub type WorldNow = Arc<dyn Fn() -> Arc<World> + Send + Sync>;

/// Why a proxy is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// There is no such group.
    #[error("there is no WorkloadGroup {namespace}/{group}, which AUTO_REGISTER_GROUP names")]
    NoGroup {
        /// The namespace of the proxy.
        namespace: String,
        /// The group.
        group: String,
    },
    /// There is no such entry.
    #[error("there is no WorkloadEntry {0}, which WORKLOAD_ENTRY names")]
    NoEntry(EntryName),
    /// The connection does not prove that the proxy belongs to the entry.
    #[error("not for WorkloadEntry {entry}: {reason}")]
    NotYours {
        /// The entry.
        entry: EntryName,
        /// What does not fit.
        reason: String,
    },
    /// The address cannot be the workload's own.
    #[error("{address} is registered for nobody: {reason}")]
    Address {
        /// What the node claims.
        address: String,
        /// Why it cannot be.
        reason: String,
    },
}

/// The identity that a connection proved.
#[derive(Clone, Copy, Debug)]
pub struct PeerIdentity<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The service account.
    pub service_account: &'a str,
}

/// What is done for workloads that connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationFeatures {
    /// Whether workloads of WorkloadGroups get entries.
    pub registration: bool,
    /// Whether workloads may report their health in their entry.
    pub health_checks: bool,
    /// Which address a workload gets an entry for.
    pub address: AddressRule,
}

/// What was written, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A workload got an entry.
    Registered,
    /// An entry is marked as connected again, or elsewhere.
    Updated,
    /// An entry is marked as disconnected.
    Unregistered,
    /// An entry was taken away.
    Deleted,
    /// Something could not be written.
    Failed,
}

/// Records what was written.
pub trait EntryObserver: Send + Sync {
    /// Something was written, or not.
    fn entry(&self, what: Written);
}

/// Admits workloads and hands them to [`Registrations`]. Cheap to clone.
#[derive(Clone)]
pub struct Registrar {
    features: RegistrationFeatures,
    events: EventSender,
    connections: Arc<AtomicU64>,
}

/// A connection of a workload with an entry. Dropping it ends the connection.
pub struct Registration {
    connection: u64,
    entry: EntryName,
    events: EventSender,
    takes_health: bool,
}

impl Registrar {
    /// Admits a proxy. `None`: it has no entry, or one that is not managed here.
    ///
    /// # Errors
    /// When it claims an entry that it may not have.
    pub fn connect(
        &self,
        mut request: RegistrationRequest,
        world: &World,
        peer: Option<PeerIdentity<'_>>,
    ) -> Result<Option<Registration>, RegistrationError> {
        let Some(entry) = admit(self.features, &request, world, peer)? else { return Ok(None) };
        // An entry with health checks whose reports are ignored would count as unhealthy for ever.
        request.health_checks &= self.features.health_checks;
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let (entry_of_it, events) = (entry.clone(), self.events.clone());
        let takes_health = self.features.health_checks;
        let registration = Registration { connection, entry: entry_of_it, events, takes_health };
        // Later than the entry's annotations, whichever clock they are from.
        let known = entry_of(&entry, world).and_then(|known| mark_of(&known.meta().annotations));
        let at = later(Timestamp::now(), known.and_then(|mark| mark.latest()));
        registration.events.send(Event::Connected { connection, entry, request, at });
        Ok(Some(registration))
    }

    /// A WorkloadGroup appeared: its workloads that are connected are registered again.
    pub fn group_added(&self, namespace: &str, name: &str) {
        self.events.send(Event::GroupAdded { namespace: namespace.to_owned(), name: name.to_owned() });
    }

    /// An entry changed; `None`: it is gone. Where its workload is connected here, the entry has to be marked.
    pub fn entry_changed(&self, key: &ObjectKey, object: Option<&Object>) {
        let entry = EntryName { namespace: key.namespace.as_str().into(), name: key.name.clone() };
        match object {
            None => self.events.send(Event::Gone { entry, at: Instant::now() }),
            Some(object) => {
                if mark_of(&object.meta.annotations).is_some_and(|mark| mark.has_left()) {
                    self.events.send(Event::Left { entry });
                }
            }
        }
    }
}

fn mark_of(annotations: &BTreeMap<String, String>) -> Option<ConnectionMark> {
    ConnectionMark::of(|name| annotations.get(name).map(String::as_str))
}

impl Registration {
    /// The workload reports its health: `Err` with what is wrong.
    pub fn report(&self, health: Result<(), String>) {
        if !self.takes_health {
            return;
        }
        self.events.send(Event::Health { entry: self.entry.clone(), at: Timestamp::now(), health });
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let (connection, entry) = (self.connection, self.entry.clone());
        self.events.send(Event::Disconnected { connection, entry, at: Timestamp::now() });
    }
}

/// The entry that a proxy has, or is to have.
fn admit(
    features: RegistrationFeatures,
    request: &RegistrationRequest,
    world: &World,
    peer: Option<PeerIdentity<'_>>,
) -> Result<Option<EntryName>, RegistrationError> {
    if !request.group.is_empty() && features.registration {
        let Some(name) = request.made_entry() else {
            tracing::warn!(
                group = request.group,
                "a proxy without address or namespace, or with a network that makes no name, cannot be registered"
            );
            return Ok(None);
        };
        let group = group_of(request, world).ok_or_else(|| RegistrationError::NoGroup {
            namespace: request.namespace.clone(),
            group: request.group.clone(),
        })?;
        let account = group.template.as_ref().map_or("", |template| &template.service_account);
        let known = entry_of(&name, world);
        let account = known.as_ref().map_or(account, |entry| &entry.service_account);
        prove(&name, account, peer)?;
        let refused = |reason| RegistrationError::Address { address: request.address.clone(), reason };
        address::check(request, features.address, world).map_err(refused)?;
        return Ok(Some(name));
    }
    if request.entry.is_empty() || !features.health_checks {
        return Ok(None);
    }
    let name =
        EntryName { namespace: request.namespace.as_str().into(), name: request.entry.as_str().into() };
    let entry = entry_of(&name, world).ok_or_else(|| RegistrationError::NoEntry(name.clone()))?;
    if !annotations::asks_for_health(|key| entry.meta().annotations.get(key).map(String::as_str)) {
        return Ok(None);
    }
    prove(&name, &entry.service_account, peer)?;
    Ok(Some(name))
}

fn group_of(request: &RegistrationRequest, world: &World) -> Option<Typed<WorkloadGroup>> {
    world.typed(&Namespace::from(&*request.namespace), &request.group)
}

fn entry_of(name: &EntryName, world: &World) -> Option<Typed<WorkloadEntry>> {
    world.typed(&Namespace::from(&*name.namespace), &name.name)
}

fn prove(entry: &EntryName, account: &str, peer: Option<PeerIdentity<'_>>) -> Result<(), RegistrationError> {
    let refuse = |reason: String| Err(RegistrationError::NotYours { entry: entry.clone(), reason });
    match peer {
        None => refuse("the connection proves no identity".into()),
        Some(peer) if peer.namespace != &*entry.namespace => {
            refuse(format!("the identity is of namespace {:?}", peer.namespace))
        }
        Some(peer) if !account.is_empty() && peer.service_account != account => {
            refuse(format!("the identity is of service account {:?}, not {account:?}", peer.service_account))
        }
        Some(_) => Ok(()),
    }
}

/// Writes entries for as long as it runs.
pub struct Registrations {
    tracker: ConnectionTracker,
    stale_tracker: StaleTracker,
    events: EventReceiver,
    /// Keeps the channel open while nothing is connected.
    _registrar: Registrar,
    writer: Arc<Writer>,
    grace: Duration,
}

/// What every task needs.
struct Writer {
    client: Client,
    /// This replica.
    replica: Arc<str>,
    world: WorldNow,
    observer: Arc<dyn EntryObserver>,
    /// The status of the failure that was logged last (0 without an answer), and when.
    reported: Mutex<Option<(u16, Instant)>>,
    turns: Semaphore,
}

/// How workloads are registered.
pub struct RegistrationSettings {
    /// What names this replica.
    pub replica: Arc<str>,
    /// What is done.
    pub features: RegistrationFeatures,
    /// How long entries are kept after their workload is gone.
    pub grace: Duration,
    /// Records what was written.
    pub observer: Arc<dyn EntryObserver>,
}

/// Makes both ends.
#[must_use]
pub fn registrations(
    client: Client,
    settings: RegistrationSettings,
    world: WorldNow,
) -> (Registrar, Registrations) {
    let RegistrationSettings { replica, features, grace, observer } = settings;
    let (sender, events) = mailbox();
    let registrar = Registrar { features, events: sender, connections: Arc::default() };
    let turns = Semaphore::new(AT_A_TIME);
    let writer = Arc::new(Writer { client, replica, world, observer, reported: Mutex::default(), turns });
    let (tracker, stale_tracker) = (ConnectionTracker::new(grace), StaleTracker::default());
    (
        registrar.clone(),
        Registrations { tracker, stale_tracker, events, _registrar: registrar, writer, grace },
    )
}

impl Registrations {
    /// Runs until `stop` is done, and then until what connections brought is written.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut stopping = false;
        let every = (self.grace * SWEEP).clamp(Duration::from_millis(100), LONGEST_SWEEP);
        let mut sweep = tokio::time::interval(every);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tasks: JoinSet<(EntryName, Task, Outcome)> = JoinSet::new();
        loop {
            if stopping {
                self.events.take().into_iter().for_each(|event| self.tracker.take(event));
                if tasks.is_empty() && !self.tracker.has_news() {
                    return;
                }
            }
            for (name, task) in self.tracker.due(Instant::now()) {
                tasks.spawn(perform(self.writer.clone(), name, task));
            }
            let next = self.tracker.next();
            let wait = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(events) = self.events.recv() => events.into_iter().for_each(|event| self.tracker.take(event)),
                Some(done) = tasks.join_next() => match done {
                    Ok((name, task, outcome)) => self.tracker.done(&name, &task, outcome, Instant::now()),
                    Err(error) => tracing::error!(%error, "a write of a WorkloadEntry panicked"),
                },
                () = wait => {}
                () = &mut stop, if !stopping => {
                    stopping = true;
                    self.tracker.end();
                }
                _ = sweep.tick() => self.sweep(),
            }
        }
    }

    /// Finds entries without a connection, and connections without an entry.
    fn sweep(&mut self) {
        let (world, now) = ((self.writer.world)(), Instant::now());
        let annotations = world.objects(Kind::WorkloadEntry).filter_map(|object| {
            let key = object.key();
            let name = EntryName { namespace: key.namespace.as_str().into(), name: key.name.clone() };
            Some((name, mark_of(&object.meta.annotations)?))
        });
        for stale in self.stale_tracker.update(annotations, (&self.writer.replica, self.grace), now) {
            self.tracker.stale(stale);
        }
        let known = |name: &EntryName| {
            let entry = entry_of(name, &world)?;
            Some(mark_of(&entry.meta().annotations).and_then(|mark| mark.latest()))
        };
        self.tracker.renew(known, (now, Timestamp::now()));
    }
}

/// Does what has to be done for an entry.
async fn perform(writer: Arc<Writer>, name: EntryName, task: Task) -> (EntryName, Task, Outcome) {
    // An entry for which something broke down must not be waited for for ever.
    let outcome = match AssertUnwindSafe(writer.perform(&name, &task)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::error!(entry = %name, "a write of a WorkloadEntry panicked");
            Outcome::GiveUp
        }
    };
    if matches!(outcome, Outcome::Retry | Outcome::GiveUp) {
        writer.observer.entry(Written::Failed);
    }
    (name, task, outcome)
}

impl Writer {
    /// Logs that writing fails, seldom: when an API server dies, a thousand entries fail for one reason.
    fn report_failure(&self, name: &EntryName, code: u16, reason: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = reported.is_none_or(|(before, at)| {
            at.elapsed() > if before == code { REPORT_AGAIN } else { Duration::from_secs(1) }
        });
        if is_news {
            *reported = Some((code, Instant::now()));
            tracing::warn!(entry = %name, reason, "WorkloadEntries cannot be written now, retrying");
        }
    }

    async fn perform(&self, name: &EntryName, task: &Task) -> Outcome {
        let Ok(_turn) = self.turns.acquire().await else { return Outcome::GiveUp };
        let done = match task {
            Task::Connect { request, at } => self.connect(name, request, *at).await,
            Task::Disconnect { at } => self.disconnect(name, *at).await,
            Task::Report { at, health } => self.report(name, *at, health).await,
            Task::CleanUp { seen, is_sure } => self.clean_up(name, seen, *is_sure).await,
        };
        let error = match done {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        let reason = &error.message;
        match (error.class, error.status) {
            (ErrorClass::Gone, _) => Outcome::Missing,
            (ErrorClass::Conflict, _) => Outcome::Retry,
            (ErrorClass::Rejected, Some(_)) => {
                tracing::warn!(entry = %name, reason, "the API server refuses a WorkloadEntry; the next sweep tries again");
                Outcome::GiveUp
            }
            (_, status) => {
                self.report_failure(name, status.unwrap_or(0), reason);
                Outcome::Retry
            }
        }
    }

    async fn connect(
        &self,
        name: &EntryName,
        request: &RegistrationRequest,
        at: Timestamp,
    ) -> Result<Outcome, RequestError> {
        let mut object = match self.get(name).await {
            Ok(object) => object,
            Err(error) if error.class == ErrorClass::Gone && !request.group.is_empty() => {
                let Some(group) = group_of(request, &(self.world)()) else {
                    tracing::warn!(entry = %name, group = request.group, "the WorkloadGroup is gone, no entry is made");
                    return Ok(Outcome::GiveUp);
                };
                let object = make(name, &group, request, &self.replica, at);
                self.send(http::Method::POST, &collection(name), &object).await?;
                tracing::info!(entry = %name, "registered");
                self.observer.entry(Written::Registered);
                return Ok(Outcome::Done);
            }
            Err(error) => return Err(error),
        };
        match annotations::connect(&mut object, &self.replica, at) {
            Connected::Here(Verdict::Write) => {
                self.send(http::Method::PUT, &path(name), &object).await?;
                self.observer.entry(Written::Updated);
                Ok(Outcome::Done)
            }
            Connected::Here(Verdict::Skip) => Ok(Outcome::Done),
            Connected::Elsewhere => Ok(Outcome::Elsewhere),
        }
    }

    async fn disconnect(&self, name: &EntryName, at: Timestamp) -> Result<Outcome, RequestError> {
        let mut object = self.get(name).await?;
        if annotations::disconnect(&mut object, &self.replica, at) == Verdict::Write {
            self.send(http::Method::PUT, &path(name), &object).await?;
            tracing::info!(entry = %name, "disconnected");
            self.observer.entry(Written::Unregistered);
        }
        Ok(Outcome::Done)
    }

    async fn report(
        &self,
        name: &EntryName,
        at: Timestamp,
        health: &Result<(), String>,
    ) -> Result<Outcome, RequestError> {
        let mut object = self.get(name).await?;
        if annotations::report(&mut object, &self.replica, at, health) == Verdict::Write {
            self.send(http::Method::PUT, &format!("{}/status", path(name)), &object).await?;
        }
        Ok(Outcome::Done)
    }

    async fn clean_up(&self, name: &EntryName, seen: &Seen, is_sure: bool) -> Result<Outcome, RequestError> {
        let mut object = match self.get(name).await {
            Ok(object) => object,
            Err(error) if error.class == ErrorClass::Gone => return Ok(Outcome::Done),
            Err(error) => return Err(error),
        };
        match annotations::clean_up(&mut object, &self.replica, seen) {
            CleanUp::Leave => {}
            _ if !is_sure => return Ok(Outcome::Again),
            CleanUp::ForgetHealth => {
                self.send(http::Method::PUT, &format!("{}/status", path(name)), &object).await?;
                tracing::info!(entry = %name, "the workload is gone, its health is unknown");
            }
            CleanUp::Delete => {
                let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                let options = serde_json::json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version},
                });
                match self.send(http::Method::DELETE, &path(name), &options).await {
                    Err(error) if error.class != ErrorClass::Gone => return Err(error),
                    _ => {
                        tracing::info!(entry = %name, "the workload is gone, and so is its entry");
                        self.observer.entry(Written::Deleted);
                    }
                }
            }
        }
        Ok(Outcome::Done)
    }

    async fn get(&self, name: &EntryName) -> Result<Value, RequestError> {
        let request = http::Request::get(path(name)).body(Vec::new());
        self.request(request).await
    }

    async fn send(&self, method: http::Method, path: &str, object: &Value) -> Result<(), RequestError> {
        let body = object.to_string().into_bytes();
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        self.request(request).await.map(drop)
    }

    async fn request(&self, request: http::Result<http::Request<Vec<u8>>>) -> Result<Value, RequestError> {
        within(ANSWER, self.client.request(request?)).await
    }
}

fn collection(name: &EntryName) -> String {
    format!("/apis/{}/namespaces/{}/workloadentries", entry::API, name.namespace)
}

fn path(name: &EntryName) -> String {
    format!("{}/{}", collection(name), name.name)
}
