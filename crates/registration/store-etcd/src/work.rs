//! Execution of plans: grants leases, runs transactions, renews leases, and plans again if the state differs
//! from the belief.

use crate::plan::{Answer, Belief, Change, LeaseChange, Plan};
use crate::session::Session;
use crate::shared::Shared;
use crate::txn::{Outcome, outcome, transaction};
use crate::view::{Renewal, seconds, unsigned};
use bytes::Bytes;
use futures::future::join_all;
use pilotfish_etcd_client::CallError;
use pilotfish_etcd_client::proto::{Operation, PutRequest, RequestOp, TxnRequest};
use pilotfish_registration::{InstanceKey, RenewError, Write, WriteError, Written};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Maximum number of attempts for one operation under concurrent changes.
const TRIES: u32 = 16;

/// A write or renewal of one instance.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) key: InstanceKey,
    job: Job,
    pub(crate) belief: Belief,
    /// A lease granted for it: id, TTL in seconds, and time of the grant.
    granted: Option<(i64, i64, Instant)>,
    /// Answer to a completed write whose lease is still to be renewed.
    written: Option<Result<Written, WriteError>>,
    tries: u32,
}

#[derive(Debug)]
enum Job {
    Write {
        write: Write,
        lapsed_only: bool,
        json: Bytes,
        answer: oneshot::Sender<Result<Written, WriteError>>,
    },
    Renew {
        answer: oneshot::Sender<Result<(), RenewError>>,
    },
}

/// An answer that waits until this store's watch has seen the revision.
struct Done {
    attempt: Attempt,
    answer: Result<Answered, Failure>,
}

struct Answered {
    written: Option<Result<Written, WriteError>>,
    has_lease: bool,
    revision: u64,
}

enum Failure {
    Unavailable(String),
    Full(String),
}

impl Attempt {
    pub(crate) fn write(
        write: Write,
        lapsed_only: bool,
        json: Bytes,
        answer: oneshot::Sender<Result<Written, WriteError>>,
    ) -> Self {
        Self::new(write.key.clone(), Job::Write { write, lapsed_only, json, answer })
    }

    pub(crate) fn renew(key: InstanceKey, answer: oneshot::Sender<Result<(), RenewError>>) -> Self {
        Self::new(key, Job::Renew { answer })
    }

    fn new(key: InstanceKey, job: Job) -> Self {
        Self { key, job, belief: Belief::default(), granted: None, written: None, tries: 0 }
    }

    /// Approximate number of bytes of the operation in a transaction.
    pub(crate) fn bytes(&self) -> usize {
        let json = match &self.job {
            Job::Write { json, .. } => json.len(),
            Job::Renew { .. } => 0,
        };
        json + 1_024
    }

    /// Answers that the store is unavailable.
    pub(crate) fn unavailable(self, reason: &str) {
        self.fail(Failure::Unavailable(reason.to_owned()));
    }

    fn plan(&self) -> Plan {
        match &self.job {
            Job::Write { write, lapsed_only, .. } if self.written.is_none() => {
                Plan::write(write, *lapsed_only, &self.belief)
            }
            _ => Plan::renew(&self.belief),
        }
    }

    fn json(&self) -> Bytes {
        match &self.job {
            Job::Write { json, .. } => json.clone(),
            Job::Renew { .. } => Bytes::new(),
        }
    }

    /// True if the lease for the plan was granted in an earlier attempt.
    fn has_granted(&self, plan: &Plan) -> bool {
        match plan.lease {
            LeaseChange::Grant(ttl) => self.granted.is_some_and(|(_, length, _)| length == seconds(ttl)),
            _ => true,
        }
    }

    fn fail(self, failure: Failure) {
        // Sending fails if the caller is gone.
        match (self.job, failure) {
            (Job::Write { answer, .. }, Failure::Unavailable(why)) => {
                drop(answer.send(Err(WriteError::Unavailable(why))));
            }
            (Job::Write { answer, .. }, Failure::Full(why)) => drop(answer.send(Err(WriteError::Full(why)))),
            (Job::Renew { answer }, Failure::Unavailable(why) | Failure::Full(why)) => {
                drop(answer.send(Err(RenewError::Unavailable(why))));
            }
        }
    }

    fn succeed(self, answered: Answered) {
        match self.job {
            Job::Write { answer, .. } => {
                let none = || Err(WriteError::Unavailable("a write was answered as a renewal".to_owned()));
                drop(answer.send(answered.written.unwrap_or_else(none)));
            }
            Job::Renew { answer } => {
                drop(answer.send(if answered.has_lease { Ok(()) } else { Err(RenewError::NotFound) }));
            }
        }
    }
}

