//! Instances that the server shows although it acknowledged their deletion.
//!
//! A server with the boltdb store does so until it is restarted: its cache does not notice the deletion of an instance that was
//! not changed shortly before. Another deletion would be acknowledged again and change nothing, so such an instance counts as
//! gone, until its revision shows that somebody wrote it.

use crate::target::PolarisTarget;
use pilotfish_sync::{Actual, Call, InstanceKey, ServiceKey, Target, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// The services that a read covers.
pub(crate) enum ReadServices {
    /// Every service that the server has.
    All,
    /// These; what is known of others is older.
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

/// Deletions that were acknowledged, and instances that are shown all the same.
#[derive(Default)]
pub(crate) struct Lingering {
    /// Acknowledged deletions that no read has confirmed yet, by their time.
    deleted: BTreeMap<InstanceKey, Instant>,
    /// Instances that are still shown, with the revision that is shown.
    shown: BTreeMap<InstanceKey, Text>,
}

impl Lingering {
    /// Notes what the server acknowledged.
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

    /// Compares with a read that began at `began` and covers `read`. Reads may be `lag` older than a write. Returns the
    /// instances that are newly recognised.
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

    /// Takes them out of what was read.
    pub(crate) fn hide(&self, known: &mut Actual) {
        for (key, revision) in &self.shown {
            if known.instance(key).is_some_and(|instance| instance.revision == *revision) {
                known.set_instance(key, None);
            }
        }
    }

    /// The instances that are shown although they were deleted.
    pub(crate) fn instances(&self) -> impl ExactSizeIterator<Item = &InstanceKey> {
        self.shown.keys()
    }
}
