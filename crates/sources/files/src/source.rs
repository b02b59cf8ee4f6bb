//! File source: opening, its thread, and its end.

use crate::change_queue::ChangeQueue;
use crate::rescan::Rescan;
use crate::scanner::{Root, Scanner, Trigger};
use crate::state::FileRole;
use pilotfish_config::{
    Effective, Limits, MeshFile, ObjectCheck, ProblemReport, SourceBatch, SourceEvent, SourceProblems,
};
use pilotfish_runtime::{GuardSettings, Heartbeat, HeldLosses};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, oneshot, watch};

/// Polling interval for acceptances of held losses, while there are any.
const ACCEPTANCE_POLL: Duration = Duration::from_millis(250);

/// Interval of the heartbeats of a source without changes.
const BEAT: Duration = Duration::from_secs(5);

/// Paths and settings of a [`FileSource`].
#[derive(Clone, Debug)]
pub struct FileSourceSettings {
    /// Folders (with everything below) and single files with objects.
    pub paths: Vec<PathBuf>,
    /// The file with the mesh config, if there is one.
    pub mesh_config: Option<PathBuf>,
    /// The file with the mesh networks, if there is one.
    pub mesh_networks: Option<PathBuf>,
    /// Limits on file size and content.
    pub limits: Limits,
    /// Further checks of each object.
    pub checks: Vec<ObjectCheck>,
    /// Delays until a change counts as complete.
    pub timing: Timing,
    /// Thresholds of the guard against losses of objects with files that are gone.
    pub guard: GuardSettings,
    /// Held losses, published for operators to accept.
    pub losses: HeldLosses,
    /// Heartbeats of the source's threads.
    pub heartbeats: FileHeartbeats,
}

/// The heartbeats of a file source. A file system that does not answer silences them.
#[derive(Clone, Debug)]
pub struct FileHeartbeats {
    /// Heartbeat of the thread that reads changed files.
    pub reading: Heartbeat,
    /// Heartbeat of the thread that walks through all folders from time to time.
    pub walking: Heartbeat,
}

impl Default for FileHeartbeats {
    fn default() -> Self {
        Self { reading: Heartbeat::paused(), walking: Heartbeat::paused() }
    }
}

impl FileSourceSettings {
    /// Settings for these paths, with defaults for everything else.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let (limits, timing) = (Limits::default(), Timing::default());
        let (guard, losses) = (GuardSettings::default(), HeldLosses::default());
        Self {
            paths,
            mesh_config: None,
            mesh_networks: None,
            limits,
            checks: Vec::new(),
            timing,
            guard,
            losses,
            heartbeats: FileHeartbeats::default(),
        }
    }
}

/// Delays until a change counts as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A burst of changes has ended when nothing changed for this long.
    pub quiet: Duration,
    /// Maximum duration of a burst before it is delivered in parts. Kept short: a single change waits for
    /// bursts of other files, and the debouncer groups related changes again by namespace.
    pub ceiling: Duration,
    /// Time that a half-written or removed file has to become complete; complete files are applied at once.
    pub settle: Duration,
    /// Time without a further change after which a file that changed without an event counts as complete.
    pub confirm: Duration,
    /// Time after which a file that is still open for writing is reported.
    pub write_timeout: Duration,
    /// Interval of full scans, for changes without watcher events (network file systems).
    pub rescan: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            quiet: Duration::from_millis(2),
            ceiling: Duration::from_millis(20),
            settle: Duration::from_millis(80),
            confirm: Duration::from_secs(2),
            write_timeout: Duration::from_secs(60),
            rescan: Duration::from_secs(10),
        }
    }
}

