//! Messages for reading and writing keys.

/// `etcdserverpb.ResponseHeader` of every response.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Header {
    /// The id of the cluster.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The revision of the store.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: bytes::Bytes,
    /// The revision of the key's creation.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// The revision of the last change, or of the deletion.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// The value; empty for a deletion.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: bytes::Bytes,
    /// The lease that the key is attached to; 0 for none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// `etcdserverpb.RangeRequest`. Keys are returned in ascending order by default.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, exclusive; empty for [`Self::key`] alone.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// Maximum number of keys; 0 for all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The revision to read; 0 for the current one.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// True to omit values.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeResponse {
    /// The header; `None` within a transaction.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// True if the limit cut off further keys.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
    /// The lease to attach the key to; 0 for none.
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, exclusive; empty for [`Self::key`] alone.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// Number of deleted keys.
    #[prost(int64, tag = "2")]
    pub deleted: i64,
}
