//! When all whom a change concerns have it: a state machine that is told how far clients are.

use super::{Change, Refusal, RefusedBy};
use pilotfish_xds::{ClientId, Progress, Types};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
    /// Nobody lacks it any more, but some refused it: it never was in force there.
    Refused {
        /// Clients that refused it.
        by: RefusedBy,
        /// The next change of what they refused; `None` where all of them have left.
        superseded: Option<u64>,
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
    waiting: VecDeque<Arc<Change>>,
    /// The newest revision that was added.
    newest: u64,
    /// Refusals of responses that have changes which are not added yet.
    early: Vec<Refusal>,
}

impl Tracker {
    /// Watches a change from now on.
    pub(crate) fn add(&mut self, change: Arc<Change>) -> Option<Arc<Change>> {
        self.newest = self.newest.max(change.revision);
        self.early.iter().for_each(|refusal| note(refusal, &change));
        self.early.retain(|refusal| refusal.until > self.newest);
        self.waiting.push_back(change);
        if self.waiting.len() <= WATCHED {
            return None;
        }
        let place = self.waiting.iter().position(|change| !change.is_configuration()).unwrap_or(0);
        let given_up = self.waiting.remove(place)?;
        given_up.outcome.lock().get_or_insert(Outcome::Unwatched);
        Some(given_up)
    }

    /// Takes in who refused responses. To be called after their progress was looked at, so that no refusal is
    /// missed that came before.
    pub(crate) fn refused(&mut self, refusals: impl IntoIterator<Item = Refusal>) {
        for refusal in refusals {
            self.waiting.iter().for_each(|change| note(&refusal, change));
            if refusal.until > self.newest && self.early.len() < WATCHED {
                self.early.push(refusal);
            }
        }
    }

    /// For each change that somebody refused, the next one of what they refused.
    fn superseding(&self) -> HashMap<u64, u64> {
        let refused = self.waiting.iter().filter_map(|change| {
            let by = change.refused_by.lock().clone();
            (!by.is_empty()).then_some((change.revision, by))
        });
        let next = |(revision, by): (u64, RefusedBy)| {
            let later = self.waiting.iter().filter(|later| later.revision > revision);
            let of_same = later.filter(|later| by.is_concerned(|client| later.types_of(client)));
            Some((revision, of_same.map(|later| later.revision).min()?))
        };
        refused.filter_map(next).collect()
    }

    /// Whether something is watched.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The oldest revision that is watched.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.waiting.iter().map(|change| change.revision).min()
    }

    /// Whom the changes that are watched concern, in order: whose progress [`Self::settle`] needs.
    pub(crate) fn concerned(&self) -> Cow<'_, [ClientId]> {
        let mut lists: Vec<&Arc<[ClientId]>> = self.waiting.iter().map(|change| &change.concerned).collect();
        // Those of one change after the other are often one list.
        lists.dedup_by(|next, list| Arc::ptr_eq(next, list));
        if let [list] = &*lists {
            return Cow::Borrowed(list);
        }
        let clients: BTreeSet<ClientId> = lists.into_iter().flat_map(|list| list.iter().copied()).collect();
        clients.into_iter().collect()
    }

    /// Takes in how far those clients are. Returns the changes of which something is to be said: each when it is in force, and before that once when
    /// it is late.
    pub(crate) fn settle(&mut self, progress: &[Progress], now: SystemTime) -> Vec<Arc<Change>> {
        let by_client: HashMap<ClientId, &Progress> =
            progress.iter().map(|progress| (progress.client, progress)).collect();
        let superseding = self.superseding();
        let mut told = Vec::new();
        self.waiting.retain(|change| {
            let age = now.duration_since(change.at).unwrap_or_default();
            let there =
                || change.concerned().filter_map(|(client, types)| Some((*by_client.get(&client)?, types)));
            let lacking = || {
                let lacks = |(client, types): (&Progress, _)| {
                    Some((client.client, client.lacks(change.revision, types)?))
                };
                there().filter_map(lacks)
            };
            let missing: Vec<ClientId> = lacking().map(|(client, _)| client).collect();
            let refusing = lacking().filter(|(_, lacking)| lacking.refused).count();
            if refusing > 0 {
                note_refusing(change, there());
            }
            *change.lacking.lock() = Lacking { missing: missing.len(), refusing };
            let by = change.refused_by.lock().clone();
            if missing.is_empty() && !by.is_empty() {
                let superseded = superseding.get(&change.revision).copied();
                *change.outcome.lock() = Some(Outcome::Refused { by, superseded });
                told.push(change.clone());
                return false;
            }
            if missing.is_empty() {
                let last = there().filter_map(|(client, _)| client.acked_at).max();
                let after = last.and_then(|last| last.duration_since(change.at).ok()).unwrap_or_default();
                *change.outcome.lock() = Some(Outcome::InForce(after.min(age)));
                told.push(change.clone());
                return false;
            }
            if age >= LATE {
                let clients = missing.iter().take(NAMED).copied().collect();
                *change.outcome.lock() = Some(Outcome::Late { missing: missing.len(), clients });
                if !change.was_late.swap(true, Ordering::Relaxed) {
                    told.push(change.clone());
                }
            }
            age < GIVEN_UP
        });
        told
    }
}

/// Notes a refusal with a change that it is of.
fn note(refusal: &Refusal, change: &Change) {
    if refusal.is_of(change.revision, change.types_of(refusal.client)) {
        change.refused_by.lock().add(refusal.client, refusal.ty, Some(&refusal.connection));
    }
}

/// Notes with a change who refuses it at the moment.
fn note_refusing<'a>(change: &Change, there: impl Iterator<Item = (&'a Progress, Types)>) {
    let mut refused_by = change.refused_by.lock();
    for (client, types) in there {
        for (ty, lacking) in &client.lacking {
            let refuses = lacking.is_some_and(|lacking| lacking.refused && lacking.lacks(change.revision));
            if refuses && types.contains(ty) {
                refused_by.add(client.client, ty, None);
            }
        }
    }
}
