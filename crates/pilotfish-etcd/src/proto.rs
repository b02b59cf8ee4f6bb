//! The few messages of etcd's API (version 3) that reading needs, and the fields of them. Numbers are those of `rpc.proto`, `kv.proto` and
//! `auth.proto` in etcd's `api` folder.

/// `etcdserverpb.ResponseHeader`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

/// `mvccpb.KeyValue`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: bytes::Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) value: bytes::Bytes,
}

/// `etcdserverpb.RangeRequest`. Keys come in ascending order where nothing else is asked for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
}

/// `etcdserverpb.RangeResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

/// `etcdserverpb.WatchRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchAsk", tags = "1, 3")]
    pub(crate) ask: Option<WatchAsk>,
}

/// What a [`WatchRequest`] asks for.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub(crate) enum WatchAsk {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "3")]
    Progress(WatchProgress),
}

/// `etcdserverpb.WatchCreateRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    /// Whether answers that are too large for one message may come in several.
    #[prost(bool, tag = "8")]
    pub(crate) fragment: bool,
}

/// `etcdserverpb.WatchProgressRequest`: answered by a response without events.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct WatchProgress {}

/// `etcdserverpb.WatchResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub(crate) fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// `mvccpb.Event`. That of a lease which ended is a delete.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub(crate) r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

/// `mvccpb.Event.EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum EventType {
    Put = 0,
    Delete = 1,
}

/// `etcdserverpb.AuthenticateRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

/// `etcdserverpb.AuthenticateResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}
