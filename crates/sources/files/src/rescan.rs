//! Periodic walks through all folders, for changes without watcher events.

use crate::change_queue::Changes;
use std::time::Instant;

/// The next walk through all folders, or the one that runs on a thread of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rescan {
    /// Start time of the next walk.
    At(Instant),
    /// A walk is running.
    Walks {
        /// True if everything was scanned after this walk began, so that its result may be older and is
        /// dropped.
        outdated: bool,
    },
}

impl Rescan {
    /// Start time of the next walk; `None` while one runs.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Self::At(due) => Some(*due),
            Self::Walks { .. } => None,
        }
    }

    /// Applies changes, and schedules the next walk at `next` when one has ended. Returns true if a walk is
    /// to start now.
    pub(super) fn step(&mut self, changes: &mut Changes, now: Instant, next: Instant) -> bool {
        match self {
            Self::At(due) => now >= *due,
            Self::Walks { outdated } if changes.walk_ended => {
                if *outdated {
                    changes.walked = None;
                }
                *self = Self::At(next);
                false
            }
            Self::Walks { outdated } => {
                *outdated |= changes.everything;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scanner::Walked;
    use std::time::Duration;

    /// What the queue holds after a walk that found something.
    fn ended() -> Changes {
        Changes { walk_ended: true, walked: Some(Walked::default()), ..Changes::default() }
    }

    fn everything() -> Changes {
        Changes { everything: true, ..Changes::default() }
    }

    #[test]
    fn a_walk_begins_when_it_is_due_and_counts_unless_everything_was_looked_through_meanwhile() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (meanwhile, counts) in [(Changes::default(), true), (everything(), false)] {
            let mut rescan = Rescan::At(at(10));
            assert!(!rescan.step(&mut everything(), at(9), at(19)), "changes alone begin none");
            assert!(rescan.step(&mut Changes::default(), at(10), at(20)));
            rescan = Rescan::Walks { outdated: false };
            let mut changes = meanwhile;
            assert!(!rescan.step(&mut changes, at(30), at(40)), "one at a time");
            assert_eq!(rescan.due(), None);
            let mut changes = ended();
            assert!(!rescan.step(&mut changes, at(31), at(41)));
            assert_eq!((changes.walked.is_some(), rescan), (counts, Rescan::At(at(41))));
        }
    }

    #[test]
    fn a_walk_that_failed_is_followed_by_another() {
        let now = Instant::now();
        let mut rescan = Rescan::Walks { outdated: false };
        // As the queue tells it: everything has to be looked through.
        let mut changes = Changes { walk_ended: true, ..everything() };
        assert!(!rescan.step(&mut changes, now, now));
        assert!(changes.everything);
        assert!(rescan.step(&mut Changes::default(), now, now));
    }
}
