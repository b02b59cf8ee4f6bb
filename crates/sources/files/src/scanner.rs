//! Scanner of changed files: schedules reading, and decides when a change is complete.

mod losses;

use crate::change_queue::{ChangeQueue, Changes, WriteState};
use crate::parallel;
use crate::path::FilePath;
use crate::source::Timing;
use crate::state::{FileChange, FileContent, FileRole, FileState, PreparedFile};
use crate::walk::{Found, Signature, is_config_file, is_hidden, read_file, walk};
use crate::watch::Watch;
use crate::writes::OpenWrites;
use pilotfish_config::{Limits, ObjectCheck, ReadFile, SourceBatch, SourceEvent, SourceProblems};
use pilotfish_model::ObjectKey;
use pilotfish_runtime::{GuardSettings, Heartbeat, HeldLosses, LossGuard, check_type};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Maximum number of walks in a row while each finds new folders to watch.
const MOST_WALKS: usize = 16;

/// A configured path: a folder, or a single file.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// The path as configured, for messages.
    named: PathBuf,
    /// The path, made absolute.
    path: PathBuf,
    role: FileRole,
    is_folder: bool,
}

impl Root {
    pub(super) fn open(named: &Path, role: FileRole) -> io::Result<Self> {
        let path = std::path::absolute(named)?;
        let meta = fs::metadata(&path)?;
        if meta.is_dir() && role != FileRole::Objects {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder, a file is needed"));
        }
        if !meta.is_dir() {
            check_type(meta.file_type())?;
        }
        Ok(Self { named: named.to_owned(), path, role, is_folder: meta.is_dir() })
    }

    /// Name of a file at or below the root, for messages.
    fn name_of(&self, path: &Path) -> Arc<str> {
        let name = match path.strip_prefix(&self.path) {
            Ok(rest) if !rest.as_os_str().is_empty() => self.named.join(rest),
            _ => self.named.clone(),
        };
        name.display().to_string().into()
    }

    /// Reason why the root as a whole cannot be read now. Its files then do not count as deleted, and their
    /// objects stay. A single file counts as deleted if its folder exists without it.
    fn unreadable(&self) -> Option<String> {
        let error = match fs::metadata(&self.path) {
            Ok(meta) if self.is_folder && meta.is_dir() => fs::read_dir(&self.path).err()?,
            Ok(meta) if !self.is_folder && meta.is_file() => return None,
            Ok(_) => return Some(format!("{} is no longer what it was at the start", self.named.display())),
            Err(error) if self.is_folder || error.kind() != io::ErrorKind::NotFound => error,
            Err(_) if self.path.parent().is_some_and(Path::is_dir) => return None,
            Err(error) => error,
        };
        Some(format!("{}: {error}", self.named.display()))
    }

    fn holds(&self, path: &Path) -> bool {
        if self.is_folder { path.starts_with(&self.path) } else { path == self.path }
    }
}

/// The root that a file belongs to. A file that is a root as well as below one belongs to its own root.
fn root_of<'a>(roots: &'a [Root], path: &Path) -> Option<&'a Root> {
    roots.iter().filter(|root| root.holds(path)).min_by_key(|root| (root.is_folder, root.role))
}

/// A file to read later.
#[derive(Clone, Copy, Debug)]
struct Pending {
    due: Instant,
    /// Time at which the file disappeared.
    absent_since: Option<Instant>,
    /// True if an event shows that the file was put in place by rename, or closed soon after it was written.
    is_closed: bool,
    /// Signature of a file that changed without an event, and the time at which a walk found it. The file
    /// counts as complete once the signature stays the same.
    unconfirmed: Option<(Signature, Instant)>,
}

impl Pending {
    fn at(due: Instant) -> Self {
        Self { due, absent_since: None, is_closed: false, unconfirmed: None }
    }

    /// Time of the next read of a file whose signature has not been stable for long enough; `None` if it has.
    fn confirm(&self, signature: Option<Signature>, now: Instant, wait: Duration) -> Option<Self> {
        let ((before, since), signature) = (self.unconfirmed?, signature?);
        let since = if before == signature { since } else { now };
        let due = since + wait;
        (now < due).then(|| Self { unconfirmed: Some((signature, since)), ..Self::at(due) })
    }
}

