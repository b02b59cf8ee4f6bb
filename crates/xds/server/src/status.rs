//! Connected clients as debug pages show them.

use crate::mark::Types;
use crate::protocol::Protocol;
use crate::protocol::node::ClientNode;
use crate::resources::NameSet;
use crate::source::{CertificateStatus, ClientId, PeerInfo, ViewId};
use enum_map::EnumMap;
use pilotfish_proto::ResourceType;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// Access to a stream from the list of connections.
pub(crate) trait ReportStatus: Send + Sync {
    /// Current status; `None` before the first request. The cost does not grow with subscriptions.
    fn report(&self) -> Option<ConnectionStatus>;
    /// Acknowledgement progress; `None` before the first request.
    fn progress(&self) -> Option<Progress>;
    /// Ends the stream if `is_meant` returns true for its peer. Returns that value.
    fn revoke(&self, is_meant: &dyn Fn(&PeerInfo) -> bool) -> bool;
}

/// A client that a publication concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concerned {
    /// The source's number of the client.
    pub client: ClientId,
    /// Types that may have changed for it: all if one of its views changed.
    pub types: Types,
}

/// Unacknowledged revisions of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// Newest revision that the client has acknowledged.
    pub after: u64,
    /// Newest missing revision: that of the refused response, or else the maximum.
    pub until: u64,
    /// True if the client refused the last response.
    pub refused: bool,
}

impl Lacking {
    /// True if the client has yet to acknowledge a revision that changed something of the type.
    #[must_use]
    pub fn lacks(&self, revision: u64) -> bool {
        self.after < revision && revision <= self.until
    }
}

/// Acknowledgement progress of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The source's number of the client.
    pub client: ClientId,
    /// Missing revisions by type; `None` where the client has everything.
    pub lacking: EnumMap<ResourceType, Option<Lacking>>,
    /// Time of its last ACK.
    pub acked_at: Option<SystemTime>,
    /// True if the client refuses the newest response of some type.
    pub refuses: bool,
}

impl Progress {
    /// State of a type for which the client has not acknowledged a revision, out of those by which the
    /// revision concerned it; `None` if it has acknowledged the revision. Agrees with
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

/// A connected client and its subscriptions.
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
    /// Certificate of its workload, if it was made here.
    pub certificate: Option<CertificateStatus>,
    /// Time at which its first request was accepted.
    pub connected_at: SystemTime,
    /// Delta or state of the world.
    pub protocol: Protocol,
    /// Subscriptions of the client, by type.
    pub types: BTreeMap<ResourceType, TypeStatus>,
    /// Revision in force when it was accepted: its first responses are of that one or a newer one.
    pub began: u64,
    /// The revision of the newest publication that concerned it, at least that in force when it was accepted.
    pub concerned: u64,
}

impl ConnectionStatus {
    /// Name of the proxy for requests: `web-0.shop`, or the complete id if it has no such part.
    #[must_use]
    pub fn proxy_name(&self) -> &str {
        let id = self.node.id.as_str();
        id.split('~').nth(2).filter(|name| !name.is_empty()).unwrap_or(id)
    }

    /// Types for which the client has not acknowledged a revision, with their states, out of those by which
    /// the revision concerned it. A publication that does not concern the client counts as acknowledged, and
    /// a refusal does not count against later revisions.
    pub fn missing(&self, revision: u64, types: Types) -> impl Iterator<Item = (ResourceType, &TypeStatus)> {
        let concerned = self.concerned >= revision;
        let lacks = move |status: &TypeStatus| status.lacking.is_some_and(|lacking| lacking.lacks(revision));
        self.types
            .iter()
            .filter(move |(ty, status)| concerned && types.contains(**ty) && lacks(status))
            .map(|(ty, status)| (*ty, status))
    }

    /// Types of which it lacks a revision up to the given one.
    pub fn missing_up_to(&self, revision: u64) -> impl Iterator<Item = (ResourceType, &TypeStatus)> {
        let lacks = move |status: &TypeStatus| {
            status.lacking.is_some_and(|lacking| lacking.after < revision || lacking.until <= revision)
        };
        self.types.iter().filter(move |(_, status)| lacks(status)).map(|(ty, status)| (*ty, status))
    }
}

/// Subscription and responses of one type.
#[derive(Clone, Debug)]
pub struct TypeStatus {
    /// Its view of the type.
    pub view: ViewId,
    pub names: Names,
    /// The nonce of the last response; `None` before the first.
    pub sent_nonce: Option<String>,
    /// The nonce of the last acknowledged response.
    pub acked_nonce: Option<String>,
    /// Time of the last response.
    pub sent_at: Option<SystemTime>,
    /// Number of resources that were sent and not removed since.
    pub resources: usize,
    /// Missing revisions; `None` if the client is in sync.
    pub lacking: Option<Lacking>,
    /// Newest revision of an acknowledged response; later revisions without a change for the client count as
    /// acknowledged as well.
    pub acked_revision: u64,
    /// Time of the last ACK.
    pub acked_at: Option<SystemTime>,
    /// The last refusal, until a later response is acknowledged.
    pub rejection: Option<Rejection>,
}

impl TypeStatus {
    #[must_use]
    pub fn in_sync(&self) -> bool {
        self.lacking.is_none()
    }
}

/// The names of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    Wildcard,
    /// Resource names in ascending order.
    Named(SubscribedNames),
}

/// Names of a client's subscription, as a copy-on-write snapshot of the subscription's own set. A clone costs
/// two pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribedNames(NameSet);

impl SubscribedNames {
    pub(crate) fn new(names: NameSet) -> Self {
        Self(names)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the names in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }

    /// True if both share the same set in memory.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Error message of the client.
    pub error: String,
    /// Resources of the refused response.
    pub names: Arc<[Arc<str>]>,
    /// Time of the refusal.
    pub at: SystemTime,
    /// Revision of the response.
    pub revision: u64,
}
