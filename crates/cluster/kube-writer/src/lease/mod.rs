//! Leader election among replicas. Each purpose has its own Lease (`coordination.k8s.io/v1`).
//!
//! [`Elector`] does the IO for `election`, which makes all decisions: it reads and writes the Lease and
//! provides [`Leadership`], the current state of this replica. Writers check it before each write, and abort
//! a write in flight when the leadership ends.

mod election;
mod record;
#[cfg(test)]
mod tests;

pub use election::ElectionTimes;

use election::{Claim, Election, Step};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use pilotfish_kube::request::within;
use pilotfish_runtime::{ErrorClass, Health, Jitter};
use record::Record;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::Instant;

/// Lease of the replica that writes status.
pub const STATUS_LEASE: &str = "pilotfish-status-leader";

/// Name of a Lease, and identity of this replica.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    pub namespace: Arc<str>,
    /// Name of the Lease: one for each purpose.
    pub name: Arc<str>,
    /// Identity of this candidate, unique for every process.
    pub identity: Arc<str>,
    pub times: ElectionTimes,
}

impl LeaseSettings {
    /// Settings with the name of this Pod as identity.
    #[must_use]
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        let (namespace, name) = (namespace.into(), name.into());
        Self { namespace, name, identity: identity(), times: ElectionTimes::default() }
    }
}

/// Name of this Pod, or else of this machine.
#[must_use]
pub fn replica_name() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host =
        || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    of("POD_NAME").or_else(|| of("HOSTNAME")).or_else(host).unwrap_or_else(|| "pilotfish".to_owned())
}

/// Name of the Pod, or else of the machine, with a random part: a restarted process is another candidate.
#[must_use]
pub fn identity() -> Arc<str> {
    format!("{}_{:013x}", replica_name(), Jitter::default().bits() & ((1 << 52) - 1)).into()
}

/// Current leadership of this replica. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: watch::Receiver<Option<Instant>>,
}

impl Leadership {
    /// Permanent leadership of a single process, as in tests.
    #[must_use]
    pub fn alone() -> Self {
        let far = Instant::now() + Duration::from_secs(365 * 24 * 3600);
        Self { until: watch::channel(Some(far)).1 }
    }

    /// End of the leadership without a renewal; `None` if this replica does not lead now.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.until.borrow().filter(|until| *until > Instant::now())
    }

    /// True if this replica leads now.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.until().is_some()
    }

    /// Waits until this replica leads; for ever if the election is over.
    pub async fn gained(&mut self) {
        loop {
            if self.leads() {
                return;
            }
            if self.until.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until this replica no longer leads.
    pub async fn lost(&mut self) {
        while let Some(until) = self.until() {
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                // Without an elector, the last state stays valid.
                Ok(()) = self.until.changed() => {}
            }
        }
    }
}

/// Candidate of an election, as described in the module.
pub struct Elector {
    api: Api<Lease>,
    settings: LeaseSettings,
    election: Election,
    /// Last read Lease, to keep fields that others have set.
    lease: Option<Lease>,
    sender: watch::Sender<Option<Instant>>,
    health: Health,
    jitter: Jitter,
}

/// Outcome of a request.
enum Response<T> {
    Got(T),
    Refused,
    Failed(String),
}

impl Elector {
    /// Creates a candidate, which is passive until it [runs](Self::run).
    #[must_use]
    pub fn new(client: Client, settings: LeaseSettings) -> (Self, Leadership) {
        let settings = LeaseSettings { times: settings.times.checked(), ..settings };
        let (sender, until) = watch::channel(None);
        let election = Election::new(settings.identity.clone(), settings.times, Instant::now());
        let api = Api::namespaced(client, &settings.namespace);
        let (health, jitter) = (Health::default(), Jitter::default());
        (Self { api, settings, election, lease: None, sender, health, jitter }, Leadership { until })
    }

