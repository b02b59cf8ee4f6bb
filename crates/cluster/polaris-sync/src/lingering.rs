//! Instances that the server returns although it acknowledged their deletion.
//!
//! A server with the boltdb store does so until it is restarted: its cache misses the deletion of an instance
//! that was not changed shortly before. Another deletion would be acknowledged again and change nothing, so
//! such an instance counts as deleted, until its revision changes.

use crate::reconcile::{Actual, Call, InstanceKey, ServiceKey, Target, Text};
use crate::target::PolarisTarget;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// The services that a read covers.
pub(crate) enum ReadServices {
    /// All services of the server.
    All,
    /// Only these services; the state of others is older.
    Some(BTreeSet<ServiceKey>),
}

impl ReadServices {
    fn contains(&self, key: &ServiceKey) -> bool {
        match self {
            Self::All => true,
            Self::Some(services) => services.contains(key),
        }
    }
}

/// Acknowledged deletions, and instances that the server still returns.
#[derive(Default)]
pub(crate) struct Lingering {
    /// Acknowledged deletions that no read has confirmed yet, by their time.
    deleted: BTreeMap<InstanceKey, Instant>,
    /// Instances that are still returned, with their revision.
    shown: BTreeMap<InstanceKey, Text>,
}

impl Lingering {
    /// Records an acknowledged call.
    pub(crate) fn wrote(&mut self, call: &Call, now: Instant) {
        match call {
            Call::DeleteInstances(keys) => self.deleted.extend(keys.iter().map(|key| (key.clone(), now))),
            Call::CreateInstances(writes) | Call::UpdateInstances(writes) => {
                writes.iter().for_each(|write| {
                    self.deleted.remove(&write.key);
                    self.shown.remove(&write.key);
                })
            }
            _ => {}
        }
    }

    /// Compares with a read that started at `began` and covers `read`. Reads may be `lag` older than a write.
    /// Returns the newly detected instances.
    pub(crate) fn compare(
        &mut self,
        known: &Actual,
        target: &PolarisTarget,
        read: &ReadServices,
        began: Instant,
        lag: Duration,
    ) -> Vec<InstanceKey> {
        self.shown.retain(|key, revision| {
            let is_same = || known.instance(key).is_some_and(|instance| instance.revision == *revision);
            !read.contains(&key.service) || is_same()
        });
        let mut new = Vec::new();
        self.deleted.retain(|key, at| {
            if *at + lag > began || !read.contains(&key.service) {
                return true;
            }
            if let Some(instance) = known.instance(key).filter(|instance| target.owns(&instance.metadata)) {
                let before = self.shown.insert(key.clone(), instance.revision.clone());
                new.extend(before.is_none().then(|| key.clone()));
            }
            false
        });
        new
    }

    /// Removes the instances from a read.
    pub(crate) fn hide(&self, known: &mut Actual) {
        for (key, revision) in &self.shown {
            if known.instance(key).is_some_and(|instance| instance.revision == *revision) {
                known.set_instance(key, None);
            }
        }
    }

    /// Returns the instances that the server returns although they were deleted.
    pub(crate) fn instances(&self) -> impl ExactSizeIterator<Item = &InstanceKey> {
        self.shown.keys()
    }
}
