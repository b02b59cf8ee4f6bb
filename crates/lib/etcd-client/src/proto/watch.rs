//! Watch messages.

use super::{Header, KeyValue};

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchRequest {
    #[prost(oneof = "WatchAsk", tags = "1, 3")]
    pub ask: Option<WatchAsk>,
}

/// The request of a [`WatchRequest`].
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum WatchAsk {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    /// Request for a response without events, as a liveness probe.
    #[prost(message, tag = "3")]
    Progress(WatchProgress),
}

/// `etcdserverpb.WatchCreateRequest`: starts a watch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, exclusive.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The first revision to return changes of.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// True to allow large responses to be split into several messages.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

/// `etcdserverpb.WatchProgressRequest`; the server sends a response without events.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WatchProgress {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// True for the first response of the watch.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// True for the last response of the watch.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// Set if the requested revision was compacted: the oldest available revision.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Reason for the cancellation.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// True if more messages of the same response follow.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// `mvccpb.Event`. The expiry of a lease causes delete events.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub r#type: i32,
    /// The key after the event.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    Put = 0,
    Delete = 1,
}
