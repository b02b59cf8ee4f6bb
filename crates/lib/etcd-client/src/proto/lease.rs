//! Lease messages. Keys attached to a lease are deleted when it expires.

use super::Header;

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantRequest {
    /// Requested TTL in seconds. etcd raises it to its minimum, which depends on the election timeout.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
    /// The id of the lease; 0 to let etcd choose.
    #[prost(int64, tag = "2")]
    pub id: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Granted TTL in seconds.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Error message; empty on success.
    #[prost(string, tag = "4")]
    pub error: String,
}

/// `etcdserverpb.LeaseRevokeRequest`; also deletes the keys attached to the lease.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

/// `etcdserverpb.LeaseKeepAliveRequest`, many on one stream.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// `etcdserverpb.LeaseKeepAliveResponse`: one for each request, in their order.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Remaining TTL in seconds; 0 if the lease does not exist.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}
