//! xDS protocol state, subscriptions, fan-out and the ADS server.
//!
//! ```text
//!   source ── Snapshot ──▶ Group (one set of resources, shared by all streams with the same subscription)
//!     │                      │ marks
//!     └── Publication ──▶ Fanout ──▶ Stream (state machine without IO) ──▶ server (moves bytes)
//! ```
//!
//! - A [`ResourceSource`] gives each client a *view* of each resource type, and in a view resources by name.
//!   This crate knows neither the model nor how resources are made.
//! - A view may be made of *parts*: a client's own resources over those that many clients see. A part is read
//!   from the source once and changed once by a publication, whatever views it is in, and views that end in
//!   the same parts share what those come to (`fanout/whole.rs`, `resources/layer.rs`).
//! - A *group* is what several streams have in common: type, view and subscription. It holds the newest
//!   resources as a few persistent maps, one over the other: one for each part, and one of what is subscribed
//!   to by name. A [`Stream`] keeps pointers to those that it last sent, so "what does this proxy lack" is
//!   the difference of maps that share almost everything. Streams in step share even the encoded response,
//!   and first responses of different groups share the encoded resources of the parts that they have in
//!   common.
//! - [`Fanout::publish`] changes the groups that subscribe to a changed resource and wakes their streams, and
//!   no others.
//! - The [`Server`] accepts connections and moves bytes between sockets and streams.
//!
//! Invariants: what a stream remembers as sent is exactly what it sent. Nothing in a stream's state depends
//! on time except the deadlines of the make-before-break order. Locks are taken in the order source snapshot,
//! topology, group, whole, part; nothing is read from the source while the topology is locked, except for
//! what a stream subscribed to since the publication was read. Resources change only while the topology is
//! locked for writing, and are looked at while it is locked for reading: a whole is always made of the newest
//! state of its parts. Parts, wholes and names go with the last group that needs them.

mod environment;
mod error;
mod fanout;
mod limits;
mod mark;
mod protocol;
mod recorder;
mod resources;
mod server;
mod source;
mod status;
mod stream;

pub use environment::{Clock, Environment, SystemClock};
pub use error::StreamError;
pub use fanout::Fanout;
pub use limits::{Limit, LimitExceeded, NodeLimits, StreamLimits};
pub use mark::{Mark, Types};
pub use protocol::Protocol;
pub use protocol::nack::Nack;
pub use protocol::node::ClientNode;
pub use recorder::{HandshakeResult, NoRecorder, Push, Recorder};
pub use server::{
    ALPN, Bound, Server, ServerConfig, ServerError, TlsListenerConfig, UnaryAnswer, UnaryMethod,
};
pub use source::{
    CertificateStatus, Change, ChangeKind, ClientId, Collection, CollectionState, ConnectError, Held,
    PeerInfo, PrivateSecret, Publication, Resource, ResourceSource, SecretsChanged, Snapshot, ViewId,
};
pub use status::{
    Concerned, ConnectionStatus, Lacking, Names, Progress, Rejection, SubscribedNames, TypeStatus,
};
pub use stream::{Response, Stream};
