//! What the parts of an open store share.

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

/// How long a write waits until the own watch has seen it.
const SEEN: Duration = Duration::from_secs(5);
/// How many leases wait to be revoked. What has no place ends by itself.
const REVOKING: usize = 4_096;

/// What the parts of an open store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) view: Mutex<View>,
    /// The revision up to which events were handed on.
    pub(crate) seen: watch::Sender<u64>,
    /// The session, or why there is none.
    session: RwLock<Result<Arc<Session>, Arc<str>>>,
    /// Why the last write was refused; `None` once one succeeded.
    refused: Mutex<Option<Arc<str>>>,
    /// Who wanted to be renewed while that could not be done, and when last.
    missed: Mutex<HashMap<InstanceKey, Instant>>,
    revoke: mpsc::Sender<i64>,
}

impl Shared {
    /// Nothing is known yet. The other end is of leases that nothing needs any more.
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

    /// The session, or why there is none.
    pub(crate) fn session(&self) -> Result<Arc<Session>, Arc<str>> {
        self.session.read().clone()
    }

    pub(crate) fn set_session(&self, session: Result<Arc<Session>, Arc<str>>) {
        *self.session.write() = session;
    }

    /// Why writes are refused although etcd can be reached, such as a quota that is used up.
    pub(crate) fn refused(&self) -> Option<Arc<str>> {
        self.refused.lock().clone()
    }

    /// Takes in the result of a write of a value. Logs it when it differs from the one before.
    pub(crate) fn set_refused(&self, reason: Option<&str>) {
        let before = std::mem::replace(&mut *self.refused.lock(), reason.map(Arc::from));
        match (before, reason) {
            (None, Some(reason)) => tracing::error!(reason, "etcd refuses to write registrations"),
            (Some(_), None) => tracing::info!("etcd writes registrations again"),
            _ => {}
        }
    }

    /// Waits until events up to a revision were handed on. False when that takes too long.
    pub(crate) async fn has_seen(&self, revision: u64) -> bool {
        let mut seen = self.seen.subscribe();
        matches!(timeout(SEEN, seen.wait_for(|seen| *seen >= revision)).await, Ok(Ok(_)))
    }

    /// An instance wanted to be renewed, which cannot be done now. Of what is not registered, nothing is kept.
    pub(crate) fn miss(&self, key: &InstanceKey) {
        if self.view.lock().has(key) {
            self.missed.lock().insert(key.clone(), Instant::now());
        }
    }

    /// Takes out who wanted to be renewed within the time of its lease.
    pub(crate) fn take_missed(&self) -> Vec<InstanceKey> {
        let missed = std::mem::take(&mut *self.missed.lock());
        let (view, now) = (self.view.lock(), Instant::now());
        let is_recent = |key: &InstanceKey, at: Instant| {
            let ttl = view.belief(key).record.and_then(|record| record.lease());
            ttl.is_some_and(|ttl| now.saturating_duration_since(at) < ttl)
        };
        missed.into_iter().filter(|(key, at)| is_recent(key, *at)).map(|(key, _)| key).collect()
    }

    /// Nothing ends with this lease any more.
    pub(crate) fn revoke(&self, id: i64) {
        if self.revoke.try_send(id).is_err() {
            tracing::debug!(id, "a lease of etcd is not revoked: it ends by itself");
        }
    }
}
