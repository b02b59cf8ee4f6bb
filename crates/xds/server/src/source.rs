//! Contract between this crate and the source of its resources.

use crate::limits::LimitExceeded;
use bytes::Bytes;
use imbl::OrdMap;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

/// Set of resources that a client sees of one type, interned by the source: equal views see equal resources.
/// A number is never reused for another view, since a stream follows a move of its client a little later than
/// the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u32);

impl ViewId {
    /// The view of a type that is not served to a client: always empty.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// A connected client, numbered by the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One encoded resource. Cloning copies pointers.
#[derive(Clone)]
pub struct Resource {
    /// Name under which clients subscribe to it.
    pub name: Arc<str>,
    /// Hash of the content, equal in all replicas. Zero is reserved: no resource has it.
    pub version: u64,
    pub body: Bytes,
    /// The source's revision at which the content last changed.
    pub changed_at: u64,
    /// True for an empty resource that replaces a missing one, for clients that would wait for it. Its
    /// version differs from that of an equal resource that exists.
    pub stands_in: bool,
}

/// Shows nothing of the content, which may be a private key.
impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, body, changed_at, stands_in } = self;
        f.debug_struct("Resource")
            .field("name", name)
            .field("version", version)
            .field("bytes", &body.len())
            .field("changed_at", changed_at)
            .field("stands_in", stands_in)
            .finish()
    }
}

/// Compares names and content hashes.
impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.name == other.name
    }
}

impl Eq for Resource {}

/// Resources by name, of a type that is known by its URL only. Clones share everything that did not change
/// since.
pub type Collection = OrdMap<Arc<str>, Arc<Resource>>;

/// State of a collection in its source.
#[derive(Clone, Debug)]
pub enum CollectionState {
    /// It is not built yet: the client waits.
    NotYet,
    /// The complete collection, with all its resources.
    Is(Collection),
    /// Response to one question. It is sent once and not kept; the other value is held until its last byte
    /// has been sent. The client may ask again, and [`ResourceSource::serves_collection`] is called again
    /// then.
    Once(Collection, Held),
}

/// State of a Secret that only one client is sent, such as the key of its workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrivateSecret {
    /// It is being made: requests of the client for Secrets are answered when it is there.
    NotYet,
    /// The client is not sent one.
    Absent,
    /// Its version differs from those of earlier ones of the client, and is no hash of a key.
    Is(Arc<Resource>),
}

/// Handle of one stream by which a source announces that private Secrets of the client have changed.
#[derive(Clone)]
pub struct SecretsChanged(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for SecretsChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretsChanged").finish_non_exhaustive()
    }
}

impl SecretsChanged {
    pub(crate) fn new(announce: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(announce))
    }

    /// Wakes the stream, which then reads its private Secrets again.
    pub fn announce(&self) {
        (self.0)();
    }
}

/// Guard that is held while bytes are in memory, such as a part of a budget.
pub type Held = Arc<dyn fmt::Debug + Send + Sync>;

/// A client's address, metadata and identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Address of the connection.
    pub address: SocketAddr,
    /// True if headers show that a proxy forwarded the request, so that the address is not the client's.
    pub is_forwarded: bool,
    /// Authenticated identities (SPIFFE ids); empty on a plaintext connection.
    pub identities: Vec<String>,
    /// Cluster whose API server issued the identities, if known.
    pub cluster: Option<Arc<str>>,
    /// End of the certificate that proved the identities, if one did.
    pub certificate_expires: Option<SystemTime>,
}

impl Default for PeerInfo {
    /// A client without identity at the unspecified address.
    fn default() -> Self {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let (identities, cluster, certificate_expires) = (Vec::new(), None, None);
        Self { address, is_forwarded: false, identities, cluster, certificate_expires }
    }
}

/// Certificate of a client's workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// SPIFFE id.
    pub identity: Arc<str>,
    pub expires: SystemTime,
}

/// Reason to refuse a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Its node is malformed: answered with `INVALID_ARGUMENT`. A retry does not help.
    #[error("{0}")]
    InvalidArgument(String),
    /// Its identity does not allow its node: answered with `PERMISSION_DENIED`.
    #[error("{0}")]
    PermissionDenied(String),
    /// Its node exceeds a limit: answered with `RESOURCE_EXHAUSTED`.
    #[error(transparent)]
    LimitExceeded(#[from] LimitExceeded),
    /// It has not authenticated, which its request requires: answered with `UNAUTHENTICATED`.
    #[error("{0}")]
    Unauthenticated(String),
    /// An object that its node names does not exist yet: answered with `FAILED_PRECONDITION`.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The server is overloaded: answered with `UNAVAILABLE`.
    #[error("{0}")]
    Unavailable(String),
}

