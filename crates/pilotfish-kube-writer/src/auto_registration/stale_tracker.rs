//! Since when marks of entries are unchanged, by our own monotonic clock: this is a mark's age. Pure.

use super::annotations::ConnectionMark;
use super::entry::EntryName;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A mark of a connection unchanged for so long is a dead replica's: live ones renew theirs more often.
pub(super) const OLDEST: Duration = Duration::from_secs(45 * 60);

/// An entry that seems to have no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StaleEntry {
    pub(super) name: EntryName,
    pub(super) mark: ConnectionMark,
    /// When it may go.
    pub(super) at: Instant,
    /// Whether it may go then if it is unchanged. Otherwise it is watched once more: the replica that should have renewed
    /// its mark may not have been able to, for as long as we saw nothing either.
    pub(super) is_sure: bool,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct StaleTracker(BTreeMap<EntryName, (ConnectionMark, Instant)>);

impl StaleTracker {
    /// Records the marks of all entries, and returns those that may have to go. `me` is this replica.
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
