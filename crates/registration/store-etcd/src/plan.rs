//! Plans of writes and renewals for the believed state of an instance: without IO.
//!
//! Every plan is executed by a transaction that compares the state with the belief. If they differ, the
//! transaction returns the actual state for a new plan. So an outdated belief costs a retry and never causes
//! a wrong answer.

use pilotfish_registration::{Expected, Record, RecordState, Value, Write, WriteError, Written};
use std::sync::Arc;
use std::time::Duration;

/// Believed state of an instance in etcd.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Belief {
    pub(crate) record: Option<Arc<Record>>,
    /// The revision of its key. Also set if its value is unreadable and no earlier version is known: then a
    /// registration replaces the record, a deregistration removes it, and it cannot be renewed.
    pub(crate) revision: u64,
    /// The lease of its lease key; `None` without that key.
    pub(crate) lease: Option<i64>,
}

impl Belief {
    /// True if the record is unreadable and no earlier version is known.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.record.is_none() && self.revision != 0
    }

    /// True if the record should have a lease and has none.
    pub(crate) fn is_lapsed(&self) -> bool {
        self.lease.is_none() && self.record.as_ref().is_some_and(|record| record.lease().is_some())
    }
}

/// Changes of one instance and the answer to the caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) record: Change,
    pub(crate) lease: LeaseChange,
    pub(crate) answer: Answer,
}

/// Change of the record's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    Put,
    Delete,
}

/// Change of the lease and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseChange {
    Nothing,
    /// Grant a new lease with this TTL.
    Grant(Duration),
    /// Renew the lease with this id; its TTL is unchanged.
    Extend(i64, Duration),
    Delete,
}

/// Answer once the plan is executed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Changed, at the revision of the transaction.
    Changed,
    /// Unchanged: the record has this revision.
    Unchanged(u64),
    /// There is no record to remove.
    Nothing,
    /// The expected revision does not match.
    Conflict,
    /// The lease was renewed.
    Renewed,
    /// There is no lease to renew.
    NoLease,
}

impl Plan {
    fn only(answer: Answer) -> Self {
        Self { record: Change::Nothing, lease: LeaseChange::Nothing, answer }
    }

    /// Plans a write. `lapsed_only`: a removal because of a lapse, which must not happen if the lease was
    /// renewed.
    pub(crate) fn write(write: &Write, lapsed_only: bool, belief: &Belief) -> Self {
        let current = belief.record.as_ref();
        let conflicts = write.expected.check(current).is_err();
        match (&write.value, current) {
            (Some(value), Some(record)) if value.equals(record) => {
                let lease = lease(record.lease(), belief);
                Self { record: Change::Nothing, lease, answer: Answer::Unchanged(record.revision) }
            }
            (None, Some(_)) if lapsed_only && belief.lease.is_some() => Self::only(Answer::Conflict),
            _ if conflicts => Self::only(Answer::Conflict),
            (Some(value), _) => {
                let lease = lease(lease_of(value), belief);
                Self { record: Change::Put, lease, answer: Answer::Changed }
            }
            (None, current) if current.is_some() || belief.is_unreadable() => {
                Self { record: Change::Delete, lease: LeaseChange::Delete, answer: Answer::Changed }
            }
            (None, _) => Self::only(Answer::Nothing),
        }
    }

    /// Plans the renewal of a record's lease.
    pub(crate) fn renew(belief: &Belief) -> Self {
        match belief.record.as_ref().and_then(|record| record.lease()) {
            Some(ttl) => {
                Self { record: Change::Nothing, lease: lease(Some(ttl), belief), answer: Answer::Renewed }
            }
            None => Self::only(Answer::NoLease),
        }
    }
}

/// Returns the change of the lease for a record with this TTL.
fn lease(ttl: Option<Duration>, belief: &Belief) -> LeaseChange {
    let before = belief.record.as_ref().and_then(|record| record.lease());
    match (ttl, belief.lease) {
        (Some(ttl), Some(id)) if before == Some(ttl) => LeaseChange::Extend(id, ttl),
        (Some(ttl), _) => LeaseChange::Grant(ttl),
        (None, Some(_)) => LeaseChange::Delete,
        (None, None) => LeaseChange::Nothing,
    }
}

fn lease_of(value: &Value) -> Option<Duration> {
    match value.state {
        RecordState::Serving => value.instance.ttl,
        RecordState::Draining => None,
    }
}

/// True for a removal because of a lapse: liveness removes the record at the revision that it saw.
pub(crate) fn is_lapsed_only(write: &Write, seen: &Belief) -> bool {
    write.value.is_none() && matches!(write.expected, Expected::Revision(_)) && seen.is_lapsed()
}