/// Source of resources. The binary implements it over the translator.
pub trait ResourceSource: Send + Sync + 'static {
    /// Handle of a connected client, dropped when the client is gone.
    type Client: Send + Sync + 'static;
    /// One consistent state of all resources.
    type Snapshot<'a>: Snapshot<Self::Client>
    where
        Self: 'a;

    /// True once everything has been synced. Until then streams are refused with `UNAVAILABLE`.
    fn ready(&self) -> bool;

    /// True if [`Self::connect`] reads the named extension of a node. Other extensions are dropped, except
    /// for the first one.
    fn reads_extension(&self, _name: &str) -> bool {
        false
    }

    /// Accepts or refuses a client by the node of its first request, which lacks the fields
    /// `client_features`, `listening_addresses`, `dynamic_parameters` and the user agent's version.
    ///
    /// # Errors
    /// When the node is refused; the text reaches the client.
    fn connect(&self, node: &Node, peer: &PeerInfo) -> Result<Self::Client, ConnectError>;

    /// Number of the client in [`Publication::view_changed`].
    fn client_id(&self, client: &Self::Client) -> ClientId;

    /// Identity accepted for a client: by default the first that its connection proves. Its subscriptions are
    /// charged to it.
    fn identity(&self, _client: &Self::Client, peer: &PeerInfo) -> Option<String> {
        peer.identities.first().cloned()
    }

    /// Estimated bytes that the source keeps of a client's node. Charged to the client, in addition to the
    /// encoded node ([`StreamLimits::all_node_bytes`](crate::StreamLimits::all_node_bytes)).
    fn weight(&self, _client: &Self::Client) -> usize {
        0
    }

    /// Receives the health of a client's workload from its agent: `Some` with the problem, `None` if it is
    /// healthy.
    fn reported_health(&self, _client: &Self::Client, _problem: Option<&str>) {}

    /// Notifies the source that no stream subscribes to these resources of a view by name, so their changes
    /// need not be reported. A stream may have subscribed to one since, and may even have read it:
    /// `is_subscribed` checks that. Called without locks of this crate.
    fn unsubscribed(&self, _view: ViewId, _names: &[Arc<str>], _is_subscribed: &dyn Fn(&str) -> bool) {}

    /// Names of Secrets that each client is sent in a form of its own. They are of no view.
    fn private_secrets(&self) -> &[&str] {
        &[]
    }

    /// The newest form of one of these Secrets for a client. The source announces another one by `changed`.
    fn private_secret(
        &self,
        _client: &Self::Client,
        _name: &str,
        _changed: &SecretsChanged,
    ) -> PrivateSecret {
        PrivateSecret::Absent
    }

    /// Certificate of the client's workload that the source made, for status pages.
    fn workload_certificate(&self, _client: &Self::Client) -> Option<CertificateStatus> {
        None
    }

    /// True if a type that is not an xDS type is served to the client, as a collection. Called once for each
    /// type of a stream, with the names of its first request.
    ///
    /// # Errors
    /// When the client may not have it: that ends the stream, and the text reaches the client.
    fn serves_collection(
        &self,
        _client: &Self::Client,
        _type_url: &str,
        _names: &[&str],
    ) -> Result<bool, ConnectError> {
        Ok(false)
    }

    /// The newest state of a served collection; [`crate::Fanout::publish_collections`] announces a new one.
    fn collection(&self, _client: &Self::Client, _type_url: &str) -> CollectionState {
        CollectionState::Is(Collection::new())
    }

    /// `control_plane` of a collection's responses, if they have one.
    fn control_plane(&self, _type_url: &str) -> Option<&str> {
        None
    }

    /// The newest state. It may hold a lock of the source: it never lives across an await, and is taken
    /// without locks of this crate.
    fn snapshot(&self) -> Self::Snapshot<'_>;
}

/// One consistent state of all resources. Reading may compute.
pub trait Snapshot<C> {
    /// Number of the state, ascending.
    fn revision(&self) -> u64;

    /// The client's view of a type; `None` when the type is not served to it.
    fn view(&self, client: &C, ty: ResourceType) -> Option<ViewId>;

    /// True while the access of the client to a type is being decided: until then its requests are not
    /// answered.
    fn is_undecided(&self, _client: &C, _ty: ResourceType) -> bool {
        false
    }

    /// Parts of a view. Parts have numbers of their own, which [`Self::prepare`], [`Self::names`] and
    /// [`Self::get`] accept. The first part that has a name wins over later ones. The part of a single
    /// client, with few resources, comes first, and the largest one, which most clients share, last:
    /// resources of the last parts that clients have in common are kept once. The parts of a view never
    /// change. The only part of a single-part view is the view itself; so it is for types that clients
    /// subscribe to by name.
    fn parts(&self, view: ViewId) -> Arc<[ViewId]> {
        Arc::from([view])
    }

    /// True if the next state cannot be built before this one is released. A holder that still has much to
    /// read then releases it and takes another.
    fn is_waited_for(&self) -> bool {
        false
    }

    /// Computes the data that [`Self::names`] needs, of a view or a part. Returns true when it is complete: a
    /// snapshot that is waited for returns early, but not before it has computed one part, so that repeated
    /// calls come to an end.
    fn prepare(&self, _view: ViewId) -> bool {
        true
    }

    /// Computes the data that [`Self::get`] of these names needs, or a part of it, possibly on several
    /// processors. Called before many resources are read.
    fn prepare_names(&self, _view: ViewId, _names: &[Arc<str>]) {}

    /// Names of all resources of a wildcard subscription to a view, or to a part of one.
    fn names(&self, view: ViewId) -> Arc<[Arc<str>]>;

    /// Resource of a view or a part by name. For unknown names, load assignments and routes are an empty
    /// resource that [stands in](Resource::stands_in), other types are `None`.
    fn get(&self, view: ViewId, name: &str) -> Option<Resource>;
}

/// Difference between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// The revision of the new state.
    pub revision: u64,
    /// Changes in parts of views in use. May include resources that did not really change.
    pub changes: Vec<Change>,
    /// Clients that have another view of some type now.
    pub view_changed: Vec<ClientId>,
}

/// Change of one resource in one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The changed part; the view itself if it has one part.
    pub view: ViewId,
    pub ty: ResourceType,
    pub name: Arc<str>,
    pub kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The resource is new or has new content.
    Upsert,
    /// The resource was removed from the wildcard set of the part. A named subscription may still be answered
    /// (with an empty resource).
    Remove,
}
