//! Which services changed, for who follows all of them. What is not taken yet is merged.

use super::state::Shared;
use crate::{InstanceKey, ServiceKey};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Which services changed since the last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServicesChanged {
    /// Read all of them again.
    All,
    /// These; one that has no instance any more is gone.
    Some(BTreeSet<ServiceKey>),
}

/// Names of services as they change.
#[derive(Debug)]
pub struct ServiceChanges(Arc<Subscriber>);

#[derive(Debug)]
struct Subscriber {
    pending: Mutex<ServicesChanged>,
    notify: Notify,
}

/// Everybody who follows services.
#[derive(Debug, Default)]
pub(super) struct Subscribers(Vec<Weak<Subscriber>>);

impl ServiceChanges {
    pub(super) fn new(shared: &Shared) -> Self {
        let notify = Notify::new();
        let mut state = shared.state.write();
        // Before the store was read, nothing is all that there is, and nobody may believe it.
        let pending =
            if state.is_ready { ServicesChanged::All } else { ServicesChanged::Some(BTreeSet::new()) };
        if state.is_ready {
            notify.notify_one();
        }
        let subscriber = Arc::new(Subscriber { pending: Mutex::new(pending), notify });
        state.subscribers.0.push(Arc::downgrade(&subscriber));
        Self(subscriber)
    }

    /// Waits until something changed, and takes it. The first answer comes once the store was read, and is [`ServicesChanged::All`].
    /// Dropping the future loses nothing.
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
