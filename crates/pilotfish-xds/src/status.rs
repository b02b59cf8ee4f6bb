//! Connected clients as debug pages show them.

use crate::entries::NameSet;
use crate::mark::Types;
use crate::node::ClientNode;
use crate::protocol::Protocol;
use crate::source::{ClientId, PeerInfo, ViewId};
use enum_map::EnumMap;
use pilotfish_proto::ResourceType;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// A stream as the list of connections sees it.
pub(crate) trait ReportStatus: Send + Sync {
    /// What it is now; `None` before the first request. What it costs does not grow with subscriptions.
    fn report(&self) -> Option<ConnectionStatus>;
    /// How far it is; `None` before the first request.
    fn progress(&self) -> Option<Progress>;
    /// Has its task end it, if its peer is meant. Returns whether it is.
    fn revoke(&self, is_meant: &dyn Fn(&PeerInfo) -> bool) -> bool;
}

/// A client that a publication concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concerned {
    /// The source's number of the client.
    pub client: ClientId,
    /// The types of which it may be sent something: all where a view of it is another one now.
    pub types: Types,
}

/// The revisions of a type that a client has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The newest that it has acknowledged.
    pub after: u64,
    /// The newest that it lacks: that of the response which it refuses, or else all that there are.
    pub until: u64,
    /// Whether it refuses what it was sent last.
    pub refused: bool,
}

impl Lacking {
    /// Whether the client has yet to acknowledge a revision that changed something of the type.
    #[must_use]
    pub fn lacks(&self, revision: u64) -> bool {
        self.after < revision && revision <= self.until
    }
}

/// How far a client is with what was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The source's number of the client.
    pub client: ClientId,
    /// What it lacks of each type; `None` where that is nothing.
    pub lacking: EnumMap<ResourceType, Option<Lacking>>,
    /// When it acknowledged a response last.
    pub acked_at: Option<SystemTime>,
    /// Whether it refuses the newest response of some type.
    pub refuses: bool,
}

impl Progress {
    /// How the client lacks a revision that concerned it by these types; `None` where it has acknowledged it. As
    /// [`ConnectionStatus::missing`].
    #[must_use]
    pub fn lacks(&self, revision: u64, types: Types) -> Option<Lacking> {
        let mut lacks = self
            .lacking
            .iter()
            .filter(|(ty, _)| types.contains(*ty))
            .filter_map(|(_, lacking)| lacking.filter(|lacking| lacking.lacks(revision)));
        let first = lacks.next()?;
        Some(lacks.find(|lacking| lacking.refused && !first.refused).unwrap_or(first))
    }
}

/// One connected client.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    /// `<node id>-<n>`, unique in this process.
    pub id: String,
    /// The source's number of the client.
    pub client: ClientId,
    /// The node of its first request.
    pub node: ClientNode,
    /// Its address, metadata and identities.
    pub peer: PeerInfo,
    /// When its first request was accepted.
    pub connected_at: SystemTime,
    /// Delta or state of the world.
    pub protocol: Protocol,
    /// What it subscribes to.
    pub types: BTreeMap<ResourceType, TypeStatus>,
    /// The revision in force when it was accepted: what it gets first is of that one or a newer one.
    pub began: u64,
    /// The revision of the newest publication that concerned it, at least that in force when it was accepted.
    pub concerned: u64,
}

impl ConnectionStatus {
    /// Of the types by which a revision concerns the client, those of which it has not acknowledged it, each with its state. A publication
    /// that does not concern the client is acknowledged without a word, and a refusal stands against no later revision.
    pub fn missing(&self, revision: u64, types: Types) -> impl Iterator<Item = (ResourceType, &TypeStatus)> {
        let concerned = self.concerned >= revision;
        let lacks = move |status: &TypeStatus| status.lacking.is_some_and(|lacking| lacking.lacks(revision));
        self.types
            .iter()
            .filter(move |(ty, status)| concerned && types.contains(**ty) && lacks(status))
            .map(|(ty, status)| (*ty, status))
    }

    /// The types of which it lacks something of a revision or of one before.
    pub fn missing_up_to(&self, revision: u64) -> impl Iterator<Item = (ResourceType, &TypeStatus)> {
        let lacks = move |status: &TypeStatus| {
            status.lacking.is_some_and(|lacking| lacking.after < revision || lacking.until <= revision)
        };
        self.types.iter().filter(move |(_, status)| lacks(status)).map(|(ty, status)| (*ty, status))
    }
}

/// What a client subscribed to and was sent of one type.
#[derive(Clone, Debug)]
pub struct TypeStatus {
    /// Its view of the type.
    pub view: ViewId,
    /// What it subscribes to.
    pub names: Names,
    /// The nonce of the last response; `None` before the first.
    pub sent_nonce: Option<String>,
    /// The nonce of the last acknowledged response.
    pub acked_nonce: Option<String>,
    /// When the last response was sent.
    pub sent_at: Option<SystemTime>,
    /// How many resources were sent and not removed since.
    pub resources: usize,
    /// What the client lacks of how it is now; `None` where it has everything.
    pub lacking: Option<Lacking>,
    /// The newest revision of which it acknowledged a response; it has acknowledged later ones that changed nothing for it as well.
    pub acked_revision: u64,
    /// When it acknowledged a response last.
    pub acked_at: Option<SystemTime>,
    /// The last refusal, until a later response is acknowledged.
    pub rejection: Option<Rejection>,
}

impl TypeStatus {
    /// Whether the client has everything as it is now.
    #[must_use]
    pub fn in_sync(&self) -> bool {
        self.lacking.is_none()
    }
}

/// The names of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Everything.
    Wildcard,
    /// Those, in order.
    Named(SubscribedNames),
}

/// Names that a client subscribes to, as they were: the subscription's own set, which goes its own way when it changes. A clone costs two
/// pointers, however many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribedNames(NameSet);

impl SubscribedNames {
    pub(crate) fn new(names: NameSet) -> Self {
        Self(names)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }

    /// Whether both are the same set in memory.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl<T: Into<Arc<str>>> FromIterator<T> for SubscribedNames {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        Self(names.into_iter().map(Into::<Arc<str>>::into).collect())
    }
}

/// A refused response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The client's message.
    pub error: String,
    /// The resources of the refused response.
    pub names: Arc<[Arc<str>]>,
    /// When the refusal came in.
    pub at: SystemTime,
    /// The revision of the response.
    pub revision: u64,
}
