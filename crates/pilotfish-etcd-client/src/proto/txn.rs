//! Transactions: what is done when all comparisons hold, and what when one does not.

use super::{
    DeleteRangeRequest, DeleteRangeResponse, Header, PutRequest, PutResponse, RangeRequest, RangeResponse,
};

/// `etcdserverpb.TxnRequest`. Transactions may hold transactions, each with comparisons of its own.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnRequest {
    /// What has to hold.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// What is done when all of it holds.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// What is done else.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// `etcdserverpb.TxnResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnResponse {
    /// Who answered, and at which revision: that of the changes, where there are any. None within a transaction.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// Whether all comparisons held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// The answers to what was done, in its order.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// `etcdserverpb.Compare`. A key that is not there compares as one whose numbers are all 0.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Compare {
    /// How.
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    /// Which part of the key.
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    /// The key.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// With what.
    #[prost(oneof = "CompareValue", tags = "6, 8")]
    pub value: Option<CompareValue>,
}

/// What a [`Compare`] compares with.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum CompareValue {
    /// A revision; 0 for "not there".
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    /// A lease; 0 for none.
    #[prost(int64, tag = "8")]
    Lease(i64),
}

impl Compare {
    /// Whether the key's last change has this revision; 0 for "is not there".
    #[must_use]
    pub fn has_revision(key: Vec<u8>, revision: i64) -> Self {
        let value = Some(CompareValue::ModRevision(revision));
        Self { result: CompareResult::Equal.into(), target: CompareTarget::Mod.into(), key, value }
    }

    /// Whether the key ends with this lease; 0 for "with none, or is not there".
    #[must_use]
    pub fn has_lease(key: Vec<u8>, lease: i64) -> Self {
        let value = Some(CompareValue::Lease(lease));
        Self { result: CompareResult::Equal.into(), target: CompareTarget::Lease.into(), key, value }
    }
}

/// `etcdserverpb.Compare.CompareResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum CompareResult {
    /// Both are equal.
    Equal = 0,
    /// The key's is greater.
    Greater = 1,
    /// The key's is less.
    Less = 2,
    /// They differ.
    NotEqual = 3,
}

/// `etcdserverpb.Compare.CompareTarget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    /// How often the key was written since it came into being.
    Version = 0,
    /// The revision at which it came into being.
    Create = 1,
    /// The revision of its last change.
    Mod = 2,
    /// Its value.
    Value = 3,
    /// Its lease.
    Lease = 4,
}

/// `etcdserverpb.RequestOp`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RequestOp {
    /// What is done.
    #[prost(oneof = "Operation", tags = "1, 2, 3, 4")]
    pub request: Option<Operation>,
}

/// What a [`RequestOp`] does.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Operation {
    /// Reads.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// Writes.
    #[prost(message, tag = "2")]
    Put(PutRequest),
    /// Deletes.
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
    /// Does a transaction.
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

impl From<Operation> for RequestOp {
    fn from(operation: Operation) -> Self {
        Self { request: Some(operation) }
    }
}

/// `etcdserverpb.ResponseOp`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ResponseOp {
    /// The answer.
    #[prost(oneof = "OperationResponse", tags = "1, 2, 3, 4")]
    pub response: Option<OperationResponse>,
}

/// What a [`ResponseOp`] answers.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum OperationResponse {
    /// To a read.
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    /// To a write.
    #[prost(message, tag = "2")]
    Put(PutResponse),
    /// To a deletion.
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
    /// To a transaction.
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}
