//! Watches: what changes, from a revision on.

use super::{Header, KeyValue};

/// `etcdserverpb.WatchRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchRequest {
    /// What is asked for.
    #[prost(oneof = "WatchAsk", tags = "1, 3")]
    pub ask: Option<WatchAsk>,
}

/// What a [`WatchRequest`] asks for.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum WatchAsk {
    /// A watch.
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    /// Whether the server is there.
    #[prost(message, tag = "3")]
    Progress(WatchProgress),
}

/// `etcdserverpb.WatchCreateRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchCreate {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key that is not meant.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The first revision whose changes are told.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Whether answers that are too large for one message may come in several.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

/// `etcdserverpb.WatchProgressRequest`: answered by a response without events.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WatchProgress {}

/// `etcdserverpb.WatchResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchResponse {
    /// Who answered, and at which revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// Whether this begins the watch.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// Whether this ends it.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// Where it asked for revisions that are gone: the oldest one that is there.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Why it ends.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// Whether more messages of the same answer follow.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    /// What happened.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// `mvccpb.Event`. That of a lease which ended is a delete.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Event {
    /// What happened to the key.
    #[prost(enumeration = "EventType", tag = "1")]
    pub r#type: i32,
    /// The key as it is now.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

/// `mvccpb.Event.EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// It was written.
    Put = 0,
    /// It was deleted.
    Delete = 1,
}
