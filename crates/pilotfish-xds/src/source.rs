//! The contract between this crate and the source of its resources.

use crate::limits::LimitExceeded;
use bytes::Bytes;
use imbl::OrdMap;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use std::fmt;
use std::sync::Arc;

/// Which set of resources a client sees of one type, interned by the source: equal views see equal resources. A number is
/// never used again for something else: streams learn a little later than the source that a client has moved on.
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
#[derive(Clone, Debug)]
pub struct Resource {
    /// The name under which clients subscribe to it.
    pub name: Arc<str>,
    /// Hash of the content, the same in every replica. Zero is reserved: no resource has it.
    pub version: u64,
    /// An encoded `google.protobuf.Any`.
    pub body: Bytes,
    /// The source's revision at which the content last changed.
    pub changed_at: u64,
    /// There is no resource of that name: this empty one is sent in its place to clients that would wait for
    /// it. Its version is another one than that of an equal resource that exists.
    pub stands_in: bool,
}

/// Equal name and equal content hash are an equal resource.
impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.name == other.name
    }
}

impl Eq for Resource {}

/// All resources of a type that is known by its URL only, by name. Clones share everything that did not change since.
pub type Collection = OrdMap<Arc<str>, Arc<Resource>>;

/// What a source says of a collection.
#[derive(Clone, Debug)]
pub enum CollectionState {
    /// It is not made yet: the client waits.
    NotYet,
    /// All of it.
    Is(Collection),
    /// The answer to one question. It is sent once and not kept; the other value is held until its last byte is on its way. The client may
    /// ask again: [`ResourceSource::serves_collection`] is asked then, too.
    Once(Collection, Held),
}

/// Something that is held while bytes are in memory, such as a part of a budget.
pub type Held = Arc<dyn fmt::Debug + Send + Sync>;

/// A client's address, metadata and identities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerInfo {
    /// `ip:port`, or the path of a Unix socket.
    pub address: String,
    /// True if headers say that a proxy passed the request on: its client is elsewhere.
    pub is_forwarded: bool,
    /// Authenticated identities (SPIFFE ids); empty on a plaintext connection.
    pub identities: Vec<String>,
    /// The cluster whose API server vouches for them, where that is known.
    pub cluster: Option<Arc<str>>,
}

/// Why a client is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Its node is malformed: answered with `INVALID_ARGUMENT`. A retry does not help.
    #[error("{0}")]
    InvalidArgument(String),
    /// Its identity does not allow its node: answered with `PERMISSION_DENIED`.
    #[error("{0}")]
    PermissionDenied(String),
    /// Its node holds too much: answered with `RESOURCE_EXHAUSTED`.
    #[error(transparent)]
    LimitExceeded(#[from] LimitExceeded),
    /// It proves no identity, and needs one for what it asks: answered with `UNAUTHENTICATED`.
    #[error("{0}")]
    Unauthenticated(String),
    /// An object that its node names does not exist yet: answered with `FAILED_PRECONDITION`.
    #[error("{0}")]
    FailedPrecondition(String),
    /// There is too much to do now: answered with `UNAVAILABLE`.
    #[error("{0}")]
    Unavailable(String),
}

