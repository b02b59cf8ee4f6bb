//! The writer thread: one transaction for all waiting writes, and leases.

use crate::file::{Contents, FileError, RecordFile, Transaction};
use crate::folder::{Folder, reopen};
use crate::removals::{Removal, RemovalLog};
use crate::revision::RevisionFile;
use parking_lot::Mutex;
use pilotfish_registration::{
    InstanceKey, LeaseTable, Record, StoreEvent, StoreEventSender, Value, Write, WriteError, Written,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Approximate maximum number of writes of one transaction.
const COMMIT: usize = 8_192;
/// Maximum number of leases that are checked under one lock.
const LEASES: usize = 4_096;
/// Sync interval of the acknowledged revision, for power failures; after a crash of the process it is
/// complete.
const SYNC: Duration = Duration::from_secs(1);
/// Delay before a failed file is opened again; doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Writes of one caller.
pub(crate) struct Job {
    pub(crate) writes: Vec<Write>,
    pub(crate) answer: oneshot::Sender<Answers>,
    /// Room in the queue, held until the job is done, even if its caller is gone.
    pub(crate) room: OwnedSemaphorePermit,
}

type Answers = Vec<Result<Written, WriteError>>;

/// State of the writer thread, which owns the file.
pub(crate) struct Writer {
    directory: PathBuf,
    /// `None` after an error, until the file is opened again.
    file: Option<RecordFile>,
    acknowledged: RevisionFile,
    removals: RemovalLog,
    trouble: Trouble,
    revision: u64,
    shared: Arc<Shared>,
    events: StoreEventSender,
    first: Option<StoreEvent>,
    /// Time of the last sync of the revision.
    synced: Instant,
}

/// Effect of a transaction on leases and events.
enum Effect {
    Changed {
        revision: u64,
        key: InstanceKey,
        record: Option<Arc<Record>>,
    },
    /// Nothing changed, and the lease is renewed.
    Touched(InstanceKey, Duration),
}

/// Results of a durable transaction.
struct Done {
    revision: u64,
    answers: Vec<Answers>,
    effects: Vec<Effect>,
}

impl Writer {
    pub(crate) fn new(
        directory: PathBuf,
        folder: Folder,
        shared: Arc<Shared>,
        events: StoreEventSender,
    ) -> Self {
        let Folder { file, contents, revision: acknowledged, removals } = folder;
        let revision = contents.revision;
        let first = Some(reset(contents, &shared));
        let trouble = Trouble { failed: Instant::now(), wait: Duration::ZERO };
        let synced = Instant::now();
        let file = Some(file);
        Self { directory, file, acknowledged, removals, trouble, revision, synced, shared, events, first }
    }

    /// Writes until all senders are dropped.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        let first = self.first.take().into_iter().collect();
        self.tell(first);
        loop {
            match jobs.recv_timeout(LeaseTable::TICK) {
                Ok(job) => self.write(gather(job, jobs)),
                Err(mpsc::RecvTimeoutError::Timeout) => self.revive(),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.sync_revision();
                    return;
                }
            }
            if self.synced.elapsed() >= SYNC {
                self.sync_revision();
            }
            self.lapse();
        }
    }

    /// Commits writes durably, publishes their events, and answers.
    fn write(&mut self, jobs: Vec<Job>) {
        self.revive();
        let split = |Job { writes, answer, room }| (writes, (answer, room));
        let (writes, callers): (Vec<_>, Vec<_>) = jobs.into_iter().map(split).unzip();
        let answers = self.commit(&writes);
        for ((caller, room), answers) in callers.into_iter().zip(answers) {
            // Sending fails if the caller is gone.
            let _ = caller.send(answers);
            drop(room);
        }
    }

    /// Writes everything, or only removals while the file cannot be written.
    fn commit(&mut self, writes: &[Vec<Write>]) -> Vec<Answers> {
        let Some(file) = self.file.as_ref().filter(|_| self.trouble.is_over()) else {
            let trouble = self.shared.trouble.lock().clone();
            let none = || WriteError::Unavailable("the file is not open".to_owned());
            return self.remove_only(writes, &trouble.unwrap_or_else(none));
        };
        let (before, removals) = (self.revision, &self.removals);
        let done = file.transact(|transaction| {
            let mut done = Done::new(before, writes.len());
            let mut has_changed = false;
            for (key, removal) in removals.pending() {
                if transaction.get(key)?.is_some_and(|record| record.revision == removal.before) {
                    transaction.remove(key)?;
                }
                has_changed = true;
            }
            for writes in writes {
                let answers = writes.iter().map(|write| done.write(transaction, write.clone()));
                let answers = answers.collect::<Result<Answers, FileError>>()?;
                done.answers.push(answers);
            }
            has_changed |= done.revision != before;
            if has_changed {
                transaction.set_revision(done.revision)?;
            }
            Ok((done, has_changed))
        });
        match done {
            Ok(done) => {
                if done.revision != before {
                    self.recovered();
                }
                if let Err(error) = self.removals.clear() {
                    tracing::warn!(%error, "cannot clear the removal log; retrying later");
                }
                self.finish(done)
            }
            Err(error) => {
                let error = self.fail(error);
                self.remove_only(writes, &error)
            }
        }
    }

    /// Executes removals through the log, whose space is reserved. All other writes get the error.
    fn remove_only(&mut self, writes: &[Vec<Write>], error: &WriteError) -> Vec<Answers> {
        let mut done = Done::new(self.revision, writes.len());
        let mut entries = BTreeMap::new();
        for writes in writes {
            let mut answers = Vec::with_capacity(writes.len());
            for write in writes {
                answers.push(match (&self.file, &write.value) {
                    (Some(file), None) => done.remove(file, &self.removals, &mut entries, write),
                    _ => Err(error.clone()),
                });
            }
            done.answers.push(answers);
        }
        if entries.is_empty() {
            return done.answers;
        }
        match self.removals.append(entries) {
            Ok(()) => self.finish(done),
            Err(failed) => {
                tracing::warn!(
                    error = %failed,
                    "cannot record removals in the log; the store cannot be written either"
                );
                let refuse = |written: Result<Written, WriteError>| match written {
                    Ok(written) if written.changed => Err(error.clone()),
                    written => written,
                };
                done.answers.into_iter().map(|answers| answers.into_iter().map(refuse).collect()).collect()
            }
        }
    }

    /// Records the durable revision, and publishes its events.
    fn finish(&mut self, done: Done) -> Vec<Answers> {
        let Done { revision, answers, effects } = done;
        if revision != self.revision {
            self.revision = revision;
            if let Err(error) = self.acknowledged.set(revision) {
                tracing::warn!(
                    %error,
                    revision,
                    "cannot write the acknowledged revision; damage of the store may go undetected"
                );
            }
        }
        let events = self.begin_leases(effects);
        self.tell(events);
        answers
    }

    fn sync_revision(&mut self) {
        self.synced = Instant::now();
        if let Err(error) = self.acknowledged.sync() {
            tracing::warn!(
                %error,
                "cannot sync the acknowledged revision; damage of the store may go undetected"
            );
        }
    }

    /// Starts and ends leases of durable writes. Returns all pending events in order.
    fn begin_leases(&self, effects: Vec<Effect>) -> Vec<StoreEvent> {
        let mut leases = self.shared.leases.lock();
        let mut events: Vec<StoreEvent> = leases.take_events().into_iter().map(StoreEvent::from).collect();
        for effect in effects {
            match effect {
                Effect::Changed { revision, key, record } => {
                    match record.as_ref().and_then(|record| record.lease()) {
                        Some(ttl) => {
                            leases.start(&key, ttl);
                        }
                        None => leases.end(&key),
                    }
                    events.push(StoreEvent::Changed { revision, key, record });
                }
                Effect::Touched(key, ttl) => {
                    if leases.start(&key, ttl) {
                        events.push(StoreEvent::Renewed(key));
                    }
                }
            }
        }
        events
    }

    /// Lets overdue leases lapse.
    fn lapse(&self) {
        loop {
            let mut leases = self.shared.leases.lock();
            let is_more = leases.lapse(LEASES);
            let events = leases.take_events();
            drop(leases);
            self.tell(events.into_iter().map(StoreEvent::from).collect());
            if !is_more {
                return;
            }
        }
    }

    /// Closes the file after an error and opens it again, which shows the result of the last transaction.
    fn fail(&mut self, error: FileError) -> WriteError {
        self.file = None;
        let error = match error {
            FileError::Full(why) => WriteError::Full(why),
            FileError::Other(why) => WriteError::Unavailable(why),
        };
        self.set_trouble(&error);
        self.trouble.begin();
        self.reopen();
        error
    }

    /// Opens the file again after an error, once the delay is over.
    fn revive(&mut self) {
        if self.file.is_none() && self.trouble.is_over() {
            self.trouble.begin();
            self.reopen();
        }
    }

    fn reopen(&mut self) {
        match reopen(&self.directory, self.revision, &self.removals) {
            Ok((file, contents)) => {
                self.file = Some(file);
                // The transaction was not acknowledged but committed: memory follows the file.
                if contents.revision != self.revision {
                    self.revision = contents.revision;
                    if let Err(error) = self.acknowledged.set(self.revision) {
                        tracing::warn!(
                            %error,
                            "cannot write the acknowledged revision; damage of the store may go undetected"
                        );
                    }
                    let event = reset(contents, &self.shared);
                    self.tell(vec![event]);
                }
            }
            Err(error) => self.set_trouble(&WriteError::Unavailable(error.to_string())),
        }
    }

    fn set_trouble(&self, error: &WriteError) {
        let mut trouble = self.shared.trouble.lock();
        if trouble.as_ref() != Some(error) {
            let file = self.directory.join(crate::FILE_NAME);
            tracing::error!(
                file = %file.display(),
                %error,
                "cannot write registrations; acknowledged ones stay"
            );
            *trouble = Some(error.clone());
        }
    }

    fn recovered(&mut self) {
        if self.shared.trouble.lock().take().is_some() {
            tracing::info!("registrations can be written again");
        }
        self.trouble.wait = Duration::ZERO;
    }

    /// Publishes events. A slow receiver delays writes, unless the store is being closed.
    fn tell(&self, events: Vec<StoreEvent>) {
        self.events.send_blocking(events, || self.shared.is_closing.load(Ordering::Acquire));
    }
}

