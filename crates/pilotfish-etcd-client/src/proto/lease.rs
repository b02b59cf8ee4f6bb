//! Leases: keys that end with one are deleted when nobody keeps it alive.

use super::Header;

/// `etcdserverpb.LeaseGrantRequest`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantRequest {
    /// Seconds. etcd makes more of it where it is shorter than its elections.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
    /// The lease; 0 to let etcd choose.
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// `etcdserverpb.LeaseGrantResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantResponse {
    /// Who answered, and at which revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// The lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Seconds.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Why there is none; empty where there is.
    #[prost(string, tag = "4")]
    pub error: String,
}

/// `etcdserverpb.LeaseRevokeRequest`: deletes the keys that end with it, too.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseRevokeRequest {
    /// The lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// `etcdserverpb.LeaseRevokeResponse`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseRevokeResponse {
    /// Who answered, and at which revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

/// `etcdserverpb.LeaseKeepAliveRequest`, many on one stream.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseKeepAliveRequest {
    /// The lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// `etcdserverpb.LeaseKeepAliveResponse`: one for each request, in their order.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseKeepAliveResponse {
    /// Who answered, and at which revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// The lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Seconds from now; 0 where there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}
