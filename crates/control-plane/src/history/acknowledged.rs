//! Tracking of acknowledgements until all clients that a change concerns have it: a state machine without IO.

use super::{Change, Refusal, RefusedBy, Resolution};
use pilotfish_xds::{ClientId, Progress, Types};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// Limit on the changes that are tracked at a time. Beyond it, changes without configuration are dropped
/// first, then the oldest.
const WATCHED: usize = 256;
/// Time after which the clients that have not acknowledged a change are logged.
pub(super) const LATE: Duration = Duration::from_secs(5);
/// Time after which a change is no longer tracked.
const GIVEN_UP: Duration = Duration::from_secs(600);
/// Limit on the clients that are named as missing.
const NAMED: usize = 20;

/// Outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All concerned clients that are still connected have acknowledged the change, this long after its
    /// publication; zero if it concerned none.
    InForce(Duration),
    /// Some clients have not acknowledged the change in time.
    Late {
        /// Number of these clients.
        missing: usize,
        /// First of these clients.
        clients: Vec<ClientId>,
    },
    /// No client lacks the change any more, but some refused it at first.
    Refused {
        /// Clients that refused the change.
        by: RefusedBy,
        resolution: Resolution,
    },
    /// There were too many changes to track.
    Unwatched,
}

impl Outcome {
    /// True if the change is in force at all concerned clients, be it after a refusal.
    pub fn is_in_force(&self) -> bool {
        matches!(self, Self::InForce(_) | Self::Refused { resolution: Resolution::Accepted(_), .. })
    }
}

/// Numbers of clients that lack a change, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Number of clients that have not acknowledged it.
    pub missing: usize,
    /// Number of these clients that refuse their last response.
    pub refusing: usize,
}

/// Changes that clients may still acknowledge.
#[derive(Default)]
pub struct Tracker {
    waiting: VecDeque<Arc<Change>>,
    /// Newest revision that was added.
    newest: u64,
    /// Newest revision that clients may have acknowledged.
    published: u64,
    /// Refusals of responses with changes that have not been added yet.
    early: Vec<Refusal>,
}

impl Tracker {
    /// Starts tracking a change.
    pub fn add(&mut self, change: Arc<Change>) -> Option<Arc<Change>> {
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

    /// Notes refusals of responses. Must be called after reading the progress of clients, so that no earlier
    /// refusal is missed.
    pub fn refused(&mut self, refusals: impl IntoIterator<Item = Refusal>) {
        for refusal in refusals {
            self.waiting.iter().for_each(|change| note(&refusal, change));
            if refusal.until > self.newest && self.early.len() < WATCHED {
                self.early.push(refusal);
            }
        }
    }

    /// Notes the newest published revision. Must be read after the progress of clients. Clients may
    /// acknowledge a revision before its change is added.
    pub fn published(&mut self, revision: u64) {
        self.published = revision;
    }

    /// True if changes are tracked.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the oldest revision that is tracked.
    pub fn oldest(&self) -> Option<u64> {
        self.waiting.iter().map(|change| change.revision).min()
    }

    /// Returns the sorted clients that the tracked changes concern, whose progress [`Self::settle`] needs.
    pub fn concerned(&self) -> Cow<'_, [ClientId]> {
        let mut lists: Vec<&Arc<[ClientId]>> = self.waiting.iter().map(|change| &change.concerned).collect();
        // Consecutive changes often share one list.
        lists.dedup_by(|next, list| Arc::ptr_eq(next, list));
        if let [list] = &*lists {
            return Cow::Borrowed(list);
        }
        let clients: BTreeSet<ClientId> = lists.into_iter().flat_map(|list| list.iter().copied()).collect();
        clients.into_iter().collect()
    }

    /// Applies the progress of clients. Returns the changes that must be reported: each change when it is in
    /// force, and before that once when it is late.
    pub fn settle(&mut self, progress: &[Progress], now: SystemTime) -> Vec<Arc<Change>> {
        let by_client: HashMap<ClientId, &Progress> =
            progress.iter().map(|progress| (progress.client, progress)).collect();
        let all: Vec<Arc<Change>> = self.waiting.iter().cloned().collect();
        let is_behind = self.newest < self.published;
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
                let later = all.iter().map(|later| &**later).filter(|later| later.revision > change.revision);
                let resolution = by.resolution(change, later, |client| by_client.contains_key(&client));
                if is_behind && resolution == Resolution::Accepted(None) {
                    // The change that was accepted has not been added yet.
                    return true;
                }
                *change.outcome.lock() = Some(Outcome::Refused { by, resolution });
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

/// Notes a refusal at its change.
fn note(refusal: &Refusal, change: &Change) {
    if refusal.is_of(change.revision, change.types_of(refusal.client)) {
        change.refused_by.lock().add(refusal.client, refusal.ty, Some(&refusal.connection));
    }
}

/// Notes the clients that refuse a change at present.
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