/// Delay of retries after a failure.
struct Trouble {
    failed: Instant,
    /// Zero for an immediate retry.
    wait: Duration,
}

impl Trouble {
    fn begin(&mut self) {
        self.failed = Instant::now();
        self.wait = (self.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
    }

    fn is_over(&self) -> bool {
        self.failed.elapsed() >= self.wait
    }
}

impl Done {
    fn new(revision: u64, callers: usize) -> Self {
        Self { revision, answers: Vec::with_capacity(callers), effects: Vec::new() }
    }

    /// Adds a removal to the log, in the order of the log.
    fn remove(
        &mut self,
        file: &RecordFile,
        log: &RemovalLog,
        entries: &mut BTreeMap<InstanceKey, Removal>,
        write: &Write,
    ) -> Result<Written, WriteError> {
        let unreadable = |error| match error {
            FileError::Full(why) | FileError::Other(why) => WriteError::Unavailable(why),
        };
        let current = file.get(&write.key).map_err(unreadable)?;
        let is_there =
            |record: &Record| !log.has(&write.key, record.revision) && !entries.contains_key(&write.key);
        let current = current.filter(is_there).map(Arc::new);
        write.expected.check(current.as_ref())?;
        let Some(record) = current else { return Ok(Written { revision: self.revision, changed: false }) };
        self.revision += 1;
        let revision = self.revision;
        entries.insert(write.key.clone(), Removal { before: record.revision, revision });
        self.effects.push(Effect::Changed { revision, key: write.key.clone(), record: None });
        Ok(Written { revision, changed: true })
    }

