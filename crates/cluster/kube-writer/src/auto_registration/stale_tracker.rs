//! Ages of entries' marks: the time since which they are unchanged, by the monotonic clock of this process.
//! Pure.

use super::annotations::ConnectionMark;
use super::entry::EntryName;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum age of a dead replica's mark: live ones renew theirs more often.
pub(super) const OLDEST: Duration = Duration::from_secs(45 * 60);

/// An entry that seems to have no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StaleEntry {
    pub(super) name: EntryName,
    pub(super) mark: ConnectionMark,
    /// Earliest time of its removal.
    pub(super) at: Instant,
    /// True if it may be removed then if it is unchanged. Otherwise it is watched once more: the replica that
    /// should have renewed its mark may have been unable to, as long as this replica saw no update either.
    pub(super) is_sure: bool,
}

/// Marks and their ages, as described in the module.
#[derive(Debug, Default)]
pub(super) struct StaleTracker(BTreeMap<EntryName, (ConnectionMark, Instant)>);

impl StaleTracker {
    /// Records the marks of all entries, and returns stale ones. `me` is this replica.
    pub(super) fn update(
        &mut self,
        annotations: impl Iterator<Item = (EntryName, ConnectionMark)>,
        (me, grace): (&str, Duration),
        now: Instant,
    ) -> Vec<StaleEntry> {
        let mut before = std::mem::take(&mut self.0);
        let mut stale_entries = Vec::new();
        for (name, mark) in annotations {
            let since =
                before.remove(&name).filter(|(known, _)| *known == mark).map_or(now, |(_, since)| since);
            let is_old = now.duration_since(since) > OLDEST || &*mark.controller == me;
            if mark.has_left() {
                let (name, mark) = (name.clone(), mark.clone());
                stale_entries.push(StaleEntry { name, mark, at: since + grace, is_sure: true });
            } else if is_old {
                stale_entries.push(StaleEntry {
                    name: name.clone(),
                    mark: mark.clone(),
                    at: now,
                    is_sure: false,
                });
            }
            self.0.insert(name, (mark, since));
        }
        stale_entries
    }
}
