//! Since when entries have said what they say, by our own clock that only goes forward: how old a mark is. Pure.

use super::entry::EntryName;
use super::marks::Mark;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A mark of a connection that stayed the same for so long is a dead replica's: those that live write theirs anew more often.
pub(super) const OLDEST: Duration = Duration::from_secs(45 * 60);

/// An entry for which nobody seems to be connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) name: EntryName,
    pub(super) mark: Mark,
    /// When it may go.
    pub(super) at: Instant,
    /// Whether it may go then when it still says the same. Otherwise it is watched once more: the replica that should have written
    /// its mark anew may not have been able to, for as long as we saw nothing either.
    pub(super) is_sure: bool,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Sightings(BTreeMap<EntryName, (Mark, Instant)>);

impl Sightings {
    /// Takes in what all entries say now, and says which may have to go. `me` is nobody's replica but ours.
    pub(super) fn look(
        &mut self,
        marks: impl Iterator<Item = (EntryName, Mark)>,
        (me, grace): (&str, Duration),
        now: Instant,
    ) -> Vec<Suspect> {
        let mut before = std::mem::take(&mut self.0);
        let mut suspects = Vec::new();
        for (name, mark) in marks {
            let since =
                before.remove(&name).filter(|(known, _)| *known == mark).map_or(now, |(_, since)| since);
            let is_old = now.duration_since(since) > OLDEST || &*mark.controller == me;
            if mark.has_left() {
                let (name, mark) = (name.clone(), mark.clone());
                suspects.push(Suspect { name, mark, at: since + grace, is_sure: true });
            } else if is_old {
                suspects.push(Suspect { name: name.clone(), mark: mark.clone(), at: now, is_sure: false });
            }
            self.0.insert(name, (mark, since));
        }
        suspects
    }
}