/// Signature of a file when it was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// `None` if it could not be read.
    signature: Option<Signature>,
    /// True if every later change shows in the signature: the file was not touched just before.
    is_settled: bool,
}

impl Known {
    /// State of a file that must be read again as soon as possible.
    const UNREAD: Self = Self { signature: None, is_settled: false };

    /// True if the file has not changed since.
    fn is(&self, now: Signature) -> bool {
        self.is_settled && self.signature == Some(now)
    }
}

/// Reason for comparing all files with their known state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// Nothing was read before, so nothing can be lost.
    Start,
    /// A folder or link changed: files that it brought are complete.
    Event,
    /// Files changed without events, so no event shows that they are complete.
    Walk,
}

/// Result of one walk through all roots.
#[derive(Debug, Default)]
pub(super) struct Walked {
    found: Found,
    failure: Option<String>,
}

impl Walked {
    fn through(roots: &[Root], alive: &Heartbeat) -> Self {
        let mut found = Found::default();
        let mut failures = Vec::new();
        for root in roots {
            match root.unreadable() {
                Some(failure) => failures.push(failure),
                None if root.is_folder => walk(&root.path, &mut found, alive),
                None => fs::metadata(&root.path).iter().for_each(|meta| found.file(&root.path, meta, true)),
            }
        }
        Self { found, failure: (!failures.is_empty()).then(|| failures.join("; ")) }
    }
}

/// State of all files: their content as last read, and the time of the next read.
pub(super) struct Scanner {
    roots: Arc<[Root]>,
    limits: Limits,
    timing: Timing,
    heartbeat: Heartbeat,
    state: FileState,
    known: BTreeMap<FilePath, Known>,
    pending: BTreeMap<FilePath, Pending>,
    folders: BTreeSet<PathBuf>,
    link_folders: BTreeSet<PathBuf>,
    links: BTreeMap<FilePath, PathBuf>,
    writes: OpenWrites,
    watch: Option<Watch>,
    failure: Option<Arc<str>>,
    problems: Arc<SourceProblems>,
    guard: LossGuard,
    /// Losses that the guard holds, for operators.
    losses: HeldLosses,
    /// Objects that stay in force although their file lacks them or is away, until it is read again.
    held: BTreeMap<FilePath, BTreeSet<ObjectKey>>,
}

impl Scanner {
    pub(super) fn new(
        roots: Vec<Root>,
        limits: Limits,
        checks: Vec<ObjectCheck>,
        timing: Timing,
        heartbeat: Heartbeat,
    ) -> Self {
        Self {
            roots: roots.into(),
            state: FileState::new(limits.clone()).with_checks(checks),
            limits,
            timing,
            heartbeat,
            known: BTreeMap::new(),
            pending: BTreeMap::new(),
            folders: BTreeSet::new(),
            link_folders: BTreeSet::new(),
            links: BTreeMap::new(),
            writes: OpenWrites::new(timing.write_timeout),
            watch: None,
            failure: None,
            problems: Arc::default(),
            guard: LossGuard::new(GuardSettings::default()),
            losses: HeldLosses::default(),
            held: BTreeMap::new(),
        }
    }

    /// Adds a guard with these settings, which publishes held losses in `losses`.
    pub(super) fn with_guard(self, settings: GuardSettings, losses: HeldLosses) -> Self {
        Self { guard: LossGuard::new(settings), losses, ..self }
    }

    /// Starts watching the folders, and reads the files that changed since the last scan.
    pub(super) fn watch(&mut self, queue: Arc<ChangeQueue>, now: Instant, clock: SystemTime) -> SourceBatch {
        self.watch = Some(Watch::new(queue));
        let (folders, link_folders) = (self.folders.clone(), self.link_folders.clone());
        self.watch_folders([&folders, &link_folders]);
        self.rescan(now, clock, Trigger::Event)
    }

    pub(super) fn into_state(self) -> FileState {
        self.state
    }

    pub(super) fn state(&self) -> &FileState {
        &self.state
    }

