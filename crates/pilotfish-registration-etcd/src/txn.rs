//! Plans as transactions, and what their answers say.

use crate::keys::Keys;
use crate::plan::{Belief, Change, LeaseChange, Plan};
use crate::view::{read, unsigned};
use bytes::Bytes;
use pilotfish_etcd_client::proto::{
    Compare, DeleteRangeRequest, KeyValue, Operation, OperationResponse, PutRequest, RangeRequest, RequestOp,
    ResponseOp, TxnRequest, TxnResponse,
};
use pilotfish_registration::InstanceKey;

/// A plan as a transaction: when everything is as believed it is done, else what is there is read.
pub(crate) fn transaction(
    keys: &Keys,
    key: &InstanceKey,
    belief: &Belief,
    plan: &Plan,
    json: &Bytes,
    granted: i64,
) -> RequestOp {
    let (record, lease) = (keys.record(key), keys.lease(key));
    let compare = vec![
        Compare::has_revision(record.clone(), i64::try_from(belief.revision).unwrap_or(i64::MAX)),
        Compare::has_lease(lease.clone(), belief.lease.unwrap_or_default()),
    ];
    let get = |key: &Vec<u8>| Operation::Range(RangeRequest { key: key.clone(), ..Default::default() });
    let failure = vec![get(&record).into(), get(&lease).into()];
    let mut success: Vec<RequestOp> = Vec::new();
    match plan.record {
        Change::Nothing => {}
        Change::Put => {
            success.push(Operation::Put(PutRequest { key: record, value: json.clone(), lease: 0 }).into());
        }
        Change::Delete => success.push(delete(record)),
    }
    match plan.lease {
        LeaseChange::Nothing | LeaseChange::Extend(..) => {}
        LeaseChange::Grant(_) => {
            let put = PutRequest { key: lease, value: Bytes::new(), lease: granted };
            success.push(Operation::Put(put).into());
        }
        LeaseChange::Delete => success.push(delete(lease)),
    }
    Operation::Txn(TxnRequest { compare, success, failure }).into()
}

fn delete(key: Vec<u8>) -> RequestOp {
    Operation::Delete(DeleteRangeRequest { key, range_end: Vec::new() }).into()
}

/// What became of one plan.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was done.
    Done,
    /// This is there instead.
    Other(Belief),
}

/// What the answer to [`transaction`] says.
pub(crate) fn outcome(key: &InstanceKey, response: Option<ResponseOp>) -> Result<Outcome, String> {
    let unexpected = || "etcd answered something that was not asked".to_owned();
    let Some(OperationResponse::Txn(TxnResponse { succeeded, responses, .. })) =
        response.and_then(|response| response.response)
    else {
        return Err(unexpected());
    };
    if succeeded {
        return Ok(Outcome::Done);
    }
    let mut pairs = responses.into_iter().map(|response| match response.response {
        Some(OperationResponse::Range(range)) => Ok(range.kvs.into_iter().next()),
        _ => Err(unexpected()),
    });
    let record = pairs.next().ok_or_else(unexpected)??;
    let lease = pairs.next().ok_or_else(unexpected)??;
    Ok(Outcome::Other(belief(key, record.as_ref(), lease.as_ref())))
}

fn belief(key: &InstanceKey, record: Option<&KeyValue>, lease: Option<&KeyValue>) -> Belief {
    Belief {
        // One that cannot be read counts as none, and is told by the watch.
        record: record.and_then(|pair| read(key, pair).ok()),
        revision: record.map(|pair| unsigned(pair.mod_revision)).unwrap_or_default(),
        lease: lease.map(|pair| pair.lease),
    }
}