/// Errors that prevent serving the files at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A configured path does not exist, or cannot be read.
    #[error("cannot read {}", path.display())]
    Path {
        /// The path as configured.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A mesh file is wrong, and there is no last good version at the start.
    #[error("{}", list(reports))]
    Mesh {
        /// Problems of the mesh file.
        reports: Vec<ProblemReport>,
    },
    /// The thread of the source could not be started.
    #[error("cannot start the thread of the file source: {0}")]
    Thread(#[source] std::io::Error),
}

fn list(reports: &[ProblemReport]) -> String {
    reports.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Files that were read once; [`FileSource::spawn`] watches them from then on.
pub struct FileSource {
    scanner: Scanner,
    queue: Arc<ChangeQueue>,
    timing: Timing,
    /// Acceptances of held losses by operators.
    acceptances: watch::Receiver<u64>,
    heartbeats: FileHeartbeats,
    first: SourceBatch,
}

impl FileSource {
    /// Reads everything. Broken objects are reported as problems and cause no error.
    ///
    /// # Errors
    /// If a path does not exist, or a mesh file is invalid.
    pub fn open(settings: FileSourceSettings) -> Result<Self, OpenError> {
        let roots = roots(&settings)?;
        let queue = Arc::new(ChangeQueue::default());
        let timing = settings.timing;
        let (acceptances, heartbeats) = (settings.losses.acceptances(), settings.heartbeats);
        let alive = heartbeats.reading.clone();
        let mut scanner = Scanner::new(roots, settings.limits, settings.checks, timing, alive)
            .with_guard(settings.guard, settings.losses);
        let mut first = scanner.rescan(Instant::now(), SystemTime::now(), Trigger::Start);
        reject_broken_mesh(&first)?;
        first.events.push(SourceEvent::Listed);
        Ok(Self { scanner, queue, timing, acceptances, heartbeats, first })
    }

    /// Problems of the files in their present state.
    #[must_use]
    pub fn problems(&self) -> Arc<SourceProblems> {
        self.first.problems.clone().unwrap_or_default()
    }

    /// Number of files and of objects that were read.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let state = self.scanner.state();
        (state.files(), state.objects().len())
    }

    /// Starts the thread that delivers everything that was read, then every change, until it is stopped or
    /// the receiver is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn spawn(self, batches: mpsc::Sender<SourceBatch>) -> Result<RunningFileSource, OpenError> {
        let queue = self.queue.clone();
        let (done, ended) = oneshot::channel();
        // Drives nothing but the sending of batches.
        let runtime = runtime::Builder::new_current_thread().build().map_err(OpenError::Thread)?;
        let body = move || {
            self.run(&runtime, &batches);
            drop(done);
        };
        let builder = thread::Builder::new().name("pilotfish-files".to_owned());
        let thread = builder.spawn(body).map_err(OpenError::Thread)?;
        Ok(RunningFileSource { queue, ended, thread: Some(thread) })
    }

    fn run(mut self, runtime: &Runtime, batches: &mpsc::Sender<SourceBatch>) {
        let first = std::mem::take(&mut self.first);
        if !self.deliver(first, runtime, batches) {
            return;
        }
        // Watching starts after the first read: a watcher reports each opened file, and with many files that
        // was a sixth of the time until ready. One more walk finds changes since the read, while subscribers
        // process its result.
        let since = self.scanner.watch(self.queue.clone(), Instant::now(), SystemTime::now());
        if !since.is_empty() && !self.deliver(since, runtime, batches) {
            return;
        }
        let mut rescan = Rescan::At(self.next_rescan());
        loop {
            let deadline = self.scanner.next_due().into_iter().chain(rescan.due()).min();
            let (now, alive) = (Instant::now(), &self.heartbeats.reading);
            alive.beat(now);
            let patience = if self.scanner.is_holding() { ACCEPTANCE_POLL } else { BEAT };
            let deadline = deadline.unwrap_or(now + patience).min(now + patience);
            let mut changes = self.queue.wait(deadline, self.timing.quiet, self.timing.ceiling);
            if changes.stop {
                return;
            }
            let now = Instant::now();
            // The sender lives as long as the scanner.
            if self.acceptances.has_changed().unwrap_or_default() {
                self.acceptances.mark_unchanged();
                self.scanner.accept(now);
            }
            if rescan.step(&mut changes, now, self.next_rescan()) {
                let walks = self.walk_aside();
                // Without a thread for it, changes have to wait.
                changes.everything |= !walks;
                rescan =
                    if walks { Rescan::Walks { outdated: false } } else { Rescan::At(self.next_rescan()) };
            }
            let batch = self.scanner.poll_changes(changes, now, SystemTime::now());
            if !batch.is_empty() && !self.deliver(batch, runtime, batches) {
                return;
            }
        }
    }

    fn next_rescan(&self) -> Instant {
        Instant::now() + self.scanner.rescan_interval(self.timing.rescan)
    }

    /// Starts a walk on a separate thread: with many files it takes long, and would delay changes. Returns
    /// false if no thread can be started.
    fn walk_aside(&self) -> bool {
        let alive = self.heartbeats.walking.clone();
        let (queue, walk) = (self.queue.clone(), self.scanner.walk(alive.clone()));
        let builder = thread::Builder::new().name("pilotfish-walk".to_owned());
        let body = move || {
            alive.beat(Instant::now());
            // A walk that panics is repeated on the source's own thread, whose end is noticed.
            let walked = panic::catch_unwind(AssertUnwindSafe(walk)).ok();
            alive.pause();
            queue.walked(walked);
        };
        builder.spawn(body).is_ok()
    }

    /// Sends a batch, and waits while the channel is full. Returns false if the source must end.
    fn deliver(&self, batch: SourceBatch, runtime: &Runtime, batches: &mpsc::Sender<SourceBatch>) -> bool {
        // The wait depends on the control loop, which has a heartbeat of its own.
        self.heartbeats.reading.pause();
        let sent = runtime.block_on(async {
            tokio::select! {
                biased;
                sent = batches.send(batch) => sent.is_ok(),
                () = self.queue.stopped() => false,
            }
        });
        self.heartbeats.reading.beat(Instant::now());
        sent
    }
}

