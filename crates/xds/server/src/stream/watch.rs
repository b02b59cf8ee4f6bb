//! One type of one stream: its subscription, what was sent, and what was acknowledged or refused.

use crate::fanout::names::{Account, asked_bytes};
use crate::fanout::topology::Membership;
use crate::limits::{LimitExceeded, QuotaGuard};
use crate::protocol::wire::{hex, unhex};
use crate::resources::{Contents, EncodedResponse, Entries, NameSet};
use crate::status::{Lacking, Names, Rejection, SubscribedNames, TypeStatus};
use pilotfish_proto::ResourceType;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Maximum number of responses that are remembered until they are acknowledged. A client that never
/// acknowledges only loses the resource names in the report of a later refusal.
const IN_FLIGHT: usize = 16;
/// Maximum number of resources of these responses, in addition to twice as many as the client has.
const IN_FLIGHT_RESOURCES: usize = 4_096;
/// Minimum number of unsubscribed names for which unacknowledged responses are searched.
const MANY_REMOVED: usize = 1_024;

/// Names that have to be answered, even without a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Requested {
    /// No answer is due.
    #[default]
    Nothing,
    /// These names, all of them subscribed to.
    Names(BTreeSet<Arc<str>>),
    All,
}

impl Requested {
    pub(super) fn is_some(&self) -> bool {
        *self != Self::Nothing
    }

    /// Adds those names that are in `subscribed`, sharing its text. Repeated names add nothing.
    pub(super) fn add<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, subscribed: &NameSet) {
        if *self == Self::Nothing {
            *self = Self::Names(BTreeSet::new());
        }
        let Self::Names(all) = self else { return };
        all.extend(names.into_iter().filter_map(|name| subscribed.get(name)).cloned());
    }

    /// Upper bound of the number of requested names after adding some of a subscription.
    pub(super) fn at_most(&self, added: usize, subscription: usize) -> usize {
        match self {
            Self::Nothing => added.min(subscription),
            Self::Names(names) => names.len().saturating_add(added).min(subscription),
            Self::All => 0,
        }
    }

    pub(super) fn remove(&mut self, names: &[&str]) {
        let Self::Names(all) = self else { return };
        for name in names {
            all.remove(*name);
        }
        if all.is_empty() {
            *self = Self::Nothing;
        }
    }
}

/// Resources that a client lists as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) count: usize,
    /// Total length of their names.
    pub(super) bytes: usize,
}

impl Known {
    pub(super) fn of(listed: &[(&str, &str)]) -> Self {
        Self { count: listed.len(), bytes: listed.iter().map(|(name, _)| name.len()).sum() }
    }
}

/// A response that is neither acknowledged nor refused.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) nonce: u64,
    pub(super) sent: Instant,
    /// Changes of the client's resources by it.
    pub(super) contents: Arc<Contents>,
    /// A long response lives as long as it is the last one of some stream that waits for its ACK, so that
    /// later streams share it.
    response: Option<Arc<EncodedResponse>>,
    /// True for a second attempt at resources that were refused together with others.
    pub(super) retry: bool,
    /// Revision in force when it was sent.
    revision: u64,
    /// True if the client has all of the revision with it: no part of it had to wait.
    complete: bool,
}

/// Response that a request's nonce refers to, with the number of responses that the request answers: those
/// before the named one are answered as well, as responses are processed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// The request has no nonce, or nothing was sent.
    Nothing,
    /// The request answers the last response.
    Current(usize),
    /// An earlier response, after which another one was sent.
    Older(usize),
    /// The last response, once more: its answer came before.
    Again,
    /// No outstanding response of this stream.
    Unknown,
}

impl Acknowledged {
    /// Number of answered responses.
    pub(super) fn count(self) -> usize {
        match self {
            Self::Current(count) | Self::Older(count) => count,
            _ => 0,
        }
    }
}

