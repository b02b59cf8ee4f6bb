//! The registrar: the interface for servers, and the task that follows the store.

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

/// The client of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Identity, which owns the instances that it registers.
    pub identity: Arc<str>,
    /// True if it may change instances of other owners.
    pub may_take_over: bool,
}

/// The registrar. Clones share its state.
#[derive(Clone)]
pub struct Registrar {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
}

/// Error of a renewal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewalError {
    /// Not registered, or draining: it must be registered again.
    #[error("it is not registered: register again")]
    NotFound,
    /// Another identity registered it.
    #[error("{0:?} registered it")]
    NotOwner(Arc<str>),
    /// The store is unreachable; retrying is safe.
    #[error("{0}")]
    Unavailable(String),
    /// The batch exceeds the maximum size.
    #[error("a batch has at most {MAX_BATCH}")]
    TooMany,
}

impl Registrar {
    /// Creates a registrar on a store that was just opened, and its driver, which must be run.
    pub fn new(
        store: Arc<dyn Store>,
        events: StoreEvents,
        settings: RegistrarSettings,
    ) -> (Self, RegistrarDriver) {
        let shared = Arc::new(Shared::new(settings));
        let driver = RegistrarDriver::new(Arc::clone(&shared), Arc::clone(&store), events);
        (Self { shared, store }, driver)
    }

    /// True once the store was read, so that lists are complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.state.read().is_ready
    }

    /// Resolves when the store was read. Returns false if it was closed before.
    pub async fn ready(&self) -> bool {
        self.shared.reached(|progress| progress.is_ready).await
    }

    /// Renews the leases of at most [`MAX_BATCH`] instances. Returns one answer each, in order. Renewing an
    /// instance without a lease succeeds.
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
                    // The directory may lag behind a recent registration, so the store is asked.
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

    #[must_use]
    pub fn get(&self, key: &InstanceKey) -> Option<InstanceView> {
        self.shared.state.read().directory.get(key)
    }

    /// Returns a page of at most `limit` instances (at most [`MAX_PAGE`](crate::limits::MAX_PAGE)), beginning
    /// after `after`, sorted by key.
    #[must_use]
    pub fn list(&self, filter: &Filter, after: Option<&InstanceKey>, limit: usize) -> Listing {
        self.shared.state.read().directory.list(filter, after, limit.clamp(1, crate::limits::MAX_PAGE))
    }

    /// Returns all instances of a service.
    #[must_use]
    pub fn service(&self, key: &ServiceKey) -> Vec<InstanceView> {
        self.shared.state.read().directory.service(key).collect()
    }

    /// Returns all services with an instance.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceKey> {
        self.shared.state.read().directory.services().collect()
    }

    /// Subscribes to changed services. The first notification is for all of them.
    #[must_use]
    pub fn service_changes(&self) -> ServiceChanges {
        ServiceChanges::new(&self.shared)
    }

    /// Applies results of active checks. Results for records that changed meanwhile are dropped.
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

    /// Returns the kind and place of the store.
    #[must_use]
    pub fn store(&self) -> StoreDescription {
        self.store.describe()
    }
}

/// Combined result of a record's active checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    pub key: InstanceKey,
    /// The revision of the record that was checked.
    pub revision: u64,
    /// True if one of the checks fails.
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

/// Sets the answer to one item of a batch.
fn set<T>(answers: &mut [Option<T>], index: usize, answer: T) {
    if let Some(place) = answers.get_mut(index) {
        *place = Some(answer);
    }
}
