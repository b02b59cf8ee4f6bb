//! Notifications of changed services, for subscribers to all of them. Pending ones are merged.

use super::state::Shared;
use crate::{InstanceKey, ServiceKey};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Services that changed since the last notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServicesChanged {
    /// All services must be read again.
    All,
    /// These services; those without instances were removed.
    Some(BTreeSet<ServiceKey>),
}

/// Subscription to changed services.
#[derive(Debug)]
pub struct ServiceChanges(Arc<Subscriber>);

#[derive(Debug)]
struct Subscriber {
    pending: Mutex<ServicesChanged>,
    notify: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Subscribers(Vec<Weak<Subscriber>>);

impl ServiceChanges {
    pub(super) fn new(shared: &Shared) -> Self {
        let notify = Notify::new();
        let mut state = shared.state.write();
        // Before the store was read, the directory is incomplete and must not be published.
        let pending =
            if state.is_ready { ServicesChanged::All } else { ServicesChanged::Some(BTreeSet::new()) };
        if state.is_ready {
            notify.notify_one();
        }
        let subscriber = Arc::new(Subscriber { pending: Mutex::new(pending), notify });
        state.subscribers.0.push(Arc::downgrade(&subscriber));
        Self(subscriber)
    }

    /// Waits for changes and takes them. The first notification follows the read of the store, and is
    /// [`ServicesChanged::All`]. Cancel-safe.
    pub async fn next(&mut self) -> ServicesChanged {
        loop {
            let pending =
                std::mem::replace(&mut *self.0.pending.lock(), ServicesChanged::Some(BTreeSet::new()));
            if pending != ServicesChanged::Some(BTreeSet::new()) {
                return pending;
            }
            self.0.notify.notified().await;
        }
    }
}

impl Subscribers {
    pub(super) fn changed(&mut self, key: &InstanceKey) {
        self.tell(|pending| {
            if let ServicesChanged::Some(names) = pending {
                names.insert(key.service_key());
            }
        });
    }

    pub(super) fn reset(&mut self) {
        self.tell(|pending| *pending = ServicesChanged::All);
    }

    fn tell(&mut self, mut change: impl FnMut(&mut ServicesChanged)) {
        self.0.retain(|subscriber| {
            let Some(subscriber) = subscriber.upgrade() else { return false };
            change(&mut subscriber.pending.lock());
            subscriber.notify.notify_one();
            true
        });
    }
}