/// A stream's subscription to one type.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) membership: Membership,
    /// Resources that were sent and not removed since. They stay after a refusal: the same content is not
    /// sent again.
    pub(super) sent: Entries,
    /// Size of the part of `sent` that the client lists as known, until the first response.
    pub(super) known: Known,
    /// Quota of the listed resources.
    pub(super) listed: Option<QuotaGuard>,
    /// State of the group that equals `sent`.
    pub(super) in_step: Option<u64>,
    pub(super) requested: Requested,
    /// Quota of the requested names, if there are many.
    pub(super) asked: Option<QuotaGuard>,
    /// True while the client's access to the type is being decided.
    pub(super) is_undecided: bool,
    /// State of the world: true if the next request with the last nonce is answered with all resources, even
    /// if it looks like an ACK.
    pub(super) always_respond: bool,
    /// State of the world: fingerprint of the last request's names.
    pub(super) fingerprint: u64,
    /// State of the world: true once the client has subscribed by name, so that no names mean no resources
    /// instead of the wildcard.
    pub(super) named: bool,
    pub(super) in_flight: VecDeque<InFlight>,
    pub(super) retry: bool,
    pub(super) last_sent: Option<u64>,
    last_acked: Option<u64>,
    sent_at: Option<SystemTime>,
    /// Newest revision of an acknowledged response.
    acked_revision: u64,
    acked_at: Option<SystemTime>,
    pub(super) rejection: Option<(Instant, Rejection)>,
}

impl Watch {
    /// Creates a new subscription of which everything is to be sent.
    pub(super) fn new(membership: Membership) -> Self {
        Self {
            membership,
            sent: Entries::new(),
            known: Known::default(),
            listed: None,
            in_step: None,
            requested: Requested::All,
            asked: None,
            is_undecided: false,
            always_respond: false,
            fingerprint: 0,
            named: false,
            in_flight: VecDeque::new(),
            retry: false,
            last_sent: None,
            last_acked: None,
            sent_at: None,
            acked_revision: 0,
            acked_at: None,
            rejection: None,
        }
    }

    /// Charges requested names, if there are more than a few together with unanswered ones: the names to
    /// answer are stored for this stream alone.
    ///
    /// # Errors
    /// If `account` cannot pay for them.
    pub(super) fn count_asked(
        &mut self,
        added: usize,
        account: &Account,
        few: usize,
    ) -> Result<(), LimitExceeded> {
        let asked = self.requested.at_most(added, self.membership.key.subscription.count);
        if asked > few {
            self.asked = Some(account.hold(asked_bytes(asked))?);
        }
        Ok(())
    }

    /// True if the client could confuse this nonce with that of a new response.
    pub(super) fn knows_nonce(&self, nonce: u64) -> bool {
        self.last_sent == Some(nonce) || self.in_flight.iter().any(|response| response.nonce == nonce)
    }

    pub(super) fn sent_response(
        &mut self,
        nonce: u64,
        contents: &Arc<Contents>,
        response: &Arc<EncodedResponse>,
        revision: u64,
        (now, wall_time): (Instant, SystemTime),
    ) {
        if self.in_flight.len() == IN_FLIGHT {
            self.in_flight.pop_front();
        }
        let retry = std::mem::take(&mut self.retry);
        // Bounds memory for a client that never acknowledges.
        if let Some(before) = self.in_flight.back_mut() {
            before.response = None;
        }
        let (contents, response) = (Arc::clone(contents), Some(Arc::clone(response)));
        let complete = self.in_step.is_some();
        self.in_flight.push_back(InFlight {
            nonce,
            sent: now,
            contents,
            response,
            retry,
            revision,
            complete,
        });
        let most = IN_FLIGHT_RESOURCES + 2 * self.sent.len().max(self.membership.key.subscription.count);
        while self.in_flight.len() > 1 && self.resources_in_flight() > most {
            self.in_flight.pop_front();
        }
        self.last_sent = Some(nonce);
        self.sent_at = Some(wall_time);
        self.requested = Requested::Nothing;
        self.asked = None;
    }

    fn resources_in_flight(&self) -> usize {
        self.in_flight.iter().map(|response| response.contents.upserts.len()).sum()
    }

    /// Drops unacknowledged resources that the client has unsubscribed from; `names` are those that it still
    /// subscribes to.
    pub(super) fn forget_in_flight(&mut self, removed: usize, names: &NameSet) {
        if removed < MANY_REMOVED {
            return;
        }
        for response in &mut self.in_flight {
            let upserts = &response.contents.upserts;
            let kept: Vec<_> =
                upserts.iter().filter(|resource| names.contains(&resource.name)).cloned().collect();
            if kept.len() < upserts.len() {
                response.contents = Arc::new(Contents { upserts: kept, removed: Vec::new() });
                response.response = None;
            }
        }
    }

    /// Finds the response that a nonce refers to.
    pub(super) fn find(&self, nonce: &str) -> Acknowledged {
        if nonce.is_empty() {
            return Acknowledged::Nothing;
        }
        let Some(nonce) = unhex(nonce) else { return Acknowledged::Unknown };
        let current = self.last_sent == Some(nonce);
        match self.in_flight.iter().position(|response| response.nonce == nonce) {
            Some(at) if current => Acknowledged::Current(at + 1),
            Some(at) => Acknowledged::Older(at + 1),
            None if current => Acknowledged::Again,
            None => Acknowledged::Unknown,
        }
    }

