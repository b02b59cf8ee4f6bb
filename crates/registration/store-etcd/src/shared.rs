//! State shared by the parts of an open store.

use crate::keys::Keys;
use crate::session::Session;
use crate::view::View;
use parking_lot::{Mutex, RwLock};
use pilotfish_registration::InstanceKey;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

/// Maximum time from a write until this store's watch has seen it.
const SEEN: Duration = Duration::from_secs(5);
/// Capacity of the queue of leases to revoke. Leases above it expire instead.
const REVOKING: usize = 4_096;

/// State shared by the parts of an open store.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) view: Mutex<View>,
    /// Revision up to which events were published.
    pub(crate) seen: watch::Sender<u64>,
    /// The current session, or the reason that there is none.
    session: RwLock<Result<Arc<Session>, Arc<str>>>,
    /// Reason that the last write was refused; `None` once one succeeded.
    refused: Mutex<Option<Arc<str>>>,
    /// Instances whose renewal failed for lack of a session, with the time of the last attempt.
    missed: Mutex<HashMap<InstanceKey, Instant>>,
    revoke: mpsc::Sender<i64>,
}

impl Shared {
    /// An empty state, and the receiver of unused leases.
    pub(crate) fn new(keys: Keys) -> (Self, mpsc::Receiver<i64>) {
        let (revoke, revoked) = mpsc::channel(REVOKING);
        let shared = Self {
            view: Mutex::new(View::new(keys.clone())),
            keys,
            seen: watch::Sender::new(0),
            session: RwLock::new(Err("etcd was not read yet".into())),
            refused: Mutex::default(),
            missed: Mutex::default(),
            revoke,
        };
        (shared, revoked)
    }

    /// Returns the current session, or the reason that there is none.
    pub(crate) fn session(&self) -> Result<Arc<Session>, Arc<str>> {
        self.session.read().clone()
    }

    pub(crate) fn set_session(&self, session: Result<Arc<Session>, Arc<str>>) {
        *self.session.write() = session;
    }

    /// Returns the reason that etcd refuses writes although it is reachable, such as an exceeded quota.
    pub(crate) fn refused(&self) -> Option<Arc<str>> {
        self.refused.lock().clone()
    }

    /// Records the result of a write of a value. Logs changes.
    pub(crate) fn set_refused(&self, reason: Option<&str>) {
        let before = std::mem::replace(&mut *self.refused.lock(), reason.map(Arc::from));
        match (before, reason) {
            (None, Some(reason)) => tracing::error!(reason, "etcd refuses to write registrations"),
            (Some(_), None) => tracing::info!("etcd writes registrations again"),
            _ => {}
        }
    }

    /// Waits until events up to a revision were published. Returns false on timeout.
    pub(crate) async fn has_seen(&self, revision: u64) -> bool {
        let mut seen = self.seen.subscribe();
        matches!(timeout(SEEN, seen.wait_for(|seen| *seen >= revision)).await, Ok(Ok(_)))
    }

    /// Records a renewal that is not possible now, if the instance is registered.
    pub(crate) fn miss(&self, key: &InstanceKey) {
        if self.view.lock().has(key) {
            self.missed.lock().insert(key.clone(), Instant::now());
        }
    }

    /// Takes the instances whose clients tried to renew them within their TTL.
    pub(crate) fn take_missed(&self) -> Vec<InstanceKey> {
        let missed = std::mem::take(&mut *self.missed.lock());
        let (view, now) = (self.view.lock(), Instant::now());
        let is_recent = |key: &InstanceKey, at: Instant| {
            let ttl = view.belief(key).record.and_then(|record| record.lease());
            ttl.is_some_and(|ttl| now.saturating_duration_since(at) < ttl)
        };
        missed.into_iter().filter(|(key, at)| is_recent(key, *at)).map(|(key, _)| key).collect()
    }

    /// Queues an unused lease for revocation.
    pub(crate) fn revoke(&self, id: i64) {
        if self.revoke.try_send(id).is_err() {
            tracing::debug!(id, "too many leases to revoke; this one expires instead");
        }
    }
}
