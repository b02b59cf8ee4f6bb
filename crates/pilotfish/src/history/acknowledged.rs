//! When all whom a change concerns have it: a state machine that is told how far clients are.

use super::Change;
use pilotfish_xds::{ClientId, Progress};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Changes that are watched at a time. Of more, those without configuration are given up first, then the oldest.
const WATCHED: usize = 256;
/// After that long, those that have not acknowledged a change are named.
pub(crate) const LATE: Duration = Duration::from_secs(5);
/// After that long, nobody waits for them any more.
const GIVEN_UP: Duration = Duration::from_secs(600);
/// Clients that are named of those that are missing.
const NAMED: usize = 20;

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All that it concerned, and that are still there, have acknowledged it. So long after it was published; zero where it concerned nobody.
    InForce(Duration),
    /// Some have not.
    Late {
        /// How many.
        missing: usize,
        /// The first of them.
        clients: Vec<ClientId>,
    },
    /// There was too much to watch.
    Unwatched,
}

/// Clients that lack a change, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// How many have not acknowledged it.
    pub(crate) missing: usize,
    /// How many of them refuse what they were sent.
    pub(crate) refusing: usize,
}

/// The changes that somebody may still acknowledge.
#[derive(Default)]
pub(crate) struct Tracker {
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    change: Arc<Change>,
    is_late: bool,
}

impl Tracker {
    /// Watches a change from now on.
    pub(crate) fn add(&mut self, change: Arc<Change>) -> Option<Arc<Change>> {
        self.waiting.push_back(Waiting { change, is_late: false });
        if self.waiting.len() <= WATCHED {
            return None;
        }
        let place = self.waiting.iter().position(|waiting| !waiting.change.is_configuration()).unwrap_or(0);
        let given_up = self.waiting.remove(place)?.change;
        given_up.outcome.lock().get_or_insert(Outcome::Unwatched);
        Some(given_up)
    }

    /// Whether something is watched.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The oldest revision that is watched.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.waiting.iter().map(|waiting| waiting.change.revision).min()
    }

    /// Takes in how far clients are. Returns the changes of which something is to be said, each once: it is in force, or late.
    pub(crate) fn settle(&mut self, progress: &[Progress], now: SystemTime) -> Vec<Arc<Change>> {
        let by_client: HashMap<ClientId, &Progress> =
            progress.iter().map(|progress| (progress.client, progress)).collect();
        let mut told = Vec::new();
        self.waiting.retain_mut(|waiting| {
            let change = &waiting.change;
            let age = now.duration_since(change.at).unwrap_or_default();
            let there = || change.concerned.iter().filter_map(|client| by_client.get(client).copied());
            let lacking = || there().filter(|client| client.lacks(change.revision));
            let missing: Vec<ClientId> = lacking().map(|client| client.client).collect();
            let refusing = lacking().filter(|client| client.refuses).count();
            *change.lacking.lock() = Lacking { missing: missing.len(), refusing };
            if missing.is_empty() {
                let last = there().filter_map(|client| client.acked_at).max();
                let after = last.and_then(|last| last.duration_since(change.at).ok()).unwrap_or_default();
                *change.outcome.lock() = Some(Outcome::InForce(after.min(age)));
                if !waiting.is_late {
                    told.push(change.clone());
                }
                return false;
            }
            if age >= LATE {
                let clients = missing.iter().take(NAMED).copied().collect();
                *change.outcome.lock() = Some(Outcome::Late { missing: missing.len(), clients });
                if !std::mem::replace(&mut waiting.is_late, true) {
                    told.push(change.clone());
                }
            }
            age < GIVEN_UP
        });
        told
    }
}
