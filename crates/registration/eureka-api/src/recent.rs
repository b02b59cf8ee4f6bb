//! The changes of the last minutes: the last one of each instance.

use crate::catalog::{Action, Entry};
use pilotfish_registration::InstanceKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Age of the oldest change that clients get: they poll every 30 s, and miss a few polls at most.
const CHANGES_KEPT: Duration = Duration::from_secs(180);
/// Maximum number of changes that are kept. A client that misses one reads everything again.
const MAX_CHANGES: usize = 100_000;
/// Maximum size of their documents in bytes.
const MAX_BYTES: usize = 64 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: Instant,
    pub(crate) app: Arc<str>,
    pub(crate) action: Action,
    pub(crate) entry: Arc<Entry>,
}

/// The last changes, at most one of each instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    /// By number, the oldest first.
    changes: BTreeMap<u64, Change>,
    /// Numbers of the changes by instance.
    numbers: HashMap<InstanceKey, u64>,
    next: u64,
    /// Bytes of the documents.
    bytes: usize,
}

impl Recent {
    /// Adds a change in place of an older one of the same instance.
    pub(crate) fn note(&mut self, change: Change) {
        let number = self.next;
        self.next += 1;
        let older = self.numbers.insert(change.entry.key.clone(), number);
        if let Some(older) = older.and_then(|older| self.changes.remove(&older)) {
            self.bytes -= older.entry.document.len();
        }
        self.bytes += change.entry.document.len();
        self.changes.insert(number, change);
        self.limit(MAX_CHANGES, MAX_BYTES);
    }

    /// True if there are changes that are too old.
    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        let is_old = |change: &Change| now.saturating_duration_since(change.at) > CHANGES_KEPT;
        self.changes.first_key_value().is_some_and(|(_, change)| is_old(change))
    }

    /// Drops the changes that are too old.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.has_expired(now) {
            self.drop_oldest();
        }
    }

    /// Returns the changes, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.changes.values()
    }

    fn limit(&mut self, count: usize, bytes: usize) {
        while self.changes.len() > count || self.bytes > bytes {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, gone)) = self.changes.pop_first() {
            self.bytes -= gone.entry.document.len();
            self.numbers.remove(&gone.entry.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EurekaSettings;
    use crate::record::tests::record;
    use pilotfish_registration::testing::{DOMAIN, registration};
    use pilotfish_registration::{Health, InstanceView, Registration};

    fn change(at: Instant, id: &str, action: Action) -> Change {
        let registration = Registration { service: "a.eureka".to_owned(), ..registration(id) };
        let record = Arc::new(record(registration.validate(DOMAIN).unwrap()));
        let view = InstanceView { record, health: Health::Healthy };
        let entry = Arc::new(Entry::new(&view, &EurekaSettings::default()).unwrap());
        Change { at, app: "A".into(), action, entry }
    }

    fn listed(recent: &Recent) -> Vec<(&str, Action)> {
        recent.iter().map(|change| (&*change.entry.key.id, change.action)).collect()
    }

    #[test]
    fn the_last_change_of_each_instance_is_kept_within_limits() {
        use Action::{Added, Deleted, Modified};
        let mut recent = Recent::default();
        let start = Instant::now();
        for (id, action) in [("1", Added), ("2", Added), ("1", Modified), ("3", Added)] {
            recent.note(change(start, id, action));
        }
        assert_eq!(listed(&recent), [("2", Added), ("1", Modified), ("3", Added)]);
        assert_eq!(recent.bytes, recent.iter().map(|change| change.entry.document.len()).sum::<usize>());
        recent.limit(MAX_CHANGES, recent.bytes - 1);
        assert_eq!(listed(&recent), [("1", Modified), ("3", Added)], "too many bytes");
        recent.limit(1, MAX_BYTES);
        assert_eq!(listed(&recent), [("3", Added)], "too many");

        let later = start + CHANGES_KEPT + Duration::from_secs(1);
        recent.note(change(later, "2", Deleted));
        recent.expire(later);
        assert_eq!(listed(&recent), [("2", Deleted)], "the others are old");
        recent.expire(later + CHANGES_KEPT + Duration::from_secs(1));
        assert!(recent.numbers.is_empty() && recent.bytes == 0, "{recent:?}");
    }
}
