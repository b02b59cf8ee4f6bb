//! Workloads outside of Kubernetes register themselves by connecting: a proxy that names a WorkloadGroup gets a WorkloadEntry
//! for as long as it is connected, and a workload with an entry says in it whether it is healthy.
//!
//! ```text
//!  streams ── Event ──▶ Live ── Task ──▶ Registry ── reads, marks, writes ──▶ API server
//!             (pure: who is connected)   (rim around the pure rules of `marks` and `entry`)
//! ```
//!
//! A proxy is admitted from what is known already, without asking the API server; the entry is written while the first answers
//! are on their way. Every replica does this for its own streams; the marks in the entries (which replica, since when) keep
//! replicas from undoing each other's work, so none has to lead.

mod entry;
mod live;
#[cfg(test)]
mod live_tests;
mod mailbox;
mod marks;
mod sightings;
#[cfg(test)]
mod tests;

pub use entry::{Applicant, EntryName};

use entry::make;
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use live::{Event, Live, Outcome, Task};
use mailbox::{EventReceiver, EventSender, mailbox};
use marks::{CleanUp, Connected, Mark, Seen, Verdict, later};
use pilotfish_config::networking::{WorkloadEntry, WorkloadGroup};
use pilotfish_kube::client::Client;
use pilotfish_kube::request::{RequestError, within};
use pilotfish_model::{Kind, Namespace, Object, ObjectKey, Typed, World};
use pilotfish_source::ErrorClass;
use serde_json::Value;
use sightings::Sightings;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(10);
/// Requests at a time.
const AT_A_TIME: usize = 16;
/// The sweep runs once in so many grace periods.
const SWEEP: u32 = 10;
/// And at least as often as this, so that marks are written anew in time.
const LONGEST_SWEEP: Duration = Duration::from_secs(5 * 60);
/// How often a failure that lasts is told.
const TELL_AGAIN: Duration = Duration::from_secs(30);

/// The newest world.
pub type WorldNow = Arc<dyn Fn() -> Arc<World> + Send + Sync>;

/// Why a proxy is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
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
}

/// Who a connection proved to be.
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The service account.
    pub service_account: &'a str,
}

/// What is done for workloads that connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whether workloads of WorkloadGroups get entries.
    pub registration: bool,
    /// Whether workloads may say in their entry how they are.
    pub health_checks: bool,
}

/// What was written, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A workload got an entry.
    Registered,
    /// An entry says that its workload connected again, or elsewhere.
    Updated,
    /// An entry says that its workload left.
    Unregistered,
    /// An entry was taken away.
    Deleted,
    /// Something could not be written.
    Failed,
}

/// Who is told what was written.
pub trait EntryObserver: Send + Sync {
    /// Something was written, or not.
    fn entry(&self, what: Written);
}

/// Admits workloads and tells [`Registrations`] of them. Cheap to clone.
#[derive(Clone)]
pub struct Registrar {
    wanted: Wanted,
    events: EventSender,
    connections: Arc<AtomicU64>,
}

/// A workload with an entry that is connected; dropping it says that it is gone.
pub struct Registration {
    connection: u64,
    entry: EntryName,
    events: EventSender,
    takes_health: bool,
}

impl Registrar {
    /// Admits a proxy. `None`: it has no entry, or one that is nobody's business here.
    ///
    /// # Errors
    /// When it says that it has one and may not have it.
    pub fn connect(
        &self,
        mut applicant: Applicant,
        world: &World,
        proof: Option<Proof<'_>>,
    ) -> Result<Option<Registration>, Refused> {
        let Some(entry) = admit(self.wanted, &applicant, world, proof)? else { return Ok(None) };
        // An entry that asks for reports which nobody takes would count as unhealthy for ever.
        applicant.health_checks &= self.wanted.health_checks;
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let (entry_of_it, events) = (entry.clone(), self.events.clone());
        let takes_health = self.wanted.health_checks;
        let registration = Registration { connection, entry: entry_of_it, events, takes_health };
        // Later than what the entry says already, whoever's clock that was.
        let known = entry_of(&entry, world).and_then(|known| mark_of(&known.meta().annotations));
        let at = later(Timestamp::now(), known.and_then(|mark| mark.latest()));
        registration.events.send(Event::Connected { connection, entry, applicant, at });
        Ok(Some(registration))
    }

    /// A WorkloadGroup appeared: its workloads that are connected are registered again.
    pub fn group_added(&self, namespace: &str, name: &str) {
        self.events.send(Event::GroupAdded { namespace: namespace.to_owned(), name: name.to_owned() });
    }

