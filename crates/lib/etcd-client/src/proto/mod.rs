//! The messages and fields of etcd's API (version 3) that Pilotfish needs. Numbers are those of `rpc.proto`,
//! `kv.proto` and `auth.proto` in etcd's `api` folder. Types have the names of the messages.

mod auth;
mod kv;
mod lease;
mod txn;
mod watch;

pub use auth::{AuthenticateRequest, AuthenticateResponse};
pub use kv::{
    DeleteRangeRequest, DeleteRangeResponse, Header, KeyValue, PutRequest, PutResponse, RangeRequest,
    RangeResponse,
};
pub use lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseRevokeResponse,
};
pub use txn::{
    Compare, CompareResult, CompareTarget, CompareValue, Operation, OperationResponse, RequestOp, ResponseOp,
    TxnRequest, TxnResponse,
};
pub use watch::{Event, EventType, WatchAsk, WatchCreate, WatchProgress, WatchRequest, WatchResponse};