/// Executes these attempts, each key once, and answers them.
pub(crate) async fn work(shared: &Arc<Shared>, session: &Session, attempts: Vec<Attempt>) {
    let (mut open, mut done) = (attempts, Vec::new());
    while !open.is_empty() {
        open = Box::pin(round(shared, session, open, &mut done)).await;
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move { answer(&shared, done).await });
}

/// Tries each attempt once. Returns the attempts to repeat.
async fn round(
    shared: &Shared,
    session: &Session,
    attempts: Vec<Attempt>,
    done: &mut Vec<Done>,
) -> Vec<Attempt> {
    let planned = grant(shared, session, attempts, done).await;
    if planned.is_empty() {
        return Vec::new();
    }
    let operations = planned.iter().map(|(attempt, plan)| {
        let granted = attempt.granted.map_or(0, |(id, ..)| id);
        transaction(&shared.keys, &attempt.key, &attempt.belief, plan, &attempt.json(), granted)
    });
    let mut success: Vec<RequestOp> = operations.collect();
    let is_put = |plan: &Plan| plan.record == Change::Put || matches!(plan.lease, LeaseChange::Grant(_));
    let has_put = planned.iter().any(|(_, plan)| is_put(plan));
    if has_put {
        let put = PutRequest { key: shared.keys.quota(), ..Default::default() };
        success.push(Operation::Put(put).into());
    }
    let request = TxnRequest { success, ..Default::default() };
    let response = match session.client.transaction(request).await {
        Ok(response) => response,
        Err(error) => return failed(shared, session, planned, &error, done),
    };
    if has_put {
        shared.set_refused(None);
    }
    let revision = response.header.map(|header| unsigned(header.revision)).unwrap_or_default();
    let (mut again, mut extending) = (Vec::new(), Vec::new());
    let mut responses = response.responses.into_iter();
    for (mut attempt, plan) in planned {
        let known = || shared.view.lock().belief(&attempt.key).record;
        match outcome(&attempt.key, responses.next(), known) {
            Ok(Outcome::Done) => {
                if plan.record != Change::Nothing && attempt.belief.is_unreadable() {
                    let instance = &attempt.key;
                    tracing::warn!(
                        %instance,
                        "an unreadable record in etcd was replaced or removed on request of a client"
                    );
                }
                clean_up(shared, &mut attempt, &plan);
                match plan.lease {
                    LeaseChange::Extend(id, _) => extending.push((attempt, plan.answer, id, revision)),
                    _ => done.push(settled(attempt, &plan.answer, revision)),
                }
            }
            Ok(Outcome::Other(belief)) => {
                attempt.belief = belief;
                try_again(attempt, &mut again, done);
            }
            Err(why) => done.push(Done { attempt, answer: Err(Failure::Unavailable(why)) }),
        }
    }
    extend(shared, session, extending, &mut again, done).await;
    again
}

/// Plans each attempt, and grants the leases that they need.
async fn grant(
    shared: &Shared,
    session: &Session,
    attempts: Vec<Attempt>,
    done: &mut Vec<Done>,
) -> Vec<(Attempt, Plan)> {
    let granting = attempts.into_iter().map(|mut attempt| async move {
        let plan = attempt.plan();
        let LeaseChange::Grant(ttl) = plan.lease else { return Ok((attempt, plan)) };
        if attempt.has_granted(&plan) {
            return Ok((attempt, plan));
        }
        let (asked, length) = (Instant::now(), seconds(ttl));
        match session.client.grant(length).await {
            Ok(id) => {
                attempt.granted = Some((id, length, asked));
                Ok((attempt, plan))
            }
            Err(error) => Err((attempt, error)),
        }
    });
    let mut planned = Vec::new();
    for result in join_all(granting).await {
        match result {
            Ok(one) => planned.push(one),
            Err((attempt, error)) => {
                let answer = Err(failure(shared, session, &error));
                done.push(Done { attempt, answer });
            }
        }
    }
    planned
}

fn failure(shared: &Shared, session: &Session, error: &CallError) -> Failure {
    let why = session.failed(error);
    shared.set_refused(Some(&why));
    if matches!(error, CallError::NoSpace(_)) { Failure::Full(why) } else { Failure::Unavailable(why) }
}

