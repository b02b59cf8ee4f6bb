//! Deregistration: at once, or after a drain time.

use super::register::ROUNDS;
use super::{Caller, Registrar, RegistrarError, set};
use crate::limits::{MAX_BATCH, MAX_DRAIN};
use crate::{Expected, Instance, InstanceKey, Record, RecordState, Value, Write, WriteError};
use std::sync::Arc;
use std::time::Duration;

/// Parameters of one deregistration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deregister {
    pub key: InstanceKey,
    /// Expected state of the record. An instance that is removed already is always a success.
    pub expected: Expected,
    /// Drain time; `None` for the registered one, zero for none.
    pub drain: Option<Duration>,
}

/// Result of a deregistration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deregistered {
    Removed {
        /// Revision of the removal.
        revision: u64,
    },
    /// It drains, and is removed after this time from the start of the drain.
    Draining {
        /// Revision of the record.
        revision: u64,
        /// Drain time of the instance.
        drain: Duration,
    },
    /// It was not registered.
    Absent,
}

struct Pending {
    index: usize,
    request: Deregister,
    /// True if it gets no more requests while the store cannot record its removal.
    withdraws: bool,
    current: Option<Arc<Record>>,
}

enum Plan {
    Answer(Result<Deregistered, RegistrarError>),
    Write(Write, Outcome),
}

/// Meaning of a successful write.
enum Outcome {
    Absent,
    /// The record of this revision was removed.
    Removed(u64),
    Draining(Duration),
}

impl Registrar {
    /// Deregisters at most [`MAX_BATCH`] instances. Returns one answer each, in order.
    pub async fn deregister(
        &self,
        caller: &Caller,
        batch: Vec<Deregister>,
    ) -> Vec<Result<Deregistered, RegistrarError>> {
        self.deregister_all(caller, batch, true).await
    }

    /// Deregisters as [`Self::deregister`], but an instance whose removal the store cannot record stays as it
    /// is.
    pub async fn deregister_recorded(
        &self,
        caller: &Caller,
        batch: Vec<Deregister>,
    ) -> Vec<Result<Deregistered, RegistrarError>> {
        self.deregister_all(caller, batch, false).await
    }

    async fn deregister_all(
        &self,
        caller: &Caller,
        batch: Vec<Deregister>,
        withdraws: bool,
    ) -> Vec<Result<Deregistered, RegistrarError>> {
        if batch.len() > MAX_BATCH {
            return batch.iter().map(|_| Err(RegistrarError::TooMany)).collect();
        }
        let mut answers: Vec<Option<Result<Deregistered, RegistrarError>>> =
            batch.iter().map(|_| None).collect();
        let mut pending: Vec<Pending> = {
            let state = self.shared.state.read();
            let current = |request: &Deregister| state.directory.record(&request.key).cloned();
            let pending = |(index, request): (usize, Deregister)| {
                let current = current(&request);
                Pending { index, request, withdraws, current }
            };
            batch.into_iter().enumerate().map(pending).collect()
        };
        let mut reached = 0;
        for round in 1.. {
            reached =
                reached.max(self.removal_round(caller, &mut pending, &mut answers, round == ROUNDS).await);
            if pending.is_empty() {
                break;
            }
        }
        self.shared.reached(|progress| progress.revision >= reached).await;
        let missing = || Err(RegistrarError::Unavailable("the store gave no answer".to_owned()));
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect();
        self.shared.counters.deregistrations(&answers);
        answers
    }

    /// Processes pending items; those with a conflict stay for the next round. Returns the highest revision
    /// of a change.
    async fn removal_round(
        &self,
        caller: &Caller,
        pending: &mut Vec<Pending>,
        answers: &mut [Option<Result<Deregistered, RegistrarError>>],
        is_last: bool,
    ) -> u64 {
        let (mut writes, mut writing) = (Vec::new(), Vec::new());
        for item in pending.drain(..) {
            match plan(caller, &item) {
                Plan::Answer(answer) => set(answers, item.index, answer),
                Plan::Write(write, outcome) => {
                    writes.push(write);
                    writing.push((item, outcome));
                }
            }
        }
        let written = if writes.is_empty() { Vec::new() } else { self.store.write(writes).await };
        let mut reached = 0;
        for ((mut item, outcome), written) in writing.into_iter().zip(written) {
            let answer = match written {
                Ok(written) => {
                    let revision = written.revision;
                    reached = if written.changed { reached.max(revision) } else { reached };
                    Ok(match outcome {
                        Outcome::Absent => Deregistered::Absent,
                        Outcome::Removed(_) => Deregistered::Removed { revision },
                        Outcome::Draining(drain) => Deregistered::Draining { revision, drain },
                    })
                }
                Err(WriteError::Conflict { current }) if !is_last => {
                    item.current = current;
                    pending.push(item);
                    continue;
                }
                // A removal needs less space in the store than a drain, so it may still succeed.
                Err(_) if !is_last && matches!(outcome, Outcome::Draining(_)) => {
                    item.request.drain = Some(Duration::ZERO);
                    pending.push(item);
                    continue;
                }
                Err(error) => Err(match outcome {
                    Outcome::Removed(before) if item.withdraws && error.is_temporary() => {
                        self.shared.state.write().withdraw(&item.request.key, before);
                        RegistrarError::Withdrawn(error.to_string())
                    }
                    _ => error.into(),
                }),
            };
            set(answers, item.index, answer);
        }
        reached
    }
}

fn plan(caller: &Caller, Pending { request, current, .. }: &Pending) -> Plan {
    let key = request.key.clone();
    let Some(record) = current else {
        // The directory may lag behind a recent registration: the store then answers with a conflict.
        return Plan::Write(Write { key, expected: Expected::Absent, value: None }, Outcome::Absent);
    };
    if !caller.owns(record) {
        return Plan::Answer(Err(RegistrarError::NotOwner(Arc::clone(&record.owner))));
    }
    let is_draining = record.state == RecordState::Draining;
    if is_draining && request.drain.is_none_or(|drain| !drain.is_zero()) {
        let (revision, drain) = (record.revision, record.instance.drain);
        return Plan::Answer(Ok(Deregistered::Draining { revision, drain }));
    }
    if let Err(error) = request.expected.check(Some(record)) {
        return Plan::Answer(Err(error.into()));
    }
    let expected = Expected::Revision(record.revision);
    let drain = request.drain.unwrap_or(record.instance.drain).min(MAX_DRAIN);
    if drain.is_zero() {
        let outcome = Outcome::Removed(record.revision);
        return Plan::Write(Write { key, expected, value: None }, outcome);
    }
    let instance = match drain == record.instance.drain {
        true => Arc::clone(&record.instance),
        false => Arc::new(Instance { drain, ..Instance::clone(&record.instance) }),
    };
    let value = Value { instance, owner: Arc::clone(&record.owner), state: RecordState::Draining };
    Plan::Write(Write { key, expected, value: Some(value) }, Outcome::Draining(drain))
}
