//! The task of a registration: renews, registers again where the lease is unknown, deregisters at the end.

use crate::client::RegistrationClient;
use crate::error::ClientError;
use crate::registration::RegistrationState;
use pilotfish_registration_api::v1;
use pilotfish_source::{Backoff, BackoffPolicy, Jitter};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Code;

/// The lease where the application wants none of its own.
const TTL: Duration = Duration::from_secs(30);
/// How long deregistering is tried.
const GOODBYE: Duration = Duration::from_secs(5);
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(5));

/// What the application asks for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Registers this from now on.
    Update(Box<v1::Instance>, oneshot::Sender<Result<(), ClientError>>),
    /// Deregisters.
    Close,
}

/// What the next call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Renew,
    Register,
}

/// Keeps one instance.
pub(crate) struct Keeper {
    client: RegistrationClient,
    instance: v1::Instance,
    state: watch::Sender<RegistrationState>,
    backoff: Backoff,
    jitter: Jitter,
    next: Next,
    revision: u64,
    ttl: Duration,
}

/// A random number: so that many clients of one server do not come at once.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

impl Keeper {
    pub(crate) fn new(
        client: RegistrationClient,
        instance: v1::Instance,
        state: watch::Sender<RegistrationState>,
    ) -> Self {
        let instance = with_lease(instance);
        let jitter = Jitter::seeded(seed());
        let backoff = Backoff::new(BACKOFF, jitter.fork("backoff"));
        let ttl = ttl(&instance);
        Self { client, instance, state, backoff, jitter, next: Next::Register, revision: 0, ttl }
    }

    /// Registers once; tried again while no server answers.
    pub(crate) async fn register(&mut self) -> Result<(), ClientError> {
        loop {
            match self.step().await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_temporary() => {
                    let wait = self.failed(&error);
                    tokio::time::sleep(wait).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps it until the application closes it, or has dropped it. The result is that of deregistering.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) -> Result<(), ClientError> {
        let mut at = Instant::now() + self.pause();
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Update(instance, answer)) => {
                        let updated = self.update(*instance).await;
                        at = Instant::now() + if updated.is_ok() && self.next == Next::Renew { self.pause() } else { self.backoff.wait() };
                        // Who asked may have gone meanwhile.
                        let _ = answer.send(updated);
                    }
                    Some(Command::Close) | None => return self.close().await,
                },
                () = sleep_until(at) => {
                    let wait = match self.step().await {
                        Ok(()) if self.next == Next::Renew => self.pause(),
                        // The lease is unknown: it is registered at once.
                        Ok(()) => Duration::ZERO,
                        Err(error) => self.failed(&error),
                    };
                    at = Instant::now() + wait;
                }
            }
        }
    }

    /// One call.
    async fn step(&mut self) -> Result<(), ClientError> {
        match self.next {
            Next::Register => {
                let registered = self.client.register_once(self.instance.clone()).await?;
                self.revision = registered.revision;
                self.next = Next::Renew;
            }
            Next::Renew => match self.client.renew_once(self.key()).await {
                Ok(v1::RenewResponse {}) => {}
                Err(error) if error.code() == Some(Code::NotFound) => {
                    tracing::warn!(id = self.instance.id, "the registration was lost: registering again");
                    self.next = Next::Register;
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        }
        self.backoff.reset();
        self.tell(RegistrationState::Registered { revision: self.revision });
        Ok(())
    }

    async fn update(&mut self, instance: v1::Instance) -> Result<(), ClientError> {
        let instance = with_lease(instance);
        let name = |instance: &v1::Instance| {
            (instance.namespace.clone(), instance.service.clone(), instance.id.clone())
        };
        if name(&instance) != name(&self.instance) {
            return Err(ClientError::Settings("an update cannot change the name of an instance".to_owned()));
        }
        let before = std::mem::replace(&mut self.instance, instance);
        let was_next = std::mem::replace(&mut self.next, Next::Register);
        match self.step().await {
            Err(error) if !error.is_temporary() => {
                (self.instance, self.next) = (before, was_next);
                Err(error)
            }
            outcome => {
                self.ttl = ttl(&self.instance);
                if let Err(error) = outcome {
                    self.tell(RegistrationState::Failing { reason: error.to_string() });
                }
                Ok(())
            }
        }
    }

    async fn close(mut self) -> Result<(), ClientError> {
        let v1::RenewRequest { namespace, service, id } = self.key();
        let request = v1::DeregisterRequest { namespace, service, id, ..v1::DeregisterRequest::default() };
        let goodbye = async {
            loop {
                match self.client.deregister_once(request.clone()).await {
                    Err(error) if error.is_temporary() => tokio::time::sleep(self.backoff.wait()).await,
                    done => return done.map(drop),
                }
            }
        };
        let message = "no server answered: the instance goes when its lease ends".to_owned();
        let done = timeout(GOODBYE, goodbye).await;
        let done = done.unwrap_or(Err(ClientError::Unavailable { message, retry_after: None }));
        self.tell(RegistrationState::Closed);
        done
    }

    /// Says what failed, and returns how long to wait.
    fn failed(&mut self, error: &ClientError) -> Duration {
        if self.backoff.failures() == 0 {
            tracing::warn!(id = self.instance.id, %error, "the registration cannot be renewed: trying again");
        }
        self.tell(RegistrationState::Failing { reason: error.to_string() });
        let floor = match error {
            ClientError::Unavailable { retry_after: Some(after), .. } => *after,
            _ => Duration::ZERO,
        };
        // Another server takes over, and may not know the lease: then it is registered there.
        self.backoff.wait_at_least(floor).min(self.ttl)
    }

    fn tell(&self, state: RegistrationState) {
        self.state.send_if_modified(|known| {
            let changed = *known != state;
            *known = state;
            changed
        });
    }

    /// The time to the next renewal: about a third of the lease.
    fn pause(&mut self) -> Duration {
        self.ttl.mul_f64(0.25 + self.jitter.fraction() / 12.0)
    }

    fn key(&self) -> v1::RenewRequest {
        let v1::Instance { namespace, service, id, .. } = &self.instance;
        v1::RenewRequest { namespace: namespace.clone(), service: service.clone(), id: id.clone() }
    }
}

fn with_lease(instance: v1::Instance) -> v1::Instance {
    let seconds = i64::try_from(TTL.as_secs()).unwrap_or(i64::MAX);
    let ttl = instance.ttl.or(Some(prost_types::Duration { seconds, nanos: 0 }));
    v1::Instance { ttl, ..instance }
}

/// The lease of an instance; what is no duration is refused by the server.
fn ttl(instance: &v1::Instance) -> Duration {
    instance.ttl.and_then(|ttl| Duration::try_from(ttl).ok()).unwrap_or(TTL).max(Duration::from_millis(100))
}
