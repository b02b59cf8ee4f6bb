//! Conversion of plans to transactions, and of their responses to outcomes.

use crate::keys::Keys;
use crate::plan::{Belief, Change, LeaseChange, Plan};
use crate::view::{read, unsigned};
use bytes::Bytes;
use pilotfish_etcd_client::proto::{
    Compare, DeleteRangeRequest, KeyValue, Operation, OperationResponse, PutRequest, RangeRequest, RequestOp,
    ResponseOp, TxnRequest, TxnResponse,
};
use pilotfish_registration::{InstanceKey, Record};
use std::sync::Arc;

/// Returns the transaction of a plan: if the state is as believed, it executes the plan; otherwise it reads
/// the state.
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

/// Outcome of one plan.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The plan was executed.
    Done,
    /// The actual state differs from the belief.
    Other(Belief),
}

/// Evaluates the response to [`transaction`]. `known` returns the last readable version of the record.
pub(crate) fn outcome(
    key: &InstanceKey,
    response: Option<ResponseOp>,
    known: impl FnOnce() -> Option<Arc<Record>>,
) -> Result<Outcome, String> {
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
    Ok(Outcome::Other(belief(key, record.as_ref(), lease.as_ref(), known)))
}

fn belief(
    key: &InstanceKey,
    record: Option<&KeyValue>,
    lease: Option<&KeyValue>,
    known: impl FnOnce() -> Option<Arc<Record>>,
) -> Belief {
    // The last good version of an unreadable record stays in force, unless it was removed meanwhile. The
    // watch logs it.
    let last_good = |pair: &KeyValue| known().filter(|known| known.created == unsigned(pair.create_revision));
    Belief {
        record: record.and_then(|pair| read(key, pair).ok().or_else(|| last_good(pair))),
        revision: record.map(|pair| unsigned(pair.mod_revision)).unwrap_or_default(),
        lease: lease.map(|pair| pair.lease),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::encode;
    use pilotfish_etcd_client::proto::RangeResponse;
    use pilotfish_registration::{RecordState, Value, testing};

    fn pair(value: &[u8], created: i64, revision: i64) -> KeyValue {
        KeyValue {
            value: value.to_vec().into(),
            create_revision: created,
            mod_revision: revision,
            ..Default::default()
        }
    }

    fn good() -> Vec<u8> {
        let instance = Arc::new(testing::instance("a"));
        encode(&Value { instance, owner: "me".into(), state: RecordState::Serving }).unwrap()
    }

    fn found(record: Option<KeyValue>, known: Option<Arc<Record>>) -> Belief {
        let range = |pair: Option<KeyValue>| ResponseOp {
            response: Some(OperationResponse::Range(RangeResponse {
                kvs: pair.into_iter().collect(),
                ..Default::default()
            })),
        };
        let txn = TxnResponse { responses: vec![range(record), range(None)], ..Default::default() };
        let response = ResponseOp { response: Some(OperationResponse::Txn(txn)) };
        match outcome(&testing::key("a"), Some(response), || known).unwrap() {
            Outcome::Other(belief) => belief,
            Outcome::Done => panic!("it was not done"),
        }
    }

    #[test]
    fn of_a_record_that_cannot_be_read_the_last_good_version_stays() {
        let known = read(&testing::key("a"), &pair(&good(), 4, 5)).unwrap();
        let last = || Some(Arc::clone(&known));
        for (record, before, wanted) in [
            (Some(pair(&good(), 4, 7)), last(), (Some(7), 7)),
            (Some(pair(b"{", 4, 7)), last(), (Some(5), 7)),
            // It was removed, and something else is there that was never good.
            (Some(pair(b"{", 6, 7)), last(), (None, 7)),
            (Some(pair(b"{", 4, 7)), None, (None, 7)),
            (None, last(), (None, 0)),
        ] {
            let belief = found(record.clone(), before);
            let revision = belief.record.as_ref().map(|record| record.revision);
            assert_eq!((revision, belief.revision), wanted, "{record:?}");
            assert_eq!(belief.is_unreadable(), wanted == (None, 7));
        }
    }
}
