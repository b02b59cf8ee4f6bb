//! Registration of workloads outside of Kubernetes by their connections: a proxy with a WorkloadGroup in its
//! metadata has a WorkloadEntry for as long as it is connected, and a workload with an entry reports its
//! health there.
//!
//! ```text
//!  streams ── Event ──▶ ConnectionTracker ── Task ──▶ Registry ── reads, annotations, writes ──▶ API server
//!             (pure: who is connected)   (rim around the pure rules of `annotations` and `entry`)
//! ```
//!
//! A proxy is admitted by the known world, without a request to the API server; the entry is written while
//! the first responses are sent. Every replica does this for its own streams; annotations of the entries
//! (replica and time) keep replicas from undoing each other's writes, so no leader is needed.

mod address;
mod admission;
mod annotations;
mod entry;
mod mailbox;
mod stale_tracker;
#[cfg(test)]
mod tests;
mod tracker;
#[cfg(test)]
mod tracker_tests;
mod writer;

pub use address::AddressRule;
pub use entry::{EntryName, RegistrationRequest};

use admission::{admit, entry_of};
use annotations::{ConnectionMark, later};
use k8s_openapi::jiff::Timestamp;
use mailbox::{EventReceiver, EventSender, mailbox};
use pilotfish_kube::client::Client;
use pilotfish_model::{Kind, Object, ObjectKey, World};
use stale_tracker::StaleTracker;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracker::{ConnectionTracker, Event, Outcome, Task};
use writer::{AT_A_TIME, Writer, perform};

/// Number of grace periods between two sweeps.
const SWEEP: u32 = 10;
/// Maximum interval of sweeps, so that annotations are renewed in time.
const LONGEST_SWEEP: Duration = Duration::from_secs(5 * 60);

/// Access to the newest world.
pub type WorldNow = Arc<dyn Fn() -> Arc<World> + Send + Sync>;

/// Reason to refuse a proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// The WorkloadGroup does not exist.
    #[error("there is no WorkloadGroup {namespace}/{group}, which AUTO_REGISTER_GROUP names")]
    NoGroup { namespace: String, group: String },
    /// The WorkloadEntry does not exist.
    #[error("there is no WorkloadEntry {0}, which WORKLOAD_ENTRY names")]
    NoEntry(EntryName),
    /// The connection does not prove that the proxy belongs to the entry.
    #[error("not for WorkloadEntry {entry}: {reason}")]
    NotYours { entry: EntryName, reason: String },
    /// The address cannot be the workload's own.
    #[error("{address} is registered for nobody: {reason}")]
    Address {
        /// Address that the node claims.
        address: String,
        /// Reason why it cannot be.
        reason: String,
    },
}

/// Authenticated identity of a connection.
#[derive(Clone, Copy, Debug)]
pub struct PeerIdentity<'a> {
    pub namespace: &'a str,
    pub service_account: &'a str,
}

/// Enabled features for connecting workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationFeatures {
    /// True if entries are created for workloads of WorkloadGroups.
    pub registration: bool,
    /// True if workloads may report their health in their entry.
    pub health_checks: bool,
    /// Source of the address for a workload's entry.
    pub address: AddressRule,
}

/// Kind of a write, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// An entry was created for a workload.
    Registered,
    /// An entry was marked as connected again, or elsewhere.
    Updated,
    /// An entry was marked as disconnected.
    Unregistered,
    Deleted,
    /// A write or deletion of an entry failed.
    Failed,
}

/// Receiver of writes, for metrics.
pub trait EntryObserver: Send + Sync {
    /// Called after a write or its failure.
    fn entry(&self, what: Written);
}

/// Admits workloads and passes them to [`Registrations`]. Cheap to clone.
#[derive(Clone)]
pub struct Registrar {
    features: RegistrationFeatures,
    events: EventSender,
    connections: Arc<AtomicU64>,
}

/// Connection of a workload with an entry. Dropping it ends the connection.
pub struct Registration {
    connection: u64,
    entry: EntryName,
    events: EventSender,
    takes_health: bool,
}

impl Registrar {
    /// Admits a proxy. `None` if it has no entry, or one that is not managed here.
    ///
    /// # Errors
    /// If it claims an entry that it may not have.
    pub fn connect(
        &self,
        mut request: RegistrationRequest,
        world: &World,
        peer: Option<PeerIdentity<'_>>,
    ) -> Result<Option<Registration>, RegistrationError> {
        let Some(entry) = admit(self.features, &request, world, peer)? else { return Ok(None) };
        // Otherwise an entry with health checks whose reports are ignored would stay unhealthy for ever.
        request.health_checks &= self.features.health_checks;
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let (entry_of_it, events) = (entry.clone(), self.events.clone());
        let takes_health = self.features.health_checks;
        let registration = Registration { connection, entry: entry_of_it, events, takes_health };
        // Later than the entry's annotations, independent of their clock.
        let known = entry_of(&entry, world).and_then(|known| mark_of(&known.meta().annotations));
        let at = later(Timestamp::now(), known.and_then(|mark| mark.latest()));
        registration.events.send(Event::Connected { connection, entry, request, at });
        Ok(Some(registration))
    }

    /// Registers the connected workloads of a new WorkloadGroup again.
    pub fn group_added(&self, namespace: &str, name: &str) {
        self.events.send(Event::GroupAdded { namespace: namespace.to_owned(), name: name.to_owned() });
    }

    /// Handles a changed or removed (`None`) entry, whose mark is missing if its workload is connected here.
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
    /// Reports the workload's health: `Err` with the problem.
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

/// Writer of entries, as long as it runs.
pub struct Registrations {
    tracker: ConnectionTracker,
    stale_tracker: StaleTracker,
    events: EventReceiver,
    /// Keeps the channel open without connections.
    _registrar: Registrar,
    writer: Arc<Writer>,
    grace: Duration,
}

/// Settings of registration by connection.
pub struct RegistrationSettings {
    /// Name of this replica.
    pub replica: Arc<str>,
    pub features: RegistrationFeatures,
    /// Time that entries are kept after their workload disconnected.
    pub grace: Duration,
    pub observer: Arc<dyn EntryObserver>,
}

/// Creates the handle of connections and the task that writes entries.
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
    /// Runs until `stop` completes, and then until all pending events of connections are written.
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
                Some(events) = self.events.recv() => {
                    events.into_iter().for_each(|event| self.tracker.take(event));
                }
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
