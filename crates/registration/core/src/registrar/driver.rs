//! The task that follows the store: applies its events to memory, and writes the removals of liveness.

use super::state::{Progress, Shared, State};
use super::stats::add;
use crate::clock::RunningClock;
use crate::limits::MAX_BATCH;
use crate::liveness::Verdict;
use crate::{Expected, InstanceKey, Record, Store, StoreEvent, StoreEvents, Write, WriteError, Written};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Fuse, FusedFuture as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of clock updates and removals.
const TICK: Duration = RunningClock::CADENCE;
/// Retry interval of removals that the store could not record.
const WITHDRAWN_RETRY: Duration = Duration::from_secs(1);
/// Maximum number of services that are logged by name at a time.
const LOGGED: usize = 10;

/// The task that must run while the registrar is used.
#[must_use = "nothing is registered unless it runs"]
pub struct RegistrarDriver {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    events: StoreEvents,
    clock: RunningClock,
    removals: Fuse<BoxFuture<'static, Vec<Result<Written, WriteError>>>>,
    /// Time of the next attempt to remove withdrawn instances.
    withdrawn_at: Duration,
}

impl RegistrarDriver {
    pub(super) fn new(shared: Arc<Shared>, store: Arc<dyn Store>, events: StoreEvents) -> Self {
        Self {
            shared,
            store,
            events,
            clock: RunningClock::new(now()),
            removals: Fuse::terminated(),
            withdrawn_at: Duration::ZERO,
        }
    }