    /// An entry changed; `None`: it is gone. Where its workload is connected here, it has to say so.
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

fn mark_of(annotations: &BTreeMap<String, String>) -> Option<Mark> {
    Mark::of(|name| annotations.get(name).map(String::as_str))
}

impl Registration {
    /// The workload says how it is: `Err` with what is wrong.
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
    wanted: Wanted,
    applicant: &Applicant,
    world: &World,
    proof: Option<Proof<'_>>,
) -> Result<Option<EntryName>, Refused> {
    if !applicant.group.is_empty() && wanted.registration {
        let Some(name) = applicant.made_entry() else {
            tracing::warn!(
                group = applicant.group,
                "a proxy without address or namespace, or with a network that makes no name, cannot be registered"
            );
            return Ok(None);
        };
        let group = group_of(applicant, world).ok_or_else(|| Refused::NoGroup {
            namespace: applicant.namespace.clone(),
            group: applicant.group.clone(),
        })?;
        let account = group.template.as_ref().map_or("", |template| &template.service_account);
        let known = entry_of(&name, world);
        let account = known.as_ref().map_or(account, |entry| &entry.service_account);
        prove(&name, account, proof)?;
        return Ok(Some(name));
    }
    if applicant.entry.is_empty() || !wanted.health_checks {
        return Ok(None);
    }
    let name =
        EntryName { namespace: applicant.namespace.as_str().into(), name: applicant.entry.as_str().into() };
    let entry = entry_of(&name, world).ok_or_else(|| Refused::NoEntry(name.clone()))?;
    if !marks::asks_for_health(|key| entry.meta().annotations.get(key).map(String::as_str)) {
        return Ok(None);
    }
    prove(&name, &entry.service_account, proof)?;
    Ok(Some(name))
}

fn group_of(applicant: &Applicant, world: &World) -> Option<Typed<WorkloadGroup>> {
    world.typed(&Namespace::from(&*applicant.namespace), &applicant.group)
}

fn entry_of(name: &EntryName, world: &World) -> Option<Typed<WorkloadEntry>> {
    world.typed(&Namespace::from(&*name.namespace), &name.name)
}

fn prove(entry: &EntryName, account: &str, proof: Option<Proof<'_>>) -> Result<(), Refused> {
    let refuse = |reason: String| Err(Refused::NotYours { entry: entry.clone(), reason });
    match proof {
        None => refuse("the connection proves no identity".into()),
        Some(proof) if proof.namespace != &*entry.namespace => {
            refuse(format!("the identity is of namespace {:?}", proof.namespace))
        }
        Some(proof) if !account.is_empty() && proof.service_account != account => {
            refuse(format!("the identity is of service account {:?}, not {account:?}", proof.service_account))
        }
        Some(_) => Ok(()),
    }
}

/// Writes entries for as long as it runs.
pub struct Registrations {
    live: Live,
    sightings: Sightings,
    events: EventReceiver,
    /// Keeps the channel open while nobody is connected.
    _registrar: Registrar,
    writer: Arc<Writer>,
    grace: Duration,
}

/// What every task needs.
struct Writer {
    client: Client,
    /// This replica.
    me: Arc<str>,
    world: WorldNow,
    observer: Arc<dyn EntryObserver>,
    /// With which status writing failed when it was told last, and when that was.
    told: Mutex<Option<(u16, Instant)>>,
    turns: Semaphore,
}

/// How workloads are registered.
pub struct RegistrationSettings {
    /// What names this replica.
    pub me: Arc<str>,
    /// What is done.
    pub wanted: Wanted,
    /// How long entries are kept after their workload is gone.
    pub grace: Duration,
    /// Who is told what was written.
    pub observer: Arc<dyn EntryObserver>,
}

/// Makes both ends.
#[must_use]
pub fn registrations(
    client: Client,
    settings: RegistrationSettings,
    world: WorldNow,
) -> (Registrar, Registrations) {
    let RegistrationSettings { me, wanted, grace, observer } = settings;
    let (tell, events) = mailbox();
    let registrar = Registrar { wanted, events: tell, connections: Arc::default() };
    let turns = Semaphore::new(AT_A_TIME);
    let writer = Arc::new(Writer { client, me, world, observer, told: Mutex::default(), turns });
    let (live, sightings) = (Live::new(grace), Sightings::default());
    (registrar.clone(), Registrations { live, sightings, events, _registrar: registrar, writer, grace })
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
                self.events.take().into_iter().for_each(|event| self.live.take(event));
                if tasks.is_empty() && !self.live.has_news() {
                    return;
                }
            }
            for (name, task) in self.live.due(Instant::now()) {
                tasks.spawn(perform(self.writer.clone(), name, task));
            }
            let next = self.live.next();
            let wait = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(events) = self.events.recv() => events.into_iter().for_each(|event| self.live.take(event)),
                Some(done) = tasks.join_next() => match done {
                    Ok((name, task, outcome)) => self.live.done(&name, &task, outcome, Instant::now()),
                    Err(error) => tracing::error!(%error, "writing a WorkloadEntry broke down"),
                },
                () = wait => {}
                () = &mut stop, if !stopping => {
                    stopping = true;
                    self.live.end();
                }
                _ = sweep.tick() => self.sweep(),
            }
        }
    }

    /// Looks for entries that nobody is connected for, and for connections without an entry.
    fn sweep(&mut self) {
        let (world, now) = ((self.writer.world)(), Instant::now());
        let marks = world.objects(Kind::WorkloadEntry).filter_map(|object| {
            let key = object.key();
            let name = EntryName { namespace: key.namespace.as_str().into(), name: key.name.clone() };
            Some((name, mark_of(&object.meta.annotations)?))
        });
        for suspect in self.sightings.look(marks, (&self.writer.me, self.grace), now) {
            self.live.suspect(suspect);
        }
        let known = |name: &EntryName| {
            let entry = entry_of(name, &world)?;
            Some(mark_of(&entry.meta().annotations).and_then(|mark| mark.latest()))
        };
        self.live.renew(known, (now, Timestamp::now()));
    }
}