    /// Time at which the next file is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.due).chain(self.writes.next_due()).min()
    }

    /// The time until the next full scan: shorter when not everything can be watched.
    pub(super) fn rescan_interval(&self, usual: Duration) -> Duration {
        let complete = self.watch.as_ref().is_some_and(Watch::is_complete);
        if complete { usual } else { usual.min(Duration::from_secs(1)) }
    }

    /// Applies changes, and reads the files that are due.
    pub(super) fn poll_changes(&mut self, changes: Changes, now: Instant, clock: SystemTime) -> SourceBatch {
        let mut trigger = None;
        for (path, state) in changes.paths {
            if self.take_change(&path, state, now) == Affected::Everything {
                trigger = Some(Trigger::Event);
            }
        }
        if changes.everything {
            self.distrust_events(now);
            trigger = Some(Trigger::Walk);
        }
        let mut batch = match (trigger, changes.walked) {
            (Some(trigger), _) => self.rescan(now, clock, trigger),
            (None, Some(walked)) => self.compare(walked, now, clock, Trigger::Walk),
            (None, None) => self.read_due(now, clock, Trigger::Walk),
        };
        self.report_open_writes(now, &mut batch);
        batch
    }

    /// Schedules reading a file that changed. Returns the part that must be read at once.
    fn take_change(&mut self, path: &Path, state: WriteState, now: Instant) -> Affected {
        let affected = self.affected(path);
        let file = FilePath::from(path);
        let is_target = affected == Affected::Everything && self.links.values().any(|target| target == path);
        let is_written = affected == Affected::File || is_target;
        let open = if is_written { self.writes.note(&file, state, now) } else { Some(Duration::ZERO) };
        let Some(open) = open else {
            // Once it is closed, it is compared with all that is in force.
            self.pending.remove(&file);
            self.held.remove(&file);
            return Affected::Nothing;
        };
        if affected == Affected::File {
            self.read_later(file, state, open, now);
        }
        affected
    }

    /// Schedules reading a file after it was open for writing for the given time, as far as events show.
    fn read_later(&mut self, file: FilePath, state: WriteState, open: Duration, now: Instant) {
        let wait = if state == WriteState::Created { self.timing.settle } else { Duration::ZERO };
        let before = self.pending.get(&file).filter(|_| state != WriteState::Complete);
        let absent_since = before.and_then(|pending| pending.absent_since);
        // A slow writer may still have it open when another one closes it.
        let is_quick = open <= self.timing.settle && !self.held.contains_key(&file);
        let is_closed = state == WriteState::Complete && is_quick;
        self.pending.insert(file, Pending { absent_since, is_closed, ..Pending::at(now + wait) });
    }

    /// Replaces open writes by unconfirmed files: events were lost, among them perhaps that of a closed file.
    fn distrust_events(&mut self, now: Instant) {
        for path in self.writes.take_all() {
            let found = fs::metadata(&*path).ok().map(|meta| (Signature::of(&meta), now));
            let due = now + self.timing.confirm;
            self.pending.insert(path, Pending { unconfirmed: found, ..Pending::at(due) });
        }
    }

    /// Reports files that were not closed in time; the content that was read before stays in force.
    fn report_open_writes(&mut self, now: Instant, batch: &mut SourceBatch) {
        let seconds = self.timing.write_timeout.as_secs();
        let reason = format!(
            "it has been open for writing for {seconds} s, and is read once it is closed or replaced by \
             rename"
        );
        let mut unreadable = Vec::new();
        for path in self.writes.take_overdue(now) {
            let links = self.links.iter().filter(|(_, target)| **target == *path).map(|(link, _)| link);
            let own = root_of(&self.roots, &path).map(|_| &path);
            unreadable.extend(links.chain(own).map(|path| (path.to_path_buf(), reason.clone())));
        }
        self.report_unreadable(unreadable, batch);
    }

    /// Walks through all roots; files that changed are read.
    pub(super) fn rescan(&mut self, now: Instant, clock: SystemTime, trigger: Trigger) -> SourceBatch {
        self.compare(Walked::through(&self.roots, &self.heartbeat), now, clock, trigger)
    }

    /// Returns a walk through all roots that can run on another thread. Its result may be older than files
    /// that the scanner reads meanwhile.
    pub(super) fn walk(&self, alive: Heartbeat) -> impl FnOnce() -> Walked + Send + 'static {
        let roots = Arc::clone(&self.roots);
        move || Walked::through(&roots, &alive)
    }

    /// Reads the files that differ from the walk's result. They are examined again first, so that an old walk
    /// reverts nothing.
    fn compare(&mut self, walked: Walked, now: Instant, clock: SystemTime, trigger: Trigger) -> SourceBatch {
        let Walked { mut found, mut failure } = walked;
        // Walks once more after new folders are watched: files may have arrived in them before their watch
        // began. In a folder that gains subfolders faster than that, the rest is found at the next rescan.
        for _ in 0..MOST_WALKS {
            if !self.watch_folders([&found.folders, &found.link_folders]) {
                break;
            }
            Walked { found, failure } = Walked::through(&self.roots, &self.heartbeat);
        }
        self.writes.forget_replaced();
        for path in self.differing(&found, failure.is_some()) {
            if self.is_open(&path, &found) {
                continue;
            }
            let is_back = found.files.contains_key(&path) && self.held.contains_key(&path);
            let unconfirmed = self.unconfirmed(&path, &found, trigger).map(|signature| (signature, now));
            let wait = if unconfirmed.is_some() { self.timing.confirm } else { Duration::ZERO };
            let pending =
                self.pending.entry(path).or_insert(Pending { unconfirmed, ..Pending::at(now + wait) });
            if is_back {
                pending.due = now;
            }
        }
        let failure = self.take_gone_root(&mut found).or(failure);
        let unreadable: Vec<_> = found.unreadable.into_iter().collect();
        (self.folders, self.link_folders, self.links) = (found.folders, found.link_folders, found.links);
        let mut batch = self.read_due(now, clock, trigger);
        self.report_unreadable(unreadable, &mut batch);
        self.report_failure(failure, clock, &mut batch);
        batch
    }

    /// Removes roots that went away during the walk from the unreadable folders. Returns why the last one
    /// cannot be read.
    fn take_gone_root(&self, found: &mut Found) -> Option<String> {
        let mut failure = None;
        found.unreadable.retain(|path, _| {
            let root = self.roots.iter().find(|root| root.is_folder && root.path == *path);
            let Some(reason) = root.and_then(Root::unreadable) else { return true };
            failure = Some(reason);
            false
        });
        failure
    }

    /// Watches these folders and those that hold the roots, and no others; true when one was added.
    fn watch_folders(&mut self, folders: [&BTreeSet<PathBuf>; 2]) -> bool {
        let parents = self.roots.iter().filter_map(|root| root.path.parent());
        let folders = folders.into_iter().flatten().map(PathBuf::as_path).chain(parents).collect();
        self.watch.as_mut().is_some_and(|watch| watch.set_folders(&folders))
    }

    /// Files that are not, or no longer, as they were read.
    fn differing(&self, found: &Found, failure: bool) -> Vec<FilePath> {
        // Usually there are none, and comparing both in order is faster than looking up each.
        let mut pairs = found.files.iter().zip(&self.known);
        let is_same = found.files.len() == self.known.len()
            && pairs.all(|((path, signature), (known, read))| path == known && read.is(*signature));
        if is_same {
            return Vec::new();
        }
        let is_gone =
            |path: &&FilePath| !found.files.contains_key(*path) && !self.is_hidden_by(path, found, failure);
        let gone = self.known.keys().filter(is_gone);
        let has_changed = |(path, signature): &(&FilePath, &Signature)| {
            !self.known.get(*path).is_some_and(|known| known.is(**signature))
        };
        let changed = found.files.iter().filter(has_changed).map(|(path, _)| path);
        changed.chain(gone).cloned().collect()
    }

    /// True if the file, or the target of the link, is open for writing.
    fn is_open(&self, path: &FilePath, found: &Found) -> bool {
        self.writes.has(path) || found.links.get(path).is_some_and(|target| self.writes.has(target))
    }

    /// Signature that a differing file must keep before it is read; `None` if an event shows that it was
    /// written completely.
    fn unconfirmed(&self, path: &FilePath, found: &Found, trigger: Trigger) -> Option<Signature> {
        let signature = found.files.get(path)?;
        let known = self.known.get(path).and_then(|known| known.signature);
        let is_same_file = known.is_some_and(|known| known.identity() == signature.identity());
        match trigger {
            Trigger::Start => None,
            Trigger::Event => is_same_file.then_some(*signature),
            Trigger::Walk => Some(*signature),
        }
    }

    /// True if a file that the walk did not find may still exist, because its root or folder cannot be read.
    fn is_hidden_by(&self, path: &Path, found: &Found, failure: bool) -> bool {
        let lost_root =
            failure && self.roots.iter().any(|root| root.holds(path) && root.unreadable().is_some());
        lost_root || found.unreadable.keys().any(|unreadable| path.starts_with(unreadable))
    }

    /// Reads every file that is due and applies what is complete.
    fn read_due(&mut self, now: Instant, clock: SystemTime, trigger: Trigger) -> SourceBatch {
        let due: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.due <= now)
            .map(|(path, _)| path.clone())
            .collect();
        // Reading takes nearly all of the time, and needs nothing but the file.
        let found = parallel::for_each(&due, self.reading());
        let mut files = Vec::new();
        for (path, found) in due.into_iter().zip(found) {
            let (Some(pending), Some(found)) = (self.pending.remove(&path), found) else { continue };
            match self.classify(&path, pending, found, (now, clock), trigger) {
                Outcome::Unchanged => drop(self.held.remove(&path)),
                Outcome::Retry(pending) => drop(self.pending.insert(path, pending)),
                Outcome::Changed { change, quiet } => {
                    self.held.remove(&path);
                    files.push(ChangedFile { file: self.state.prepare(change), quiet });
                }
            }
        }
        let events = match trigger {
            Trigger::Start => self.state.commit(files.into_iter().map(|changed| changed.file)),
            Trigger::Event | Trigger::Walk => self.commit_guarded(files, now),
        };
        self.losses.set("files", "objects", self.guard.held());
        self.batch(events)
    }

    /// Returns a function that reads one file, callable from any thread. It returns `None` for a path below
    /// no root.
    fn reading(&self) -> impl Fn(&FilePath) -> Option<FoundFile> + Sync + use<'_> {
        let Self { roots, limits, state, known, heartbeat, .. } = self;
        move |path| {
            heartbeat.beat(Instant::now());
            let root = root_of(roots, path)?;
            let (name, role) = (root.name_of(path), root.role);
            let content = match read_file(path, limits.file_bytes) {
                (FileContent::Bytes(_), Some(signature))
                    if known.get(path).is_some_and(|known| known.is(signature)) =>
                {
                    FoundContent::Unchanged
                }
                (FileContent::Bytes(bytes), signature) => {
                    FoundContent::Read(state.read(&name, role, &bytes), signature)
                }
                // The source fails as a whole; once the root is back, everything is scanned.
                _ if root.unreadable().is_some() => FoundContent::Unchanged,
                _ if path.is_dir() => FoundContent::Folder,
                (FileContent::Absent, _) => FoundContent::Absent,
                (other, signature) => FoundContent::Other(other, signature),
            };
            Some(FoundFile { name, role, content })
        }
    }

    /// Decides on a file that was due, by the content found at its path.
    fn classify(
        &mut self,
        path: &FilePath,
        pending: Pending,
        found: FoundFile,
        (now, clock): (Instant, SystemTime),
        trigger: Trigger,
    ) -> Outcome {
        let FoundFile { name, role, content } = found;
        let change = |content, quiet| Outcome::Changed {
            change: FileChange { path: path.clone(), name, role, content },
            quiet,
        };
        match content {
            FoundContent::Unchanged => Outcome::Unchanged,
            // A folder that could not be read before, and now can.
            FoundContent::Folder if !self.known.contains_key(path) => Outcome::Unchanged,
            FoundContent::Folder => {
                self.known.remove(path);
                change(FileContent::Absent, None)
            }
            FoundContent::Absent if !self.known.contains_key(path) => Outcome::Unchanged,
            FoundContent::Absent => {
                // Editors remove a file before they put the new one in its place.
                let since = pending.absent_since.unwrap_or(now);
                let settle = self.timing.settle;
                if now.saturating_duration_since(since) < settle {
                    let due = since + settle;
                    return Outcome::Retry(Pending { absent_since: Some(since), ..Pending::at(due) });
                }
                self.known.remove(path);
                change(FileContent::Absent, None)
            }
            FoundContent::Other(other, signature) => {
                let known = Known { signature, is_settled: true };
                let first = self.known.insert(path.clone(), known) != Some(known) || signature.is_none();
                if first { change(other, None) } else { Outcome::Unchanged }
            }
            FoundContent::Read(read, signature) => {
                if let Some(later) = pending.confirm(signature, now, self.timing.confirm) {
                    return Outcome::Retry(later);
                }
                // A file that was touched just now and makes no sense is likely to be written to still.
                let senseless = !read.rejected.is_empty() || read.objects.is_empty();
                let settle = self.timing.settle;
                let age = signature.and_then(|signature| signature.age(clock)).unwrap_or(settle);
                if senseless && trigger != Trigger::Start && age < settle {
                    return Outcome::Retry(Pending { due: now + (settle - age), ..pending });
                }
                let quiet = self.quiet(path, pending, (signature, read.objects.is_empty()), (now, clock));
                let is_settled = signature.is_some_and(|signature| !signature.is_fresh(clock));
                self.known.insert(path.clone(), Known { signature, is_settled });
                change(FileContent::Read(read), quiet)
            }
        }
    }

    /// Reports folders and files that could not be read; their objects stay.
    fn report_unreadable(&mut self, unreadable: Vec<(PathBuf, String)>, batch: &mut SourceBatch) {
        let mut changes = Vec::new();
        for (path, reason) in unreadable {
            let Some(root) = root_of(&self.roots, &path) else { continue };
            let (name, role) = (root.name_of(&path), root.role);
            let path = FilePath::from(&*path);
            // Read again when it becomes readable, and removed when it is gone.
            self.known.insert(path.clone(), Known::UNREAD);
            changes.push(FileChange { path, name, role, content: FileContent::Unreadable(reason) });
        }
        if !changes.is_empty() {
            let events = self.state.apply(changes);
            let more = self.batch(events);
            batch.events.extend(more.events);
            batch.problems = more.problems.or(batch.problems.take());
        }
    }

    fn report_failure(&mut self, failure: Option<String>, at: SystemTime, batch: &mut SourceBatch) {
        match (failure, &self.failure) {
            (Some(reason), before) if before.as_deref() != Some(&reason) => {
                let reason: Arc<str> = reason.into();
                self.failure = Some(reason.clone());
                batch.events.push(SourceEvent::Failed { at, reason });
            }
            (None, Some(_)) => {
                self.failure = None;
                batch.events.push(SourceEvent::Recovered);
            }
            _ => {}
        }
    }

    fn batch(&mut self, events: Vec<SourceEvent>) -> SourceBatch {
        let problems = self.state.problems();
        let changed = problems != *self.problems;
        if changed {
            self.problems = Arc::new(problems);
        }
        SourceBatch { events, problems: changed.then(|| self.problems.clone()) }
    }

    fn affected(&self, path: &Path) -> Affected {
        if self.roots.iter().any(|root| !root.is_folder && root.path == path) {
            return Affected::File;
        }
        // A root, or a folder above it, came or went.
        if self.roots.iter().any(|root| root.path.starts_with(path)) {
            return Affected::Everything;
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Affected::Nothing };
        let linked = self.link_folders.contains(parent);
        let walked = self.folders.contains(parent);
        let beside_root = self.roots.iter().any(|root| !root.is_folder && root.path.parent() == Some(parent));
        if is_hidden(name) {
            // `..data`, by which a mounted ConfigMap is swapped.
            let swap = name.as_encoded_bytes().starts_with(b"..") && (linked || walked || beside_root);
            return if swap { Affected::Everything } else { Affected::Nothing };
        }
        match () {
            () if linked && !walked => Affected::Everything,
            () if !walked => Affected::Nothing,
            () if self.folders.contains(path) || path.is_dir() => Affected::Everything,
            () if is_config_file(path) => Affected::File,
            () => Affected::Nothing,
        }
    }
}