    /// Records the acceptance of the first `count` responses.
    pub(super) fn accept(&mut self, count: usize, wall_time: SystemTime) {
        if let Some(last) = self.in_flight.get(count.wrapping_sub(1)) {
            self.last_acked = Some(last.nonce);
            self.acked_at = Some(wall_time);
            if last.complete {
                self.acked_revision = last.revision;
            }
            self.rejection = None;
        }
    }

    /// Removes the first `count` responses, which are answered.
    pub(super) fn answered(&mut self, count: usize) {
        self.in_flight.drain(..count);
        // Fast path: most streams mostly wait for nothing.
        if self.in_flight.is_empty() {
            self.in_flight = VecDeque::new();
        }
    }

    /// Records a refusal; `newest` is the revision in force.
    ///
    /// Nothing is sent again, with one exception: Envoy stops at the first bad resource of a response. The
    /// other resources of that response are sent once more, without the one that the error names.
    pub(super) fn reject(
        &mut self,
        outcome: Acknowledged,
        error: &str,
        newest: u64,
        (now, wall_time): (Instant, SystemTime),
    ) -> &Rejection {
        let refused = self.in_flight.get(outcome.count().wrapping_sub(1));
        // A refusal without an outstanding response repeats the one before, or may be of anything up to now.
        let before = || self.rejection.as_ref().map_or(newest, |(_, rejection)| rejection.revision);
        let revision = refused.map_or_else(before, |response| response.revision);
        let upserts = refused.map(|response| &response.contents.upserts[..]).unwrap_or_default();
        let names = upserts.iter().map(|resource| Arc::clone(&resource.name)).collect();
        self.last_acked = None;
        let ty = self.membership.key.ty;
        let all_or_nothing = !matches!(ty, ResourceType::Cluster | ResourceType::Listener);
        if all_or_nothing && upserts.len() > 1 && refused.is_some_and(|response| !response.retry) {
            let innocent: Vec<_> =
                upserts.iter().filter(|resource| !error.contains(&*resource.name)).collect();
            if innocent.len() < upserts.len() {
                for resource in innocent {
                    // Only resources that are still the newest that the client was sent.
                    if self.sent.get(&resource.name) == Some(resource) {
                        self.sent.remove(&resource.name);
                        self.in_step = None;
                        self.retry = true;
                    }
                }
            }
        }
        let rejection = Rejection { error: error.to_owned(), names, at: wall_time, revision };
        &self.rejection.insert((now, rejection)).1
    }

    /// Missing revisions of the type; `None` if the client is in sync. `is_marked`: the stream has not
    /// handled a publication that concerns it.
    pub(super) fn lacking(&self, is_marked: bool) -> Option<Lacking> {
        // Without a decision on access there is no response to wait for.
        let is_told = !self.is_undecided;
        let is_pending = is_marked
            || (is_told && self.in_step != Some(self.membership.group.seq()))
            || (is_told && self.requested.is_some())
            || !self.in_flight.is_empty();
        let refused = self.rejection.as_ref().map(|(_, rejection)| rejection.revision);
        let until = if is_pending { u64::MAX } else { refused? };
        Some(Lacking { after: self.acked_revision, until, refused: refused.is_some() })
    }

    pub(super) fn acked_revision(&self) -> u64 {
        self.acked_revision
    }

    pub(super) fn acked_at(&self) -> Option<SystemTime> {
        self.acked_at
    }

    /// Status for debug pages; `is_marked` as in [`Self::lacking`].
    pub(super) fn status(&self, is_marked: bool) -> TypeStatus {
        let group = &self.membership.group;
        let state = group.lock();
        let names = if state.wildcard {
            Names::Wildcard
        } else {
            Names::Named(SubscribedNames::new(state.names.clone()))
        };
        drop(state);
        let text = |nonce: u64| String::from_utf8_lossy(&hex(nonce)).into_owned();
        TypeStatus {
            view: self.membership.key.view,
            names,
            sent_nonce: self.last_sent.map(text),
            acked_nonce: self.last_acked.map(text),
            sent_at: self.sent_at,
            resources: self.sent.len(),
            lacking: self.lacking(is_marked),
            acked_revision: self.acked_revision,
            acked_at: self.acked_at,
            rejection: self.rejection.as_ref().map(|(_, rejection)| rejection.clone()),
        }
    }
}
