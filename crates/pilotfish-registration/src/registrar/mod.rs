//! The registrar: what servers call, and the task that follows the store.

mod changes;
mod deregister;
mod driver;
mod error;
mod quota;
mod register;
mod settings;
mod state;
mod stats;
mod watch;

pub use changes::{ServiceChanges, ServicesChanged};
pub use deregister::{Deregister, Deregistered};
pub use driver::RegistrarDriver;
pub use error::RegistrarError;
pub use register::{Register, Registered};
pub use settings::RegistrarSettings;
pub use stats::RegistrarStats;
pub use watch::{Watch, WatchBatch, WatchError, WatchFrom};

use crate::directory::{Filter, Listing};
use crate::limits::MAX_BATCH;
use crate::{InstanceKey, InstanceView, RenewError, ServiceKey, Store, StoreDescription, StoreEvents};
use state::Shared;
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The identity, which becomes the owner of what it registers.
    pub identity: Arc<str>,
    /// Whether it may change what other identities registered.
    pub may_take_over: bool,
}

/// The registrar. Clones are the same one.
#[derive(Clone)]
pub struct Registrar {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
}

/// Why a renewal did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewalError {
    /// It is not registered, or it drains: it must be registered again.
    #[error("it is not registered: register again")]
    NotFound,
    /// Another identity registered it.
    #[error("{0:?} registered it")]
    NotOwner(Arc<str>),
    /// The store cannot be reached; trying again is safe.
    #[error("{0}")]
    Unavailable(String),
    /// There are more of them in one batch than are allowed.
    #[error("a batch has at most {MAX_BATCH}")]
    TooMany,
}

impl Registrar {
    /// A registrar on a store that was just opened, and the task that must be run with it.
    pub fn new(
        store: Arc<dyn Store>,
        events: StoreEvents,
        settings: RegistrarSettings,
    ) -> (Self, RegistrarDriver) {
        let shared = Arc::new(Shared::new(settings));
        let driver = RegistrarDriver::new(Arc::clone(&shared), Arc::clone(&store), events);
        (Self { shared, store }, driver)
    }

    /// Whether the store was read, so that lists are whole.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.state.read().is_ready
    }

    /// Resolves when the store was read. False when it was closed before.
    pub async fn ready(&self) -> bool {
        self.shared.reached(|progress| progress.is_ready).await
    }

    /// Renews leases; at most [`MAX_BATCH`] of them. One answer for each, in their order. An instance without a lease has nothing to
    /// renew, which is no error.
    pub async fn renew(&self, caller: &Caller, keys: Vec<InstanceKey>) -> Vec<Result<(), RenewalError>> {
        if keys.len() > MAX_BATCH {
            return keys.iter().map(|_| Err(RenewalError::TooMany)).collect();
        }
        let mut answers: Vec<Option<Result<(), RenewalError>>> = Vec::with_capacity(keys.len());
        let mut asked = Vec::with_capacity(keys.len());
        {
            let state = self.shared.state.read();
            for key in keys {
                let record = state.directory.record(&key);
                answers.push(match record {
                    Some(record) if !caller.owns(record) => {
                        Some(Err(RenewalError::NotOwner(Arc::clone(&record.owner))))
                    }
                    Some(_) if state.withdrawn.contains_key(&key) => Some(Err(RenewalError::NotFound)),
                    Some(record) if record.lease().is_none() => match record.state {
                        crate::RecordState::Serving => Some(Ok(())),
                        crate::RecordState::Draining => Some(Err(RenewalError::NotFound)),
                    },
                    // What was just registered may not be here yet: the store knows.
                    _ => {
                        asked.push(key);
                        None
                    }
                });
            }
        }
        let mut renewed =
            if asked.is_empty() { Vec::new() } else { self.store.renew(asked).await }.into_iter();
        let answers = answers.into_iter().map(|answer| {
            answer.unwrap_or_else(|| match renewed.next() {
                Some(answer) => answer.map_err(RenewalError::from),
                None => Err(RenewalError::Unavailable("the store gave no answer".to_owned())),
            })
        });
        let answers: Vec<Result<(), RenewalError>> = answers.collect();
        self.shared.counters.renewals(&answers);
        answers
    }

    /// One instance.
    #[must_use]
    pub fn get(&self, key: &InstanceKey) -> Option<InstanceView> {
        self.shared.state.read().directory.get(key)
    }

    /// A page of at most `limit` instances (at most [`MAX_PAGE`](crate::limits::MAX_PAGE)), beginning after `after`, in the order of their keys.
    #[must_use]
    pub fn list(&self, filter: &Filter, after: Option<&InstanceKey>, limit: usize) -> Listing {
        self.shared.state.read().directory.list(filter, after, limit.clamp(1, crate::limits::MAX_PAGE))
    }

    /// All instances of a service.
    #[must_use]
    pub fn service(&self, key: &ServiceKey) -> Vec<InstanceView> {
        self.shared.state.read().directory.service(key).collect()
    }

    /// All services that have an instance.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceKey> {
        self.shared.state.read().directory.services().collect()
    }

    /// Names of services as they change, for who follows all of them. The first answer is everything.
    #[must_use]
    pub fn service_changes(&self) -> ServiceChanges {
        ServiceChanges::new(&self.shared)
    }

    /// Results of active checks: whether the check of a record at a revision fails. Results of what changed meanwhile are left out.
    pub fn report_checks(&self, results: impl IntoIterator<Item = CheckResult>) {
        let mut state = self.shared.state.write();
        for CheckResult { key, revision, has_failed } in results {
            let is_meant = |record: &Arc<crate::Record>| {
                record.revision == revision && !record.instance.checks.is_empty()
            };
            if state.directory.record(&key).is_some_and(is_meant) {
                let change = state.directory.set_check_failed(&key, has_failed);
                state.publish(change);
            }
        }
    }

    /// Epoch of revisions, which watches resume with.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared.state.read().epoch
    }

    /// What the store is.
    #[must_use]
    pub fn store(&self) -> StoreDescription {
        self.store.describe()
    }
}

/// What active checks of a record say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// Which instance.
    pub key: InstanceKey,
    /// The revision of the record that was checked.
    pub revision: u64,
    /// Whether one of its checks fails.
    pub has_failed: bool,
}

impl Caller {
    fn owns(&self, record: &crate::Record) -> bool {
        self.may_take_over || record.owner == self.identity
    }
}

impl From<RenewError> for RenewalError {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::NotFound => Self::NotFound,
            RenewError::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

/// Notes the answer to one item of a batch.
fn set<T>(answers: &mut [Option<T>], index: usize, answer: T) {
    if let Some(place) = answers.get_mut(index) {
        *place = Some(answer);
    }
}