/// The source of resources. The binary implements it over the translator.
pub trait ResourceSource: Send + Sync + 'static {
    /// The source's handle of a connected client. It is dropped when the client is gone.
    type Client: Send + Sync + 'static;
    /// One consistent state of all resources.
    type Snapshot<'a>: Snapshot<Self::Client>
    where
        Self: 'a;

    /// Whether everything has been synced. Until then streams are answered with `UNAVAILABLE`.
    fn ready(&self) -> bool;

    /// Whether [`Self::connect`] looks for that extension in a node. Of the others, a node has the first at most.
    fn reads_extension(&self, _name: &str) -> bool {
        false
    }

    /// Accepts or refuses a client by the node of its first request, without the fields `client_features`, `listening_addresses`,
    /// `dynamic_parameters` and the user agent's version.
    ///
    /// # Errors
    /// When the node is refused; the text reaches the client.
    fn connect(&self, node: &Node, peer: &PeerInfo) -> Result<Self::Client, ConnectError>;

    /// The number that [`Publication::view_changed`] uses for the client.
    fn client_id(&self, client: &Self::Client) -> ClientId;

    /// The identity that was accepted for a client: by default the one that its connection proves. What it subscribes to counts for it.
    fn identity(&self, _client: &Self::Client, peer: &PeerInfo) -> Option<String> {
        peer.identities.first().cloned()
    }

    /// About how many bytes the source keeps of a client's node. It counts, beside the encoded node, for the client
    /// ([`StreamLimits::all_node_bytes`](crate::StreamLimits::all_node_bytes)).
    fn weight(&self, _client: &Self::Client) -> usize {
        0
    }

    /// A client reports the health of its workload: `Some` with the problem, `None` when it is healthy.
    fn reported_health(&self, _client: &Self::Client, _problem: Option<&str>) {}

    /// No stream subscribes to these resources of a view by name any more: their changes need not be reported. A stream may have
    /// subscribed to one since, which `is_subscribed` tells; it may have read it already. Nothing of this crate is locked.
    fn unsubscribed(&self, _view: ViewId, _names: &[Arc<str>], _is_subscribed: &dyn Fn(&str) -> bool) {}

    /// Whether a type that is none of xDS is served to the client, as a collection. Asked once for each type of a stream, with the names in
    /// its first request.
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

    /// The newest state of a collection that is served; [`crate::Fanout::publish_collections`] tells that there is another one.
    fn collection(&self, _client: &Self::Client, _type_url: &str) -> CollectionState {
        CollectionState::Is(Collection::new())
    }

    /// Who answers for a collection: what its responses say in `control_plane`, if they do.
    fn control_plane(&self, _type_url: &str) -> Option<&str> {
        None
    }

    /// The newest state. It may hold a lock of the source: it never lives across an await, and nothing of this crate is
    /// locked when it is taken.
    fn snapshot(&self) -> Self::Snapshot<'_>;
}

/// One consistent state of all resources. Reading may compute.
pub trait Snapshot<C> {
    /// Counts up with every state.
    fn revision(&self) -> u64;

    /// The client's view of a type; `None` when the type is not served to it.
    fn view(&self, client: &C, ty: ResourceType) -> Option<ViewId>;

    /// True while it is being found out if a type without a view is served to the client: until then it is
    /// not answered.
    fn is_undecided(&self, _client: &C, _ty: ResourceType) -> bool {
        false
    }

    /// What a view is made of: parts with numbers of their own, by each of which [`Self::prepare`], [`Self::names`] and [`Self::get`] can be asked. The first
    /// part that has a name wins over later ones. The part that is a client's own, with few resources, comes first, and the largest one, which most
    /// clients share, last: what all clients with the same last parts see of them is kept once. It never changes for a view. A view of
    /// one part is its part, as those of types are that clients subscribe to by name.
    fn parts(&self, view: ViewId) -> Arc<[ViewId]> {
        Arc::from([view])
    }

    /// Whether the next state waits until nobody has this one. Whoever still needs much of it gives it back and takes another.
    fn is_waited_for(&self) -> bool {
        false
    }

    /// Computes what [`Self::names`] needs, of a view or a part. Returns whether that is done: a snapshot that is waited for ends early, but not before it has
    /// computed a part, so that asking again and again comes to an end.
    fn prepare(&self, _view: ViewId) -> bool {
        true
    }

    /// Computes what [`Self::get`] of these names needs, or a part of it: a source may do that on several processors. To be called before many
    /// are read.
    fn prepare_names(&self, _view: ViewId, _names: &[Arc<str>]) {}

    /// The names of all resources of a wildcard subscription to a view, or of a part of one.
    fn names(&self, view: ViewId) -> Arc<[Arc<str>]>;

    /// A resource of a view or a part by name. Of load assignments and routes of unknown names there is an
    /// empty resource that [stands in](Resource::stands_in), of other types `None`.
    fn get(&self, view: ViewId, name: &str) -> Option<Resource>;
}

/// What differs between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// The revision of the new state.
    pub revision: u64,
    /// What changed in parts of views in use. It may name resources that did not really change.
    pub changes: Vec<Change>,
    /// The clients that have another view of some type now.
    pub view_changed: Vec<ClientId>,
}

/// One change of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The part in which it changed; of a view of one part that is the view.
    pub view: ViewId,
    /// The resource's type.
    pub ty: ResourceType,
    /// The resource's name.
    pub name: Arc<str>,
    /// What happened.
    pub kind: ChangeKind,
}

/// What happened to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new or has new content.
    Upsert,
    /// It is gone from the wildcard set of the part. A named subscription may still be answered (with an empty resource).
    Remove,
}