/// Does what has to be done for an entry.
async fn perform(writer: Arc<Writer>, name: EntryName, task: Task) -> (EntryName, Task, Outcome) {
    // An entry for which something broke down must not be waited for for ever.
    let outcome = match AssertUnwindSafe(writer.perform(&name, &task)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::error!(entry = %name, "writing a WorkloadEntry broke down");
            Outcome::GiveUp
        }
    };
    if matches!(outcome, Outcome::Retry | Outcome::GiveUp) {
        writer.observer.entry(Written::Failed);
    }
    (name, task, outcome)
}

impl Writer {
    /// Says that writing fails: when an API server dies, a thousand entries fail for one reason.
    fn tell_failure(&self, name: &EntryName, code: u16, reason: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = told.is_none_or(|(before, at)| {
            at.elapsed() > if before == code { TELL_AGAIN } else { Duration::from_secs(1) }
        });
        if is_news {
            *told = Some((code, Instant::now()));
            tracing::warn!(entry = %name, reason, "WorkloadEntries cannot be written now, it is tried again");
        }
    }

    async fn perform(&self, name: &EntryName, task: &Task) -> Outcome {
        let Ok(_turn) = self.turns.acquire().await else { return Outcome::GiveUp };
        let done = match task {
            Task::Connect { applicant, at } => self.connect(name, applicant, *at).await,
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
                self.tell_failure(name, status.unwrap_or(0), reason);
                Outcome::Retry
            }
        }
    }

    async fn connect(
        &self,
        name: &EntryName,
        applicant: &Applicant,
        at: Timestamp,
    ) -> Result<Outcome, RequestError> {
        let mut object = match self.get(name).await {
            Ok(object) => object,
            Err(error) if error.class == ErrorClass::Gone && !applicant.group.is_empty() => {
                let Some(group) = group_of(applicant, &(self.world)()) else {
                    tracing::warn!(entry = %name, group = applicant.group, "the WorkloadGroup is gone, no entry is made");
                    return Ok(Outcome::GiveUp);
                };
                let object = make(name, &group, applicant, &self.me, at);
                self.send(http::Method::POST, &collection(name), &object).await?;
                tracing::info!(entry = %name, "registered");
                self.observer.entry(Written::Registered);
                return Ok(Outcome::Done);
            }
            Err(error) => return Err(error),
        };
        match marks::connect(&mut object, &self.me, at) {
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
        if marks::disconnect(&mut object, &self.me, at) == Verdict::Write {
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
        if marks::report(&mut object, &self.me, at, health) == Verdict::Write {
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
        match marks::clean_up(&mut object, &self.me, seen) {
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
        self.ask(request).await
    }

    async fn send(&self, method: http::Method, path: &str, object: &Value) -> Result<(), RequestError> {
        let body = object.to_string().into_bytes();
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        self.ask(request).await.map(drop)
    }

    async fn ask(&self, request: http::Result<http::Request<Vec<u8>>>) -> Result<Value, RequestError> {
        within(ANSWER, self.client.request(request?)).await
    }
}

fn collection(name: &EntryName) -> String {
    format!("/apis/{}/namespaces/{}/workloadentries", entry::API, name.namespace)
}

fn path(name: &EntryName) -> String {
    format!("{}/{}", collection(name), name.name)
}
