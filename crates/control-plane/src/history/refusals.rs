//! Refusals of changes. A refused change is in force at that client once the client accepts a later response
//! that still contains it, and never if a later change replaced it before.

use super::Change;
use pilotfish_proto::ResourceType;
use pilotfish_xds::{ClientId, Nack, Types};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Limit on the refusals that wait for the tracker. Beyond it the oldest are dropped; the tracker still sees
/// the clients that refuse at present.
const WAITING: usize = 1_024;
/// Limit on the clients that are named as having refused a change.
const NAMED: usize = 20;

/// Refusal of a response by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub client: ClientId,
    /// Connection id, as in logs.
    pub connection: Arc<str>,
    /// Type of the response's resources.
    pub ty: ResourceType,
    /// Newest revision of the type that the client had accepted.
    pub after: u64,
    /// Revision of the response.
    pub until: u64,
}

impl Refusal {
    /// True if the response contained the change of that revision, which concerns the client by `types`.
    pub(super) fn is_of(&self, revision: u64, types: Types) -> bool {
        self.after < revision && revision <= self.until && types.contains(self.ty)
    }
}

impl From<&Nack<'_>> for Refusal {
    fn from(nack: &Nack<'_>) -> Self {
        Self {
            client: nack.client,
            connection: nack.connection.into(),
            ty: nack.ty,
            after: nack.after,
            until: nack.revision,
        }
    }
}

/// Refusals on their way to the tracker.
#[derive(Default)]
pub(super) struct Inbox(VecDeque<Refusal>);

impl Inbox {
    /// Adds a refusal, unless it repeats the last one.
    pub(super) fn add(&mut self, refusal: Refusal) {
        if self.0.back() == Some(&refusal) {
            return;
        }
        if self.0.len() == WAITING {
            self.0.pop_front();
        }
        self.0.push_back(refusal);
    }

    pub(super) fn take(&mut self) -> VecDeque<Refusal> {
        std::mem::take(&mut self.0)
    }

    /// True if a refusal is of the change.
    pub(super) fn has(&self, change: &Change) -> bool {
        self.0.iter().any(|refusal| refusal.is_of(change.revision, change.types_of(refusal.client)))
    }
}

/// Clients that refused a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedBy {
    clients: BTreeSet<(ClientId, ResourceType)>,
    /// Connections of the first clients, with the type that each refused.
    pub connections: Vec<(Arc<str>, ResourceType)>,
}

impl RefusedBy {
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Adds a client; its connection, where that is known.
    pub fn add(&mut self, client: ClientId, ty: ResourceType, connection: Option<&Arc<str>>) {
        let is_new = self.clients.insert((client, ty));
        if let Some(connection) = connection.filter(|_| is_new && self.connections.len() < NAMED) {
            self.connections.push((connection.clone(), ty));
        }
    }

    /// Number of refusing clients; a client that refused several types counts once.
    pub fn count(&self) -> usize {
        let mut clients: Vec<ClientId> = self.clients.iter().map(|(client, _)| *client).collect();
        clients.dedup();
        clients.len()
    }

    /// Returns what became of a change that no connected client lacks any more. `later` are the later
    /// changes, in order of their revisions.
    pub fn resolution<'a>(
        &self,
        change: &Change,
        later: impl Iterator<Item = &'a Change> + Clone,
        is_there: impl Fn(ClientId) -> bool,
    ) -> Resolution {
        let mut refusing: Vec<_> = self.clients.iter().filter(|(client, _)| is_there(*client)).collect();
        if refusing.is_empty() {
            return Resolution::Left;
        }
        let mut accepted = None;
        for next in later.clone() {
            let refused_by = next.refused_by.lock();
            let before = refusing.len();
            refusing.retain(|one| !next.types_of(one.0).contains(one.1) || refused_by.clients.contains(*one));
            if refusing.len() < before {
                accepted = Some(next.revision);
            }
            if refusing.is_empty() {
                break;
            }
        }
        let until = accepted.unwrap_or(change.revision);
        let mut until_then = later.take_while(|next| next.revision <= until);
        match accepted.filter(|_| until_then.any(|next| next.may_replace(change))) {
            Some(revision) => Resolution::Superseded(revision),
            None => Resolution::Accepted(accepted),
        }
    }
}

/// State of a refused change that no connected client lacks any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The refusing clients accepted it as part of a later revision; `None` if they were sent the same one
    /// again.
    Accepted(Option<u64>),
    /// A later change, accepted with this revision, replaced some of it: it never was in force there.
    Superseded(u64),
    /// The refusing clients have disconnected.
    Left,
}
