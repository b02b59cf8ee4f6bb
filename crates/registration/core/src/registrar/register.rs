//! Registration: idempotent, by owner, within limits.

use super::state::Shared;
use super::{Caller, Registrar, RegistrarError, set};
use crate::limits::MAX_BATCH;
use crate::{Expected, Instance, InstanceKey, Record, RecordState, RenewError, Value, Write, WriteError};
use std::sync::Arc;

/// Maximum number of rounds for items with conflicts.
pub(super) const ROUNDS: usize = 4;

/// Parameters of one registration.
#[derive(Clone, Debug, PartialEq)]
pub struct Register {
    pub instance: Instance,
    /// Expected state of the record. An identical registration is always a success, so that a client may
    /// retry.
    pub expected: Expected,
}

/// A successful registration: it is durable and visible to lists and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The revision of the record.
    pub revision: u64,
    /// True if the record changed. Otherwise its lease was renewed.
    pub changed: bool,
}

/// A registration without an answer yet.
struct Pending {
    index: usize,
    instance: Arc<Instance>,
    expected: Expected,
    current: Option<Arc<Record>>,
}

enum Plan {
    /// The record is identical: its lease is renewed.
    Renew(u64),
    Write(Write),
    Refuse(RegistrarError),
}

impl Registrar {
    /// Registers at most [`MAX_BATCH`] instances. Returns one answer each, in order.
    pub async fn register(
        &self,
        caller: &Caller,
        batch: Vec<Register>,
    ) -> Vec<Result<Registered, RegistrarError>> {
        if batch.len() > MAX_BATCH {
            return batch.iter().map(|_| Err(RegistrarError::TooMany)).collect();
        }
        if !self.is_ready() {
            // Limits cannot be checked before all instances were read.
            return batch.iter().map(|_| Err(RegistrarError::not_read())).collect();
        }
        let mut answers: Vec<Option<Result<Registered, RegistrarError>>> =
            batch.iter().map(|_| None).collect();
        let identity = self.shared.texts.lock().share(&caller.identity);
        let caller = &Caller { identity, ..caller.clone() };
        let mut pending = self.look_up(batch);
        let mut quota = QuotaGuard::new(&self.shared, &caller.identity);
        for round in 1.. {
            self.round(caller, &mut pending, &mut answers, &mut quota, round == ROUNDS).await;
            if pending.is_empty() {
                break;
            }
        }
        let changed = answers.iter().flatten().flatten().filter(|answer| answer.changed);
        if let Some(revision) = changed.map(|answer| answer.revision).max() {
            self.shared.reached(|progress| progress.revision >= revision).await;
        }
        drop(quota);
        let missing = || Err(RegistrarError::Unavailable("the store gave no answer".to_owned()));
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect();
        self.shared.counters.registrations(&answers);
        answers
    }

    /// True if the instance was deregistered and the store has not recorded it yet.
    pub(super) fn is_withdrawn(&self, key: &InstanceKey) -> bool {
        self.shared.state.read().withdrawn.contains_key(key)
    }

    fn look_up(&self, batch: Vec<Register>) -> Vec<Pending> {
        let batch: Vec<(Instance, Expected)> = {
            let mut texts = self.shared.texts.lock();
            let share = |Register { instance, expected }| (texts.share_all(instance), expected);
            batch.into_iter().map(share).collect()
        };
        let state = self.shared.state.read();
        let pending = batch.into_iter().enumerate().map(|(index, (instance, expected))| {
            let current = state.directory.record(&instance.key).cloned();
            Pending { index, instance: Arc::new(instance), expected, current }
        });
        pending.collect()
    }