    fn write(
        &mut self,
        transaction: &mut Transaction<'_>,
        write: Write,
    ) -> Result<Result<Written, WriteError>, FileError> {
        let Write { key, expected, value } = write;
        let current = transaction.get(&key)?.map(Arc::new);
        if let (Some(value), Some(record)) = (&value, &current)
            && value.equals(record)
        {
            self.effects.extend(record.lease().map(|ttl| Effect::Touched(key, ttl)));
            return Ok(Ok(Written { revision: record.revision, changed: false }));
        }
        if let Err(conflict) = expected.check(current.as_ref()) {
            return Ok(Err(conflict));
        }
        if value.is_none() && current.is_none() {
            return Ok(Ok(Written { revision: self.revision, changed: false }));
        }
        self.revision += 1;
        let revision = self.revision;
        let record = value.map(|value| record(value, current.as_deref(), revision));
        match &record {
            Some(record) => transaction.put(record)?,
            None => transaction.remove(&key)?,
        }
        self.effects.push(Effect::Changed { revision, key, record });
        Ok(Ok(Written { revision, changed: true }))
    }
}

fn record(value: Value, before: Option<&Record>, revision: u64) -> Arc<Record> {
    let Value { instance, owner, state } = value;
    let created = before.map_or(revision, |before| before.created);
    Arc::new(Record { instance, owner, revision, created, state })
}

/// Restarts all leases, and returns the content as a reset event.
fn reset(contents: Contents, shared: &Shared) -> StoreEvent {
    let Contents { revision, records } = contents;
    let mut leases = shared.leases.lock();
    *leases = LeaseTable::new(Instant::now());
    for record in &records {
        record.lease().map(|ttl| leases.start(&record.instance.key, ttl));
    }
    StoreEvent::Reset { revision, records, lapsed: Vec::new() }
}

/// Returns a job and those queued behind it.
fn gather(first: Job, jobs: &mpsc::Receiver<Job>) -> Vec<Job> {
    let mut count = first.writes.len();
    let mut all = vec![first];
    while count < COMMIT
        && let Ok(job) = jobs.try_recv()
    {
        count += job.writes.len();
        all.push(job);
    }
    all
}

/// State shared between the store handle and its writer thread.
pub(crate) struct Shared {
    pub(crate) leases: Mutex<LeaseTable>,
    /// Reason that the store cannot write.
    pub(crate) trouble: Mutex<Option<WriteError>>,
    /// True once the store is dropped: events are not needed any more.
    pub(crate) is_closing: AtomicBool,
}