    /// Follows the store until it is closed.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                events = self.events.next() => match events {
                    Some(events) => self.apply(events),
                    None => break,
                },
                answers = &mut self.removals => self.removed(&answers),
                () = tokio::time::sleep(TICK) => {}
            }
            self.step();
        }
        tracing::info!("the registration store was closed");
    }

    /// Starts the removals that are due.
    fn step(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.write();
        let now = self.time(&state);
        if state.disconnected.is_some() || !self.removals.is_terminated() {
            return;
        }
        let verdicts = state.liveness.due(now, MAX_BATCH);
        let mut writes = self.believe(&mut state, verdicts);
        if !state.withdrawn.is_empty() && now >= self.withdrawn_at {
            self.withdrawn_at = now + WITHDRAWN_RETRY;
            writes.extend(state.withdrawn.iter().take(MAX_BATCH).map(|(key, revision)| Write {
                key: key.clone(),
                expected: Expected::Revision(*revision),
                value: None,
            }));
        }
        drop(state);
        if !writes.is_empty() {
            let store = Arc::clone(&self.store);
            self.removals = async move { store.write(writes).await }.boxed().fuse();
        }
    }

    fn apply(&mut self, events: Vec<StoreEvent>) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.write();
        for event in events {
            let now = self.time(&state);
            let verdicts = match event {
                StoreEvent::Reset { revision, records, lapsed } => {
                    self.reset(&mut state, revision, records, &lapsed, now)
                }
                StoreEvent::Changed { revision, key, record } => {
                    shared.quota.lock().settle(&key);
                    changed(&mut state, revision, key, record, now)
                }
                StoreEvent::Lapsed(key) => self.lapsed(&mut state, &key, now),
                StoreEvent::Renewed(key) => state.liveness.renewed(&key, now),
                StoreEvent::Disconnected(why) => {
                    tracing::warn!(
                        %why,
                        "the registration store is unreachable; no instances are removed until it is back"
                    );
                    state.disconnected = Some(why);
                    Vec::new()
                }
                StoreEvent::Connected => {
                    tracing::info!("the registration store is reachable");
                    state.disconnected = None;
                    self.clock.skip(self::now());
                    Vec::new()
                }
            };
            self.believe(&mut state, verdicts);
        }
        let (revision, is_ready) = (state.directory.revision(), state.is_ready);
        drop(state);
        shared.progress.send_if_modified(|progress| {
            let reached = Progress { revision, is_ready, ..*progress };
            std::mem::replace(progress, reached) != reached
        });
    }

    /// Replaces everything. Watches get the differences as changes.
    fn reset(
        &self,
        state: &mut State,
        revision: u64,
        records: Vec<Arc<Record>>,
        lapsed: &[InstanceKey],
        now: Duration,
    ) -> Vec<Verdict> {
        state.liveness.reset();
        for record in &records {
            // Nothing has lapsed yet, so there are no verdicts.
            state.liveness.changed(&record.instance.key, None, Some(record), now);
        }
        let before = state.directory.revision();
        let changes = state.directory.reset(revision, records);
        if state.is_ready && revision >= before {
            state.publish(changes);
        } else {
            // First read, or another store: its revisions have another meaning, so every watch must restart.
            if state.is_ready {
                tracing::warn!(
                    revision,
                    before,
                    "the registration store went back to an earlier revision; all watches must restart"
                );
            }
            state.begin_epoch(&self.shared.settings.limits);
        }
        let withdrawn = std::mem::take(&mut state.withdrawn);
        withdrawn.iter().for_each(|(key, revision)| state.withdraw(key, *revision));
        state.subscribers.reset();
        lapsed.iter().flat_map(|key| self.lapsed(state, key, now)).collect()
    }

    fn lapsed(&self, state: &mut State, key: &InstanceKey, now: Duration) -> Vec<Verdict> {
        let Some(record) = state.directory.record(key) else { return Vec::new() };
        add(&self.shared.counters.lapsed, 1);
        state.liveness.lapsed(record, now)
    }

    /// Applies verdicts to the directory. Returns the removals for the store.
    fn believe(&self, state: &mut State, verdicts: Vec<Verdict>) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut told = 0;
        for verdict in verdicts {
            match verdict {
                Verdict::Lapsed { key, lapsed, preserved } => {
                    let change = state.directory.set_lapsed(&key, lapsed, preserved);
                    state.publish(change);
                }
                Verdict::Remove { key, revision } => {
                    writes.push(Write { key, expected: Expected::Revision(revision), value: None });
                }
                Verdict::Preserving { service, lapsed, leased } => {
                    add(&self.shared.counters.preservations, 1);
                    told += 1;
                    if told <= LOGGED {
                        tracing::warn!(
                            %service, lapsed, leased,
                            "most leases of a service lapsed together: self-preservation keeps its instances"
                        );
                    }
                }
                Verdict::Preserved { service, is_overdue } => {
                    told += 1;
                    if told <= LOGGED {
                        let why = if is_overdue { "too much time has passed" } else { "most came back" };
                        tracing::info!(
                            %service,
                            why,
                            "self-preservation of a service ended: lapsed leases count again"
                        );
                    }
                }
            }
        }
        if told > LOGGED {
            tracing::warn!(left_out = told - LOGGED, "self-preservation began or ended for more services");
        }
        writes
    }

    fn removed(&self, answers: &[Result<Written, WriteError>]) {
        let removed = answers.iter().flatten().filter(|written| written.changed).count();
        add(&self.shared.counters.expired, removed);
        // A conflict means that the instance was registered again, and is no failure.
        let failure = answers.iter().flat_map(|answer| answer.as_ref().err());
        if let Some(error) = failure.clone().find(|error| error.is_temporary()) {
            let failed = failure.filter(|error| error.is_temporary()).count();
            tracing::warn!(%error, failed, "cannot remove expired instances; retrying later");
        }
    }

    /// Returns the running time, without suspensions of this process and unavailability of the store.
    fn time(&mut self, state: &State) -> Duration {
        match state.disconnected {
            None => self.clock.advance(now()),
            Some(_) => self.clock.running(),
        }
    }
}

impl Drop for RegistrarDriver {
    /// Ends all watches and waits.
    fn drop(&mut self) {
        self.shared.state.write().watchers.end();
        self.shared.progress.send_modify(|progress| progress.is_closed = true);
    }
}

fn changed(
    state: &mut State,
    revision: u64,
    key: InstanceKey,
    record: Option<Arc<Record>>,
    now: Duration,
) -> Vec<Verdict> {
    state.withdrawn.remove(&key);
    let before = state.directory.record(&key).cloned();
    let verdicts = state.liveness.changed(&key, before.as_deref(), record.as_deref(), now);
    let change = state.directory.set(revision, key, record);
    state.publish(change);
    verdicts
}

/// The runtime's clock, which tests can control.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
