//! xDS protocol state, subscriptions, fan-out and the ADS server.
//!
//! ```text
//!   source ── Snapshot ──▶ Group (one set of resources, shared by all streams with the same subscription)
//!     │                      │ marks
//!     └── Publication ──▶ Fanout ──▶ Stream (state machine without IO) ──▶ server (moves bytes)
//! ```
//!
//! - A [`ResourceSource`] gives each client a *view* of each resource type, and in a view resources by name. This crate
//!   knows neither the model nor how resources are made.
//! - A *group* is what several streams have in common: type, view and subscription. It holds the newest resources as a
//!   persistent map. A [`Stream`] keeps a pointer to the map that it last sent, so "what does this proxy lack" is the
//!   difference of two maps that share almost everything, and streams in step share even the encoded response.
//! - [`Fanout::publish`] changes the groups that subscribe to a changed resource and wakes their streams, and no others.
//! - The [`Server`] accepts connections and moves bytes between sockets and streams.
//!
//! Invariants: what a stream remembers as sent is exactly what it sent. Nothing in a stream's state depends on time except
//! the deadlines of the make-before-break order. Locks are taken in the order source snapshot, topology, group.

mod entries;
mod environment;
mod fanout;
mod group;
mod limits;
mod mark;
mod nack;
mod names;
mod node;
mod protocol;
mod recorder;
mod response;
mod server;
mod source;
mod status;
mod stream;
mod topology;
mod wire;

pub use environment::{Clock, Environment, SystemClock};
pub use fanout::Fanout;
pub use limits::{Limit, LimitExceeded, NodeLimits, StreamLimits};
pub use mark::Mark;
pub use nack::Nack;
pub use protocol::Protocol;
pub use recorder::{HandshakeResult, NoRecorder, Push, Recorder};
pub use server::{ALPN, Bound, Server, ServerConfig, ServerError, TlsListenerConfig};
pub use source::{
    Change, ChangeKind, ClientId, Collection, CollectionState, ConnectError, PeerInfo, Publication, Resource,
    ResourceSource, Snapshot, ViewId,
};
pub use status::{ConnectionStatus, Names, Rejection, TypeStatus};
pub use stream::{Response, Stream, StreamError};