    /// Renews identical records and writes the others. Items with a conflict stay for the next round.
    async fn round(
        &self,
        caller: &Caller,
        pending: &mut Vec<Pending>,
        answers: &mut [Option<Result<Registered, RegistrarError>>],
        quota: &mut QuotaGuard<'_>,
        is_last: bool,
    ) {
        let (mut writes, mut writing) = (Vec::new(), Vec::new());
        let (mut renewals, mut renewing) = (Vec::new(), Vec::new());
        for item in pending.drain(..) {
            let plan = match plan(caller, &item) {
                Plan::Write(write) => match quota.take(&item) {
                    Ok(()) => Plan::Write(write),
                    Err(error) => Plan::Refuse(error),
                },
                Plan::Renew(_) if self.is_withdrawn(&item.instance.key) => {
                    Plan::Refuse(RegistrarError::Unavailable("its removal is under way".to_owned()))
                }
                plan => plan,
            };
            match plan {
                Plan::Refuse(error) => set(answers, item.index, Err(error)),
                Plan::Renew(revision) if item.instance.ttl.is_none() => {
                    set(answers, item.index, Ok(Registered { revision, changed: false }));
                }
                Plan::Renew(revision) => {
                    renewals.push(item.instance.key.clone());
                    renewing.push((item, revision));
                }
                Plan::Write(write) => {
                    writes.push(write);
                    writing.push(item);
                }
            }
        }
        let renewed = if renewals.is_empty() { Vec::new() } else { self.store.renew(renewals).await };
        for ((item, revision), renewed) in renewing.into_iter().zip(renewed) {
            match renewed {
                Ok(()) => set(answers, item.index, Ok(Registered { revision, changed: false })),
                // The store has no lease: writing the record again starts one.
                Err(RenewError::NotFound) => {
                    writes.push(write(caller, &item));
                    writing.push(item);
                }
                Err(RenewError::Unavailable(why)) => {
                    set(answers, item.index, Err(RegistrarError::Unavailable(why)));
                }
            }
        }
        let written = if writes.is_empty() { Vec::new() } else { self.store.write(writes).await };
        for (mut item, written) in writing.into_iter().zip(written) {
            match written {
                Ok(written) => {
                    let answer = Registered { revision: written.revision, changed: written.changed };
                    set(answers, item.index, Ok(answer));
                }
                Err(WriteError::Conflict { current }) if !is_last => {
                    item.current = current;
                    pending.push(item);
                }
                Err(error) => set(answers, item.index, Err(error.into())),
            }
        }
    }
}

fn plan(caller: &Caller, item: &Pending) -> Plan {
    if let Some(record) = &item.current {
        if !caller.owns(record) {
            return Plan::Refuse(RegistrarError::NotOwner(Arc::clone(&record.owner)));
        }
        if value(caller, item).equals(record) {
            return Plan::Renew(record.revision);
        }
    }
    match item.expected.check(item.current.as_ref()) {
        Ok(()) => Plan::Write(write(caller, item)),
        Err(error) => Plan::Refuse(error.into()),
    }
}

fn value(caller: &Caller, item: &Pending) -> Value {
    let (instance, owner) = (Arc::clone(&item.instance), Arc::clone(&caller.identity));
    Value { instance, owner, state: RecordState::Serving }
}

/// Returns the write that replaces exactly the record that was read.
fn write(caller: &Caller, item: &Pending) -> Write {
    let expected =
        item.current.as_ref().map_or(Expected::Absent, |record| Expected::Revision(record.revision));
    Write { key: item.instance.key.clone(), expected, value: Some(value(caller, item)) }
}

/// Counts new instances and bytes against the quota until they are visible or were refused, even if the
/// caller is gone.
struct QuotaGuard<'a> {
    shared: &'a Shared,
    owner: &'a Arc<str>,
    taken: Vec<InstanceKey>,
}

impl<'a> QuotaGuard<'a> {
    fn new(shared: &'a Shared, owner: &'a Arc<str>) -> Self {
        Self { shared, owner, taken: Vec::new() }
    }

    fn take(&mut self, item: &Pending) -> Result<(), RegistrarError> {
        let state = self.shared.state.read();
        let (limits, instance) = (&self.shared.settings.limits, &item.instance);
        // The directory may be newer than the record of the item.
        let before = state.directory.record(&instance.key).or(item.current.as_ref());
        if self.shared.quota.lock().take(
            limits,
            &state.directory,
            instance,
            self.owner,
            before.map(|record| &**record),
        )? {
            self.taken.push(instance.key.clone());
        }
        Ok(())
    }
}

impl Drop for QuotaGuard<'_> {
    fn drop(&mut self) {
        let mut quota = self.shared.quota.lock();
        self.taken.iter().for_each(|key| quota.settle(key));
    }
}