impl Answer {
    /// Returns the answer to a write; `revision` is that of the transaction.
    pub(crate) fn written(&self, belief: &Belief, revision: u64) -> Result<Written, WriteError> {
        match self {
            Self::Changed => Ok(Written { revision, changed: true }),
            Self::Unchanged(revision) => Ok(Written { revision: *revision, changed: false }),
            Self::Nothing => Ok(Written { revision, changed: false }),
            Self::Conflict => Err(WriteError::Conflict { current: belief.record.clone() }),
            Self::Renewed | Self::NoLease => {
                Err(WriteError::Unavailable("a write was answered as a renewal".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registration::{Instance, testing};

    const TTL: Duration = Duration::from_secs(10);

    fn value(ttl: Option<Duration>, weight: u32, state: RecordState) -> Value {
        let instance = Instance { ttl, weight, ..testing::instance("a") };
        Value { instance: Arc::new(instance), owner: "me".into(), state }
    }

    fn serving(ttl: Option<Duration>, weight: u32) -> Value {
        value(ttl, weight, RecordState::Serving)
    }

    fn belief(value: Value, lease: Option<i64>) -> Belief {
        let Value { instance, owner, state } = value;
        let record = Record { instance, owner, state, revision: 5, created: 4 };
        Belief { record: Some(Arc::new(record)), revision: 5, lease }
    }

    fn show(plan: &Plan) -> String {
        format!("{:?} {:?} {:?}", plan.record, plan.lease, plan.answer)
    }

    #[test]
    fn writes_do_what_is_needed_and_no_more() {
        use Expected::{Absent, Any, Revision};
        let there = |lease| belief(serving(Some(TTL), 1), lease);
        let put = |ttl| Some(serving(ttl, 2));
        let same = || Some(serving(Some(TTL), 1));
        let drain = Some(value(Some(TTL), 1, RecordState::Draining));
        let none = Belief::default();
        let unreadable = Belief { record: None, revision: 5, lease: Some(9) };
        for (expected, value, belief, wanted) in [
            (Any, put(Some(TTL)), &none, "Put Grant(10s) Changed"),
            (Any, put(None), &none, "Put Nothing Changed"),
            (Revision(5), put(None), &none, "Nothing Nothing Conflict"),
            (Any, put(Some(TTL)), &there(Some(9)), "Put Extend(9, 10s) Changed"),
            (Any, put(Some(2 * TTL)), &there(Some(9)), "Put Grant(20s) Changed"),
            (Any, put(Some(TTL)), &there(None), "Put Grant(10s) Changed"),
            (Any, put(None), &there(Some(9)), "Put Delete Changed"),
            (Revision(5), put(None), &there(None), "Put Nothing Changed"),
            (Revision(4), put(None), &there(None), "Nothing Nothing Conflict"),
            (Absent, put(None), &there(None), "Nothing Nothing Conflict"),
            (Absent, same(), &there(Some(9)), "Nothing Extend(9, 10s) Unchanged(5)"),
            (Any, same(), &there(None), "Nothing Grant(10s) Unchanged(5)"),
            (Any, drain, &there(Some(9)), "Put Delete Changed"),
            (Any, None, &there(Some(9)), "Delete Delete Changed"),
            (Revision(5), None, &there(None), "Delete Delete Changed"),
            (Revision(4), None, &there(None), "Nothing Nothing Conflict"),
            (Any, None, &none, "Nothing Nothing Nothing"),
            (Absent, None, &none, "Nothing Nothing Nothing"),
            (Revision(5), None, &none, "Nothing Nothing Conflict"),
            (Absent, put(Some(TTL)), &unreadable, "Put Grant(10s) Changed"),
            (Absent, None, &unreadable, "Delete Delete Changed"),
            (Any, None, &unreadable, "Delete Delete Changed"),
            (Revision(5), None, &unreadable, "Nothing Nothing Conflict"),
        ] {
            let write = Write { key: testing::key("a"), expected, value };
            assert_eq!(show(&Plan::write(&write, false, belief)), wanted, "{write:?}");
        }
    }

    #[test]
    fn what_was_renewed_is_not_removed_for_its_lapse() {
        let seen = belief(serving(Some(TTL), 1), None);
        let write = Write { key: testing::key("a"), expected: Expected::Revision(5), value: None };
        assert!(is_lapsed_only(&write, &seen));
        assert_eq!(show(&Plan::write(&write, true, &seen)), "Delete Delete Changed");
        let renewed = belief(serving(Some(TTL), 1), Some(9));
        assert_eq!(show(&Plan::write(&write, true, &renewed)), "Nothing Nothing Conflict");
        assert!(!is_lapsed_only(&write, &renewed));
        let deregistration = Write { expected: Expected::Any, ..write };
        assert!(!is_lapsed_only(&deregistration, &seen));
        assert!(!is_lapsed_only(&testing::put(testing::instance("a")), &seen));
    }

    #[test]
    fn renewals_need_a_record_with_a_lease() {
        for (belief, wanted) in [
            (belief(serving(Some(TTL), 1), Some(9)), "Nothing Extend(9, 10s) Renewed"),
            (belief(serving(Some(TTL), 1), None), "Nothing Grant(10s) Renewed"),
            (belief(serving(None, 1), None), "Nothing Nothing NoLease"),
            (belief(value(Some(TTL), 1, RecordState::Draining), None), "Nothing Nothing NoLease"),
            (Belief::default(), "Nothing Nothing NoLease"),
        ] {
            assert_eq!(show(&Plan::renew(&belief)), wanted);
        }
    }
}
