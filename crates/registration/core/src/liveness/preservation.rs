//! Self-preservation: if most leases of a service lapse together, a fault of the network or of this process
//! is more likely than that of all instances.

use super::service::Preserving;
use super::{Due, Liveness, Verdict};
use crate::{InstanceKey, ServiceKey};
use std::sync::Arc;
use std::time::Duration;

impl Liveness {
    /// Returns the services in self-preservation, sorted.
    pub(crate) fn preserving(&self) -> Vec<ServiceKey> {
        let preserving = self.services.iter().filter(|(_, service)| service.preserving.is_some());
        let mut names: Vec<ServiceKey> = preserving.map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Starts self-preservation: ignores the recent lapses.
    pub(super) fn preserve(&mut self, name: &ServiceKey, now: Duration) -> Vec<Verdict> {
        let until = now + self.settings.preservation_time;
        let Some(service) = self.services.get_mut(name) else { return Vec::new() };
        let recent: Vec<Arc<str>> = service.recent(now, &self.settings).map(|(id, _)| id.clone()).collect();
        service.preserved.extend(recent.iter().cloned());
        service.preserving = Some(Preserving { since: now, until, is_recovering: false });
        let (lapsed, leased) = (recent.len(), service.leased);
        self.due.insert((until, Due::Release(name.clone())));
        let mut verdicts = vec![Verdict::Preserving { service: name.clone(), lapsed, leased }];
        for id in recent {
            let key = instance(name, id);
            self.cancel(&key);
            verdicts.push(Verdict::Lapsed { key, lapsed: true, preserved: true });
        }
        verdicts
    }

    /// Updates self-preservation after a change: it ends at once when no lapsed instance is left, and soon
    /// when most have been renewed. Instances that recover renew within a TTL of the first one.
    pub(super) fn recover(&mut self, name: &ServiceKey, now: Duration) -> Vec<Verdict> {
        let Some(service) = self.services.get_mut(name) else { return Vec::new() };
        let Some(before) = service.preserving else { return Vec::new() };
        if service.preserved.is_empty() {
            service.preserving = None;
            self.due.remove(&(before.until, Due::Release(name.clone())));
            return vec![Verdict::Preserved { service: name.clone(), is_overdue: false }];
        }
        let is_recovering = !service.is_mostly_preserved();
        if is_recovering != before.is_recovering {
            let latest = before.since + self.settings.preservation_time;
            let soon = now + self.settings.window(service.longest_preserved());
            let until = if is_recovering { latest.min(soon) } else { latest };
            service.preserving = Some(Preserving { since: before.since, until, is_recovering });
            self.due.remove(&(before.until, Due::Release(name.clone())));
            self.due.insert((until, Due::Release(name.clone())));
        }
        Vec::new()
    }

    /// Ends self-preservation: the remaining lapses count.
    pub(super) fn release(&mut self, name: &ServiceKey, now: Duration) -> Vec<Verdict> {
        let Some(service) = self.services.get_mut(name) else { return Vec::new() };
        let Some(before) = service.preserving.take() else { return Vec::new() };
        let is_overdue = !before.is_recovering;
        let mut verdicts = vec![Verdict::Preserved { service: name.clone(), is_overdue }];
        let mut removals = Vec::new();
        for id in std::mem::take(&mut service.preserved) {
            let Some(lapse) = service.lapsed.get_mut(&id) else { continue };
            lapse.at = now;
            lapse.is_released = true;
            let key = instance(name, id);
            removals.push((key.clone(), now + lapse.remove_after, lapse.revision));
            verdicts.push(Verdict::Lapsed { key, lapsed: true, preserved: false });
        }
        for (key, at, revision) in removals {
            self.schedule(key, at, revision);
        }
        verdicts
    }
}

fn instance(service: &ServiceKey, id: Arc<str>) -> InstanceKey {
    InstanceKey { namespace: Arc::clone(&service.namespace), service: Arc::clone(&service.service), id }
}
