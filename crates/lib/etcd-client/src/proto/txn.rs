//! Transaction messages.

use super::{
    DeleteRangeRequest, DeleteRangeResponse, Header, PutRequest, PutResponse, RangeRequest, RangeResponse,
};

/// `etcdserverpb.TxnRequest`. Transactions may hold transactions, each with comparisons of its own.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnRequest {
    /// Comparisons that must all hold for `success`.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// Operations if all comparisons hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// Operations if a comparison fails.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnResponse {
    /// The header, with the revision of the transaction's changes; `None` within a transaction.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// True if all comparisons held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// Responses to the operations, in order.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// `etcdserverpb.Compare`. A missing key compares as if all its numbers were 0.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// The value to compare with.
    #[prost(oneof = "CompareValue", tags = "6, 8")]
    pub value: Option<CompareValue>,
}

/// The value of a [`Compare`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum CompareValue {
    /// A revision; 0 for a missing key.
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    /// A lease; 0 for none.
    #[prost(int64, tag = "8")]
    Lease(i64),
}

impl Compare {
    /// Compares the revision of the key's last change; 0 for a missing key.
    #[must_use]
    pub fn has_revision(key: Vec<u8>, revision: i64) -> Self {
        let value = Some(CompareValue::ModRevision(revision));
        Self { result: CompareResult::Equal.into(), target: CompareTarget::Mod.into(), key, value }
    }

    /// Compares the lease of the key; 0 for no lease or a missing key.
    #[must_use]
    pub fn has_lease(key: Vec<u8>, lease: i64) -> Self {
        let value = Some(CompareValue::Lease(lease));
        Self { result: CompareResult::Equal.into(), target: CompareTarget::Lease.into(), key, value }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum CompareResult {
    Equal = 0,
    /// The key's number is greater than the value.
    Greater = 1,
    /// The key's number is less than the value.
    Less = 2,
    NotEqual = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    /// Number of writes since the key's creation.
    Version = 0,
    /// The revision of the key's creation.
    Create = 1,
    /// The revision of the last change.
    Mod = 2,
    Value = 3,
    Lease = 4,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3, 4")]
    pub request: Option<Operation>,
}

/// The operation of a [`RequestOp`].
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

impl From<Operation> for RequestOp {
    fn from(operation: Operation) -> Self {
        Self { request: Some(operation) }
    }
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ResponseOp {
    #[prost(oneof = "OperationResponse", tags = "1, 2, 3, 4")]
    pub response: Option<OperationResponse>,
}

/// The response of a [`ResponseOp`].
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum OperationResponse {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}