/// A file that was due, as it is now.
struct FoundFile {
    name: Arc<str>,
    role: FileRole,
    content: FoundContent,
}

enum FoundContent {
    /// There is no such file.
    Absent,
    /// There is a folder.
    Folder,
    /// Unchanged since the last read.
    Unchanged,
    Read(ReadFile, Option<Signature>),
    /// The file cannot be read.
    Other(FileContent, Option<Signature>),
}

/// Result of checking a file that was due.
enum Outcome {
    Unchanged,
    /// The file may be incomplete: read it again.
    Retry(Pending),
    Changed {
        change: FileChange,
        quiet: Option<Instant>,
    },
}

/// A file that was read and is not in force yet.
struct ChangedFile {
    file: PreparedFile,
    /// Time at which objects that it lacks are taken away, while it may still be open for writing.
    quiet: Option<Instant>,
}

/// Scope of the rescan that a change at a path requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Affected {
    Nothing,
    File,
    Everything,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn scanner(folder: &Path) -> Scanner {
        let roots = vec![Root::open(folder, FileRole::Objects).unwrap()];
        let timing = Timing { settle: Duration::ZERO, ..Timing::default() };
        Scanner::new(roots, Limits::default(), Vec::new(), timing, Heartbeat::paused())
    }

    pub(super) fn service(folder: &Path, name: &str, port: u16) {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{ports: [{{port: {port}}}]}}\n"
        );
        fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
    }

    #[test]
    fn a_walk_that_is_older_than_what_was_read_takes_nothing_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        ["a", "b", "c"].into_iter().for_each(|name| service(path, name, 80));
        let mut scanner = scanner(path);
        let times = || (Instant::now(), SystemTime::now());
        let (now, clock) = times();
        assert_eq!(scanner.rescan(now, clock, Trigger::Start).events.len(), 3);
        let old = scanner.walk(Heartbeat::paused())();
        service(path, "a", 8_080);
        fs::remove_file(path.join("b.yaml")).unwrap();
        service(path, "d", 80);
        let paths = ["a", "b", "d"].map(|name| (path.join(format!("{name}.yaml")), WriteState::Complete));
        let (now, clock) = times();
        let batch = scanner.poll_changes(Changes { paths: paths.into(), ..Changes::default() }, now, clock);
        let (now, clock) = times();
        let rest = scanner.poll_changes(Changes { walked: Some(old), ..Changes::default() }, now, clock);
        // One that is gone is given a moment to come back.
        assert_eq!(batch.events.len() + rest.events.len(), 3, "{:?} {:?}", batch.events, rest.events);
        assert_eq!(scanner.state().objects().len(), 3);
        let newest = scanner.walk(Heartbeat::paused())();
        let (now, clock) = times();
        let rest = scanner.poll_changes(Changes { walked: Some(newest), ..Changes::default() }, now, clock);
        assert!(rest.events.is_empty(), "{:?}", rest.events);
    }

    #[test]
    fn what_changes_before_it_is_watched_is_read_when_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        service(path, "a", 80);
        let mut scanner = scanner(path);
        assert_eq!(scanner.rescan(Instant::now(), SystemTime::now(), Trigger::Start).events.len(), 1);
        service(path, "a", 8_080);
        let more = path.join("more");
        fs::create_dir(&more).unwrap();
        service(&more, "b", 80);
        let batch = scanner.watch(Arc::default(), Instant::now(), SystemTime::now());
        assert_eq!((batch.events.len(), scanner.state().objects().len()), (1, 2), "{:?}", batch.events);
        let confirmed = Instant::now() + scanner.timing.confirm;
        let batch = scanner.poll_changes(Changes::default(), confirmed, SystemTime::now());
        assert_eq!(
            batch.events.len(),
            1,
            "no event tells that it is closed, so it has to stay as it is: {batch:?}"
        );
    }

    #[test]
    fn a_folder_that_goes_while_watching_begins_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::create_dir(&path).unwrap();
        service(&path, "a", 80);
        let mut scanner = scanner(&path);
        assert_eq!(scanner.rescan(Instant::now(), SystemTime::now(), Trigger::Start).events.len(), 1);
        let walked = scanner.walk(Heartbeat::paused())();
        fs::remove_dir_all(&path).unwrap();
        scanner.watch = Some(Watch::new(Arc::default()));
        let batch = scanner.compare(walked, Instant::now(), SystemTime::now(), Trigger::Walk);
        assert!(matches!(&*batch.events, [SourceEvent::Failed { .. }]), "{:?}", batch.events);
        assert_eq!(scanner.state().objects().len(), 1, "it keeps what it had");
    }

    #[test]
    fn folder_that_goes_while_a_walk_begins_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::create_dir(&path).unwrap();
        service(&path, "a", 80);
        let mut scanner = scanner(&path);
        scanner.rescan(Instant::now(), SystemTime::now(), Trigger::Start);
        fs::remove_dir_all(&path).unwrap();
        let mut walked = Walked::default();
        walk(&path, &mut walked.found, &Heartbeat::paused());
        let batch = scanner.compare(walked, Instant::now(), SystemTime::now(), Trigger::Event);
        assert!(matches!(&*batch.events, [SourceEvent::Failed { .. }]), "{:?}", batch.events);
        assert!(batch.problems.is_none(), "{:?}", batch.problems);
        assert_eq!(scanner.state().objects().len(), 1);
    }

    /// Without events, as on a network file system: walks find what changed.
    #[test]
    fn a_file_that_changed_without_an_event_counts_once_it_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        service(path, "a", 80);
        let mut scanner = scanner(path);
        let start = Instant::now();
        assert_eq!(scanner.rescan(start, SystemTime::now(), Trigger::Start).events.len(), 1);
        let clock = SystemTime::now() + Duration::from_secs(5);
        let mut walk = |after| {
            let walked = Some(scanner.walk(Heartbeat::paused())());
            let now = start + scanner.timing.confirm.mul_f64(after);
            scanner.poll_changes(Changes { walked, ..Changes::default() }, now, clock).events.len()
        };
        fs::write(path.join("a.yaml"), "").unwrap();
        assert_eq!((walk(0.0), walk(0.9)), (0, 0), "emptied, and perhaps about to be written");
        fs::write(path.join("a.yaml"), "apiVersion: v1\n").unwrap();
        assert_eq!((walk(1.1), walk(2.0)), (0, 0), "written to meanwhile");
        service(path, "a", 8_080);
        service(path, "b", 80);
        assert_eq!((walk(2.2), walk(3.1)), (0, 0));
        assert_eq!(walk(3.3), 2, "complete, and a new file too");
        fs::write(path.join("a.yaml"), "").unwrap();
        assert_eq!((walk(4.0), walk(5.1)), (0, 1), "emptied for good");
    }

    #[test]
    fn when_events_are_lost_an_open_file_counts_once_it_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        service(path, "a", 80);
        let mut scanner = scanner(path);
        let start = Instant::now();
        scanner.rescan(start, SystemTime::now(), Trigger::Start);
        let clock = SystemTime::now() + Duration::from_secs(5);
        let mut poll = |after: f64, changes: Changes| {
            scanner.poll_changes(changes, start + scanner.timing.confirm.mul_f64(after), clock).events.len()
        };
        fs::write(path.join("a.yaml"), "").unwrap();
        let writing = [(path.join("a.yaml"), WriteState::Writing)];
        assert_eq!(poll(0.0, Changes { paths: writing.into(), ..Changes::default() }), 0);
        service(path, "a", 8_080);
        assert_eq!(poll(5.0, Changes::default()), 0, "it is not closed, as far as is known");
        assert_eq!(poll(6.0, Changes { everything: true, ..Changes::default() }), 0);
        assert_eq!((poll(6.9, Changes::default()), poll(7.0, Changes::default())), (0, 1));
    }
}
