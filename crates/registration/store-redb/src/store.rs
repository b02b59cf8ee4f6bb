//! The embedded store.

use crate::OpenError;
use crate::folder::Folder;
use crate::writer::{Job, Shared, Writer};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pilotfish_registration::{
    InstanceKey, LeaseTable, RenewError, RunningClock, Store, StoreDescription, StoreEvents, Write,
    WriteError, Written,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::sync::{Semaphore, oneshot};

/// Maximum size of waiting and running writes in KiB. Callers wait above it.
const WAITING_KIB: u32 = 64 << 10;

/// A store with the receiver of its events.
pub struct OpenStore {
    pub store: RedbStore,
    pub events: StoreEvents,
}

/// The embedded store. Dropping it completes waiting writes, and closes the file.
pub struct RedbStore {
    path: PathBuf,
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
}

impl RedbStore {
    /// Opens the store in a directory, which is created if missing. Reads the whole file.
    ///
    /// # Errors
    /// [`OpenError`], which says what can be done.
    pub fn open(directory: &Path) -> Result<OpenStore, OpenError> {
        let folder = Folder::open(directory)?;
        let path = folder.file.path().to_owned();
        let shared = Arc::new(Shared {
            leases: Mutex::new(LeaseTable::new(std::time::Instant::now())),
            trouble: Mutex::new(None),
            is_closing: AtomicBool::new(false),
        });
        let (jobs, waiting) = mpsc::channel();
        let (sender, events) = pilotfish_registration::store_events();
        run_clock(&shared).map_err(|source| OpenError::Io { path: path.clone(), source })?;
        let writer = Writer::new(directory.to_owned(), folder, Arc::clone(&shared), sender);
        let thread = std::thread::Builder::new().name("registrations".to_owned());
        let spawned = thread.spawn(move || writer.run(&waiting));
        let writer = spawned.map_err(|source| OpenError::Io { path: path.clone(), source })?;
        let room = Arc::new(Semaphore::new(WAITING_KIB as usize));
        let store = Self { path, shared, room, jobs: Some(jobs), writer: Some(writer) };
        Ok(OpenStore { store, events })
    }

    async fn queue(&self, writes: Vec<Write>) -> Vec<Result<Written, WriteError>> {
        let count = writes.len();
        let closed = || vec![Err(WriteError::Unavailable("the store is closed".to_owned())); count];
        if writes.is_empty() {
            return Vec::new();
        }
        let room = Arc::clone(&self.room).acquire_many_owned(kib(&writes)).await;
        let Ok(room) = room else { return closed() };
        let (answer, answered) = oneshot::channel();
        let Some(jobs) = &self.jobs else { return closed() };
        if jobs.send(Job { writes, answer, room }).is_err() {
            return closed();
        }
        answered.await.unwrap_or_else(|_| closed())
    }
}

/// Advances the clock of leases while the store is open, on its own thread: commits can take longer than its
/// interval.
fn run_clock(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::downgrade(shared);
    let tick = move || {
        while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_closing.load(Ordering::Acquire))
        {
            shared.leases.lock().tick(std::time::Instant::now());
            drop(shared);
            std::thread::sleep(RunningClock::CADENCE);
        }
    };
    std::thread::Builder::new().name("leases".to_owned()).spawn(tick).map(drop)
}

/// Returns the approximate memory of writes in KiB.
fn kib(writes: &[Write]) -> u32 {
    let weight = |write: &Write| write.value.as_ref().map_or(0, |value| value.instance.weight());
    let bytes: usize = writes.iter().map(|write| weight(write) + size_of::<Write>()).sum();
    u32::try_from(bytes >> 10).unwrap_or(WAITING_KIB).clamp(1, WAITING_KIB)
}

impl Store for RedbStore {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'_, Vec<Result<Written, WriteError>>> {
        self.queue(writes).boxed()
    }

    fn renew(&self, renewals: Vec<InstanceKey>) -> BoxFuture<'_, Vec<Result<(), RenewError>>> {
        let mut leases = self.shared.leases.lock();
        let renew = |key| if leases.renew(key) { Ok(()) } else { Err(RenewError::NotFound) };
        let answers = renewals.iter().map(renew).collect();
        std::future::ready(answers).boxed()
    }

    fn describe(&self) -> StoreDescription {
        StoreDescription {
            kind: "redb",
            place: self.path.display().to_string(),
            bytes: std::fs::metadata(&self.path).ok().map(|file| file.len()),
            trouble: self.shared.trouble.lock().as_ref().map(ToString::to_string),
        }
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        self.jobs = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the writer thread of the store panicked");
        }
    }
}