    /// Sets the randomness for the times between requests.
    #[must_use]
    pub fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// Takes part until `stop`, and then releases the Lease, so that the next candidate leads at once. All
    /// writers must have ended before.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        loop {
            let now = Instant::now();
            match self.election.step(now) {
                Step::Wait(until) => tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = &mut stop => break,
                },
                Step::Read => tokio::select! {
                    answer = read(&self.api, &self.settings) => self.handle_read(answer, now),
                    () = &mut stop => break,
                },
                Step::Write(claim) => {
                    let lease = self.claim(&claim);
                    tokio::select! {
                        answer = write(&self.api, &self.settings, &lease) => self.handle_written(answer, now),
                        () = &mut stop => break,
                    }
                }
            }
            self.publish();
        }
        self.election.resign();
        self.publish();
        self.release().await;
    }

    /// Lease object with the claim.
    fn claim(&self, claim: &Claim) -> Lease {
        let LeaseSettings { identity, times, name, .. } = &self.settings;
        let record = Record::next(claim.before.as_ref(), identity, times.duration, Timestamp::now());
        let before = self.lease.clone().filter(|_| claim.over.is_some());
        record.lease(name, claim.over.as_deref(), before)
    }

    fn handle_read(&mut self, answer: Response<Option<Lease>>, sent: Instant) {
        let now = Instant::now();
        match answer {
            Response::Got(lease) => {
                // A missing Lease does not mean that one can be created: its namespace may be missing.
                if lease.is_some() {
                    self.healthy();
                }
                self.election.read(lease.as_ref().map(parts), now, self.jitter.fraction());
                self.lease = lease;
            }
            Response::Refused => self.election.refused(now, self.jitter.fraction()),
            Response::Failed(reason) => self.handle_failure(&reason, sent),
        }
    }

    fn handle_written(&mut self, answer: Response<Lease>, sent: Instant) {
        let now = Instant::now();
        match answer {
            Response::Got(lease) => {
                self.healthy();
                let (record, version) = parts(&lease);
                self.election.wrote(record, version, sent, now);
                self.lease = Some(lease);
            }
            Response::Refused => self.election.refused(now, self.jitter.fraction()),
            Response::Failed(reason) => self.handle_failure(&reason, sent),
        }
    }

    fn handle_failure(&mut self, reason: &str, sent: Instant) {
        self.election.failed(sent, Instant::now(), self.jitter.fraction());
        if self.health.failed(reason, SystemTime::now()) {
            tracing::warn!(lease = %self.settings.name, reason, "cannot read or write the Lease; retrying");
        }
    }

    fn healthy(&mut self) {
        if self.health.recovered().is_some() {
            tracing::info!(lease = %self.settings.name, "the Lease can be read and written again");
        }
    }

    /// Publishes until when this process leads, and logs a change.
    fn publish(&self) {
        let until = self.election.leads_until(Instant::now());
        let LeaseSettings { name, identity, .. } = &self.settings;
        let before = self.sender.send_replace(until);
        match (before, until) {
            (None, Some(_)) => {
                tracing::info!(lease = %name, %identity, "acquired leadership: this replica holds the Lease")
            }
            (Some(_), None) => {
                tracing::info!(
                    lease = %name,
                    %identity,
                    "lost leadership: the Lease was released, taken over or not renewed in time"
                )
            }
            _ => {}
        }
    }

    /// Releases the Lease if it is ours. On a timeout it is left to expire.
    async fn release(&mut self) {
        let lease = match read(&self.api, &self.settings).await {
            Response::Got(Some(lease)) => lease,
            Response::Got(None) | Response::Refused => return,
            Response::Failed(reason) => return self.not_released(&reason),
        };
        let (record, version) = parts(&lease);
        if record.holder != self.settings.identity {
            return;
        }
        let released = record.released().lease(&self.settings.name, Some(&version), Some(lease));
        if let Response::Failed(reason) = write(&self.api, &self.settings, &released).await {
            self.not_released(&reason);
        }
    }

    fn not_released(&self, reason: &str) {
        tracing::warn!(lease = %self.settings.name, reason, "cannot release the Lease; it will expire");
    }
}

/// Record and version of a Lease.
fn parts(lease: &Lease) -> (Record, Arc<str>) {
    let record = Record::of(lease.spec.as_ref().unwrap_or(&Default::default()));
    (record, lease.metadata.resource_version.as_deref().unwrap_or_default().into())
}

async fn read(api: &Api<Lease>, settings: &LeaseSettings) -> Response<Option<Lease>> {
    request(settings, &[], api.get_opt(&settings.name)).await
}

/// Creates the Lease, or replaces the version that it names.
async fn write(api: &Api<Lease>, settings: &LeaseSettings, lease: &Lease) -> Response<Lease> {
    let params = PostParams { field_manager: Some("pilotfish".to_owned()), ..PostParams::default() };
    if lease.metadata.resource_version.is_some() {
        // Conflict or NotFound: changed or deleted in the meantime.
        request(
            settings,
            &[ErrorClass::Conflict, ErrorClass::Gone],
            api.replace(&settings.name, &params, lease),
        )
        .await
    } else {
        // Conflict: created in the meantime. NotFound would be about the namespace.
        request(settings, &[ErrorClass::Conflict], api.create(&params, lease)).await
    }
}

/// Sends a request with a timeout of half the deadline, so that there is time for another attempt.
async fn request<T>(
    settings: &LeaseSettings,
    refusals: &[ErrorClass],
    sent: impl Future<Output = kube::Result<T>>,
) -> Response<T> {
    let limit = settings.times.deadline / 2;
    match within(limit, sent).await {
        Ok(got) => Response::Got(got),
        Err(error) if refusals.contains(&error.class) => Response::Refused,
        Err(error) => Response::Failed(error.to_string()),
    }
}
