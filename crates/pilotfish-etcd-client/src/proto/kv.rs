//! Keys: reading and writing single ones and ranges.

/// `etcdserverpb.ResponseHeader`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Header {
    /// The cluster that answered.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The revision of the whole store when the answer was made.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// `mvccpb.KeyValue`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: bytes::Bytes,
    /// The revision at which the key came into being.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// The revision of its last change; of a deletion, that of the deletion.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// The value; none of a deletion.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: bytes::Bytes,
    /// The lease that the key ends with; 0 for none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// `etcdserverpb.RangeRequest`. Keys come in ascending order where nothing else is asked for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key that is not meant; empty for [`Self::key`] alone.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// How many keys at most; 0 for all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// As they were at this revision; 0 for now.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// Whether values are left out.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

/// `etcdserverpb.RangeResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeResponse {
    /// Who answered, and at which revision. None within a transaction.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// The keys.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Whether there are more than the limit.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// `etcdserverpb.PutRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PutRequest {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
    /// The lease that the key ends with; 0 for none.
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

/// `etcdserverpb.PutResponse`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PutResponse {
    /// Who answered, and at which revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

/// `etcdserverpb.DeleteRangeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteRangeRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key that is not meant; empty for [`Self::key`] alone.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
}

/// `etcdserverpb.DeleteRangeResponse`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteRangeResponse {
    /// Who answered, and at which revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// How many keys there were.
    #[prost(int64, tag = "2")]
    pub deleted: i64,
}