/// Handles a transaction that failed as a whole: nothing was applied, or the result is unknown.
fn failed(
    shared: &Shared,
    session: &Session,
    planned: Vec<(Attempt, Plan)>,
    error: &CallError,
    done: &mut Vec<Done>,
) -> Vec<Attempt> {
    let mut again = Vec::new();
    for (mut attempt, plan) in planned {
        match error {
            // A lease ended between its grant and the transaction.
            CallError::LeaseNotFound => {
                attempt.granted = None;
                try_again(attempt, &mut again, done);
            }
            // An exceeded quota refuses writes, and removals only if they are in a transaction with writes.
            CallError::NoSpace(_) if matches!(plan.answer, Answer::Changed) && attempt.json().is_empty() => {
                try_again(attempt, &mut again, done);
            }
            error => done.push(Done { attempt, answer: Err(failure(shared, session, error)) }),
        }
    }
    again
}

fn try_again(mut attempt: Attempt, again: &mut Vec<Attempt>, done: &mut Vec<Done>) {
    attempt.tries += 1;
    if attempt.tries < TRIES {
        again.push(attempt);
    } else {
        let why = "others change the instance faster than it can be written".to_owned();
        done.push(Done { attempt, answer: Err(Failure::Unavailable(why)) });
    }
}

/// Revokes leases without keys, instead of waiting for their expiry.
fn clean_up(shared: &Shared, attempt: &mut Attempt, plan: &Plan) {
    let is_used = matches!(plan.lease, LeaseChange::Grant(_));
    if !is_used && let Some((unused, ..)) = attempt.granted.take() {
        shared.revoke(unused);
    }
    if matches!(plan.lease, LeaseChange::Grant(_) | LeaseChange::Delete)
        && let Some(before) = attempt.belief.lease
    {
        shared.revoke(before);
    }
}

/// Renews the leases of executed plans. A lease that ended meanwhile is granted in the next round.
async fn extend(
    shared: &Shared,
    session: &Session,
    extending: Vec<(Attempt, Answer, i64, u64)>,
    again: &mut Vec<Attempt>,
    done: &mut Vec<Done>,
) {
    let extended = extending.into_iter().map(|(attempt, answer, id, revision)| async move {
        let asked = Instant::now();
        if shared.view.lock().renewal(&attempt.key, asked) == Renewal::Done {
            return (attempt, answer, revision, Ok(true));
        }
        let is_there = session.keep_alives.extend(id).await;
        if is_there == Ok(true) {
            shared.view.lock().extended(&attempt.key, id, asked);
        }
        (attempt, answer, revision, is_there)
    });
    for (mut attempt, answer, revision, is_there) in join_all(extended).await {
        match is_there {
            Ok(true) => done.push(settled(attempt, &answer, revision)),
            Ok(false) => {
                attempt.written = settled_write(&attempt, &answer, revision);
                // An impossible belief, so that the next transaction reads the actual state.
                attempt.belief = Belief { record: None, revision: u64::MAX, lease: None };
                try_again(attempt, again, done);
            }
            Err(why) => done.push(Done { attempt, answer: Err(Failure::Unavailable(why)) }),
        }
    }
}

fn settled(attempt: Attempt, answer: &Answer, revision: u64) -> Done {
    let written = settled_write(&attempt, answer, revision);
    let has_lease = *answer == Answer::Renewed;
    // Only revisions of the store's own keys can be waited for: other keys of etcd have revisions, too.
    let was_changed = attempt.granted.is_some() || *answer == Answer::Changed;
    let known = match (&written, answer) {
        (_, Answer::Nothing | Answer::Conflict | Answer::NoLease) => 0,
        (Some(Ok(written)), _) => written.revision,
        _ => 0,
    };
    let revision = if was_changed { revision.max(known) } else { known };
    Done { attempt, answer: Ok(Answered { written, has_lease, revision }) }
}

fn settled_write(attempt: &Attempt, answer: &Answer, revision: u64) -> Option<Result<Written, WriteError>> {
    match attempt.job {
        Job::Write { .. } => {
            Some(attempt.written.clone().unwrap_or_else(|| answer.written(&attempt.belief, revision)))
        }
        Job::Renew { .. } => None,
    }
}

/// Answers once this store's watch has seen the revisions, so that a later read includes them.
async fn answer(shared: &Shared, done: Vec<Done>) {
    let revisions = done.iter().filter_map(|done| Some(done.answer.as_ref().ok()?.revision));
    let has_seen = shared.has_seen(revisions.max().unwrap_or_default()).await;
    let seen = *shared.seen.borrow();
    for Done { attempt, answer } in done {
        if let Some((id, _, asked)) = attempt.granted {
            shared.view.lock().extended(&attempt.key, id, asked);
        }
        match answer {
            Ok(answered) if has_seen || answered.revision <= seen => attempt.succeed(answered),
            Ok(_) => attempt.unavailable("it was written, and etcd does not tell of it"),
            Err(failure) => attempt.fail(failure),
        }
    }
}