/// Handle of the source's thread, which ends when the handle is dropped.
#[derive(Debug)]
pub struct RunningFileSource {
    queue: Arc<ChangeQueue>,
    ended: oneshot::Receiver<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl RunningFileSource {
    /// Requests the end of the source.
    pub fn stop(&self) {
        self.queue.stop();
    }

    /// Waits for the end of the thread. Returns true if it ended regularly, false if it panicked.
    pub async fn ended(&mut self) -> bool {
        // The sender is dropped at the end, also by a panic; nothing is ever sent.
        let _ = (&mut self.ended).await;
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }
}

impl Drop for RunningFileSource {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The roots of the settings, all of which must exist.
pub(super) fn roots(settings: &FileSourceSettings) -> Result<Vec<Root>, OpenError> {
    let mesh = [(&settings.mesh_config, MeshFile::Config), (&settings.mesh_networks, MeshFile::Networks)];
    let mesh = mesh.into_iter().filter_map(|(path, which)| Some((path.as_ref()?, FileRole::Mesh(which))));
    let objects = settings.paths.iter().map(|path| (path, FileRole::Objects));
    objects
        .chain(mesh)
        .map(|(path, role)| {
            Root::open(path, role).map_err(|source| OpenError::Path { path: path.clone(), source })
        })
        .collect()
}

/// Fails for a broken mesh file: at the start it has no last good version, and Istio's defaults would hide
/// the mistake.
fn reject_broken_mesh(first: &SourceBatch) -> Result<(), OpenError> {
    let Some(problems) = &first.problems else { return Ok(()) };
    let of_mesh = |report: &&ProblemReport| {
        let kind = report.object.as_ref().map(|object| object.kind);
        let mesh = [MeshFile::Config.kind(), MeshFile::Networks.kind()];
        kind.is_some_and(|kind| mesh.contains(&kind)) && report.effective == Effective::Dropped
    };
    let reports: Vec<_> = problems.reports.iter().filter(of_mesh).cloned().collect();
    if reports.is_empty() { Ok(()) } else { Err(OpenError::Mesh { reports }) }
}
