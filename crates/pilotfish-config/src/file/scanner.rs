//! Scanning changed files: which are read when, and when a change counts as complete.

use super::change_queue::{ChangeQueue, Changes, WriteState};
use super::parallel;
use super::path::FilePath;
use super::state::{FileChange, FileContent, FileRole, FileState};
use super::walk::{Found, Signature, is_config_file, is_hidden, read_file, walk};
use super::watch::Watch;
use crate::problem::ObjectCheck;
use crate::source::{SourceBatch, SourceEvent, SourceProblems};
use crate::{Limits, ReadFile};
use pilotfish_source::{GuardSettings, HeldLosses, LossGuard, LossVerdict, ReadExtent};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Walks in a row, while there are folders that were not watched before.
const MOST_WALKS: usize = 16;

/// A path that was named.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// As it was named, for messages.
    named: PathBuf,
    /// Without regard to the working directory.
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
        Ok(Self { named: named.to_owned(), path, role, is_folder: meta.is_dir() })
    }

    /// What a file at or below the root is called in messages.
    fn name_of(&self, path: &Path) -> Arc<str> {
        let name = match path.strip_prefix(&self.path) {
            Ok(rest) if !rest.as_os_str().is_empty() => self.named.join(rest),
            _ => self.named.clone(),
        };
        name.display().to_string().into()
    }

    /// Why the root as a whole cannot be read now. Its files do not count as deleted then, and their objects stay. A
    /// file that was named counts as deleted when its folder is there without it.
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

/// The root that a file belongs to. A file that was named counts as what it was named for, also inside of a folder.
fn root_of<'a>(roots: &'a [Root], path: &Path) -> Option<&'a Root> {
    roots.iter().filter(|root| root.holds(path)).min_by_key(|root| (root.is_folder, root.role))
}

/// A file to read later.
#[derive(Clone, Copy, Debug)]
struct Pending {
    due: Instant,
    /// Since when the file is away.
    absent_since: Option<Instant>,
}

/// What a walk through all roots found, at some time.
#[derive(Debug, Default)]
pub(super) struct Walked {
    found: Found,
    failure: Option<String>,
}

impl Walked {
    fn through(roots: &[Root]) -> Self {
        let mut found = Found::default();
        let mut failures = Vec::new();
        for root in roots {
            match root.unreadable() {
                Some(failure) => failures.push(failure),
                None if root.is_folder => walk(&root.path, &mut found),
                None => fs::metadata(&root.path).iter().for_each(|meta| found.file(&root.path, meta, true)),
            }
        }
        Self { found, failure: (!failures.is_empty()).then(|| failures.join("; ")) }
    }
}

/// Knows the files, what was read of them, and which to read when.
pub(super) struct Scanner {
    roots: Arc<[Root]>,
    limits: Limits,
    settle: Duration,
    state: FileState,
    /// The files that were read, as they were then; `None` when they must be read again: the file could not be read, or was
    /// touched so recently that a further change might not show.
    known: BTreeMap<FilePath, Option<Signature>>,
    pending: BTreeMap<FilePath, Pending>,
    folders: BTreeSet<PathBuf>,
    link_folders: BTreeSet<PathBuf>,
    watch: Option<Watch>,
    failure: Option<Arc<str>>,
    problems: Arc<SourceProblems>,
    guard: LossGuard,
    /// Where the guard shows what it holds back.
    losses: HeldLosses,
    /// Files that are away and whose objects the guard keeps in force.
    held: BTreeSet<FilePath>,
}

impl Scanner {
    pub(super) fn new(roots: Vec<Root>, limits: Limits, checks: Vec<ObjectCheck>, settle: Duration) -> Self {
        Self {
            roots: roots.into(),
            state: FileState::new(limits.clone()).with_checks(checks),
            limits,
            settle,
            known: BTreeMap::new(),
            pending: BTreeMap::new(),
            folders: BTreeSet::new(),
            link_folders: BTreeSet::new(),
            watch: None,
            failure: None,
            problems: Arc::default(),
            guard: LossGuard::new(GuardSettings::default()),
            losses: HeldLosses::default(),
            held: BTreeSet::new(),
        }
    }

    /// With a guard of these settings, which shows in `losses` what it holds back.
    pub(super) fn with_guard(self, settings: GuardSettings, losses: HeldLosses) -> Self {
        Self { guard: LossGuard::new(settings), losses, ..self }
    }

    /// True while the guard keeps objects of files that are away.
    pub(super) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// An operator accepts the loss: what is held is read again now, and believed.
    pub(super) fn accept(&mut self, now: Instant) {
        self.guard.accept(now);
        self.read_held(now);
    }

    fn read_held(&mut self, now: Instant) {
        for path in &self.held {
            if let Some(pending) = self.pending.get_mut(path) {
                pending.due = pending.due.min(now);
            }
        }
    }

    /// Watches the folders from now on, and reads what has changed since the last scan.
    pub(super) fn watch(&mut self, queue: Arc<ChangeQueue>, now: Instant, clock: SystemTime) -> SourceBatch {
        self.watch = Some(Watch::new(queue));
        let (folders, link_folders) = (self.folders.clone(), self.link_folders.clone());
        self.watch_folders([&folders, &link_folders]);
        self.rescan(now, clock, false)
    }

    pub(super) fn state(&self) -> &FileState {
        &self.state
    }

    /// When the next file is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.due).min()
    }

    /// The time until the next full scan: shorter when not everything can be watched.
    pub(super) fn rescan_interval(&self, usual: Duration) -> Duration {
        let complete = self.watch.as_ref().is_some_and(Watch::is_complete);
        if complete { usual } else { usual.min(Duration::from_secs(1)) }
    }

    /// Reads what changed and what is due.
    pub(super) fn poll_changes(&mut self, changes: Changes, now: Instant, clock: SystemTime) -> SourceBatch {
        let mut everything = changes.everything;
        for (path, state) in changes.paths {
            match self.affected(&path) {
                Affected::Nothing => {}
                Affected::Everything => everything = true,
                Affected::File => {
                    let due = if state == WriteState::Writing { now + self.settle } else { now };
                    let path = FilePath::from(&*path);
                    let absent_since = self.pending.get(&path).and_then(|pending| pending.absent_since);
                    self.pending.insert(path, Pending { due, absent_since });
                }
            }
        }
        match changes.walked {
            _ if everything => self.rescan(now, clock, false),
            Some(walked) => self.compare(walked, now, clock, false),
            None => self.read_due(now, clock, false),
        }
    }

    /// Walks through all roots; files that changed are read. At the `start` there is nothing to wait for.
    pub(super) fn rescan(&mut self, now: Instant, clock: SystemTime, start: bool) -> SourceBatch {
        self.compare(Walked::through(&self.roots), now, clock, start)
    }

    /// A walk that needs nothing else of the scanner, for another thread. What it finds may be older than what was read meanwhile.
    pub(super) fn walk(&self) -> impl FnOnce() -> Walked + Send + 'static {
        let roots = Arc::clone(&self.roots);
        move || Walked::through(&roots)
    }

    /// Reads what differs from what a walk found. Files are looked at once more then, so that an old walk makes nothing old.
    fn compare(&mut self, walked: Walked, now: Instant, clock: SystemTime, start: bool) -> SourceBatch {
        let Walked { mut found, mut failure } = walked;
        // What came into a folder before it was watched is found by walking once more. A folder that grows faster than
        // that is found complete at the latest by the next rescan.
        for _ in 0..MOST_WALKS {
            if !self.watch_folders([&found.folders, &found.link_folders]) {
                break;
            }
            Walked { found, failure } = Walked::through(&self.roots);
        }
        for path in self.differing(&found, failure.is_some()) {
            let is_back = found.files.contains_key(&path) && self.held.contains(&path);
            let pending = self.pending.entry(path).or_insert(Pending { due: now, absent_since: None });
            if is_back {
                pending.due = now;
            }
        }
        let unreadable: Vec<_> = found.unreadable.into_iter().collect();
        (self.folders, self.link_folders) = (found.folders, found.link_folders);
        let mut batch = self.read_due(now, clock, start);
        self.report_unreadable(unreadable, &mut batch);
        self.report_failure(failure, clock, &mut batch);
        batch
    }

    /// Watches these folders and those that hold the roots, and no others; true when one was added.
    fn watch_folders(&mut self, folders: [&BTreeSet<PathBuf>; 2]) -> bool {
        let parents = self.roots.iter().filter_map(|root| root.path.parent());
        let folders = folders.into_iter().flatten().map(PathBuf::as_path).chain(parents).collect();
        self.watch.as_mut().is_some_and(|watch| watch.set_folders(&folders))
    }

    /// Files that are not, or no longer, as they were read.
    fn differing(&self, found: &Found, failure: bool) -> Vec<FilePath> {
        // Mostly none are, and comparing paths in order is quicker than looking for each.
        let mut pairs = found.files.iter().zip(&self.known);
        let is_same = found.files.len() == self.known.len()
            && pairs.all(|((path, signature), (known, read))| path == known && Some(*signature) == *read);
        if is_same {
            return Vec::new();
        }
        let is_gone =
            |path: &&FilePath| !found.files.contains_key(*path) && !self.is_hidden_by(path, found, failure);
        let gone = self.known.keys().filter(is_gone);
        let has_changed =
            |(path, signature): &(&FilePath, &Signature)| self.known.get(*path) != Some(&Some(**signature));
        let changed = found.files.iter().filter(has_changed).map(|(path, _)| path);
        changed.chain(gone).cloned().collect()
    }

    /// Whether a file that was not found may still be there, because its root or folder could not be read.
    fn is_hidden_by(&self, path: &Path, found: &Found, failure: bool) -> bool {
        let lost_root =
            failure && self.roots.iter().any(|root| root.holds(path) && root.unreadable().is_some());
        lost_root || found.unreadable.keys().any(|unreadable| path.starts_with(unreadable))
    }

    /// Reads every file that is due and applies what is complete.
    fn read_due(&mut self, now: Instant, clock: SystemTime, start: bool) -> SourceBatch {
        let due: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.due <= now)
            .map(|(path, _)| path.clone())
            .collect();
        // Reading takes nearly all of the time, and needs nothing but the file.
        let found = parallel::for_each(&due, self.reading());
        let mut changes = Vec::new();
        for (path, found) in due.into_iter().zip(found) {
            let (Some(pending), Some(found)) = (self.pending.remove(&path), found) else { continue };
            self.held.remove(&path);
            match self.classify(&path, pending, found, (now, clock), start) {
                Outcome::Unchanged => {}
                Outcome::Retry(pending) => drop(self.pending.insert(path, pending)),
                Outcome::Changed(change) => changes.push(change),
            }
        }
        let is_gone = |change: &FileChange| {
            change.role == FileRole::Objects && matches!(change.content, FileContent::Absent)
        };
        let (absent, present) = changes.into_iter().partition(is_gone);
        let mut events = self.state.apply(present);
        events.extend(self.take_away(absent, now));
        self.losses.set("files", "objects", self.guard.held());
        self.batch(events)
    }

    /// Takes files away, unless most objects would go with them: a folder that is moved or unmounted looks like one that was
    /// emptied. Those are read again after the guard's wait.
    fn take_away(&mut self, absent: Vec<FileChange>, now: Instant) -> Vec<SourceEvent> {
        if absent.is_empty() && self.held.is_empty() {
            self.guard.release();
            return Vec::new();
        }
        if absent.is_empty() {
            return Vec::new();
        }
        let away: BTreeSet<FilePath> =
            absent.iter().map(|change| change.path.clone()).chain(self.held.iter().cloned()).collect();
        let lost = self.state.lost_without(&away);
        if self.is_lone(&away) {
            self.guard.named(lost);
            self.guard.release();
            return self.state.apply(absent);
        }
        let before = self.state.objects().len();
        match self.guard.judge(before, before.saturating_sub(lost), now, ReadExtent::Full) {
            LossVerdict::Believe => {
                // Those that are still held are read again, and are no mass loss any more.
                self.read_held(now);
                self.state.apply(absent)
            }
            LossVerdict::Hold(held) => {
                for change in absent {
                    self.known.insert(change.path.clone(), None);
                    let pending = Pending { due: held.until, absent_since: Some(now) };
                    self.pending.insert(change.path.clone(), pending);
                    self.held.insert(change.path);
                }
                Vec::new()
            }
        }
    }

    /// True for one file alone that is gone out of a folder that is there: somebody removed it.
    fn is_lone(&self, away: &BTreeSet<FilePath>) -> bool {
        let others = self.pending.values().any(|pending| pending.absent_since.is_some());
        let mut folders = away.iter().map(|path| path.parent());
        !others && away.len() == 1 && folders.all(|folder| folder.is_some_and(Path::is_dir))
    }

    /// How one file is read; gives `None` for one that belongs to no root. It may be called from any thread.
    fn reading(&self) -> impl Fn(&FilePath) -> Option<FoundFile> + Sync + use<'_> {
        let Self { roots, limits, state, known, .. } = self;
        move |path| {
            let root = root_of(roots, path)?;
            let (name, role) = (root.name_of(path), root.role);
            let content = match read_file(path, limits.file_bytes) {
                (FileContent::Bytes(_), signature)
                    if signature.is_some() && known.get(path) == Some(&signature) =>
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

    /// Decides what follows from what was found at the path of a file that was due.
    fn classify(
        &mut self,
        path: &FilePath,
        pending: Pending,
        found: FoundFile,
        (now, clock): (Instant, SystemTime),
        start: bool,
    ) -> Outcome {
        let FoundFile { name, role, content } = found;
        let change = |content| Outcome::Changed(FileChange { path: path.clone(), name, role, content });
        match content {
            FoundContent::Unchanged => Outcome::Unchanged,
            // A folder that could not be read before, and now can.
            FoundContent::Folder if !self.known.contains_key(path) => Outcome::Unchanged,
            FoundContent::Folder => {
                self.known.remove(path);
                change(FileContent::Absent)
            }
            FoundContent::Absent if !self.known.contains_key(path) => Outcome::Unchanged,
            FoundContent::Absent => {
                // Editors take a file away before they put the new one in its place.
                let since = pending.absent_since.unwrap_or(now);
                if now.saturating_duration_since(since) < self.settle {
                    return Outcome::Retry(Pending { due: since + self.settle, absent_since: Some(since) });
                }
                self.known.remove(path);
                change(FileContent::Absent)
            }
            FoundContent::Other(other, signature) => {
                let first =
                    self.known.insert(path.clone(), signature) != Some(signature) || signature.is_none();
                if first { change(other) } else { Outcome::Unchanged }
            }
            FoundContent::Read(read, signature) => {
                // A file that was touched just now and makes no sense is likely to be written to still.
                let senseless = !read.rejected.is_empty() || read.objects.is_empty();
                let age = signature.and_then(|signature| signature.age(clock)).unwrap_or(self.settle);
                if senseless && !start && age < self.settle {
                    return Outcome::Retry(Pending { due: now + (self.settle - age), absent_since: None });
                }
                self.known.insert(path.clone(), signature.filter(|signature| !signature.is_fresh(clock)));
                change(FileContent::Read(read))
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
            // Looked at again when it becomes readable, and taken away when it is gone.
            self.known.insert(path.clone(), None);
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
    /// It is as it was when it was read last.
    Unchanged,
    Read(ReadFile, Option<Signature>),
    /// It cannot be read.
    Other(FileContent, Option<Signature>),
}

/// What follows from a file that was due.
enum Outcome {
    Unchanged,
    /// It may not be complete yet: read it again.
    Retry(Pending),
    Changed(FileChange),
}

/// What has to be read after a change at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Affected {
    Nothing,
    File,
    Everything,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner(folder: &Path) -> Scanner {
        let roots = vec![Root::open(folder, FileRole::Objects).unwrap()];
        Scanner::new(roots, Limits::default(), Vec::new(), Duration::ZERO)
    }

    fn service(folder: &Path, name: &str, port: u16) {
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
        assert_eq!(scanner.rescan(now, clock, true).events.len(), 3);
        let old = scanner.walk()();
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
        let newest = scanner.walk()();
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
        assert_eq!(scanner.rescan(Instant::now(), SystemTime::now(), true).events.len(), 1);
        service(path, "a", 8_080);
        let more = path.join("more");
        fs::create_dir(&more).unwrap();
        service(&more, "b", 80);
        let batch = scanner.watch(Arc::default(), Instant::now(), SystemTime::now());
        assert_eq!((batch.events.len(), scanner.state().objects().len()), (2, 2), "{:?}", batch.events);
    }

    #[test]
    fn a_folder_that_goes_while_watching_begins_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::create_dir(&path).unwrap();
        service(&path, "a", 80);
        let mut scanner = scanner(&path);
        assert_eq!(scanner.rescan(Instant::now(), SystemTime::now(), true).events.len(), 1);
        let walked = scanner.walk()();
        fs::remove_dir_all(&path).unwrap();
        scanner.watch = Some(Watch::new(Arc::default()));
        let batch = scanner.compare(walked, Instant::now(), SystemTime::now(), false);
        assert!(matches!(&*batch.events, [SourceEvent::Failed { .. }]), "{:?}", batch.events);
        assert_eq!(scanner.state().objects().len(), 1, "it keeps what it had");
    }

    /// A folder `path/all` with five services, and `path/other` with two, read.
    fn seven(path: &Path) -> (Scanner, Instant) {
        for (folder, names) in [("all", &["a", "b", "c", "d", "e"][..]), ("other", &["f", "g"])] {
            fs::create_dir(path.join(folder)).unwrap();
            names.iter().for_each(|name| service(&path.join(folder), name, 80));
        }
        let mut scanner = scanner(path);
        let now = Instant::now();
        assert_eq!(scanner.rescan(now, SystemTime::now(), true).events.len(), 7);
        (scanner, now)
    }

    fn events(scanner: &mut Scanner, now: Instant, everything: bool) -> usize {
        let changes = Changes { everything, ..Changes::default() };
        scanner.poll_changes(changes, now, SystemTime::now()).events.len()
    }

    const WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn folder_that_is_moved_away_keeps_its_objects_until_a_second_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(path.join("all"), elsewhere.path().join("all")).unwrap();
        assert_eq!(events(&mut scanner, now, true), 0);
        assert_eq!(scanner.losses.held().map(|held| (held.before, held.after)), Some((7, 2)));
        assert_eq!(scanner.next_due(), Some(now + WAIT));
        assert_eq!(events(&mut scanner, now + WAIT / 2, true), 0, "a walk meanwhile");
        assert_eq!(events(&mut scanner, now + WAIT, false), 5, "the second read says so again");
        assert_eq!((scanner.losses.held(), scanner.is_holding()), (None, false));
    }

    #[test]
    fn folder_that_comes_back_is_read_at_once_and_lost_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(path.join("all"), elsewhere.path().join("all")).unwrap();
        assert_eq!(events(&mut scanner, now, true), 0);
        fs::rename(elsewhere.path().join("all"), path.join("all")).unwrap();
        service(&path.join("all"), "a", 8_080);
        assert_eq!(events(&mut scanner, now + WAIT / 5, true), 1, "the one that differs");
        assert_eq!((scanner.losses.held(), scanner.state().objects().len()), (None, 7));
    }

    #[test]
    fn accepted_loss_of_files_takes_effect_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (mut scanner, now) = seven(folder.path());
        fs::remove_dir_all(folder.path().join("all")).unwrap();
        assert_eq!(events(&mut scanner, now, true), 0);
        scanner.accept(now + WAIT / 10);
        assert_eq!(events(&mut scanner, now + WAIT / 10, false), 5);
    }

    #[test]
    fn files_that_are_removed_by_hand_take_effect_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        // Half of all or less.
        ["a", "b", "c"]
            .iter()
            .for_each(|name| fs::remove_file(path.join(format!("all/{name}.yaml"))).unwrap());
        assert_eq!(events(&mut scanner, now, true), 3);
        // Fewer than three objects.
        ["d", "e"].iter().for_each(|name| fs::remove_file(path.join(format!("all/{name}.yaml"))).unwrap());
        assert_eq!(events(&mut scanner, now + 2 * WAIT, true), 2);
        // One file, whatever is in it.
        let text: String = (0..20)
            .map(|n| format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{n}}}\nspec: {{ports: [{{port: 80}}]}}\n"))
            .collect();
        fs::write(path.join("many.yaml"), text).unwrap();
        assert_eq!(events(&mut scanner, now + 4 * WAIT, true), 20);
        fs::remove_file(path.join("many.yaml")).unwrap();
        assert_eq!(events(&mut scanner, now + 6 * WAIT, true), 20);
        assert_eq!(scanner.losses.holds(), 0);
    }

    #[test]
    fn objects_that_move_to_other_files_are_no_loss() {
        let folder = tempfile::tempdir().unwrap();
        let (mut scanner, now) = seven(folder.path());
        fs::rename(folder.path().join("all"), folder.path().join("renamed")).unwrap();
        events(&mut scanner, now, true);
        assert_eq!((scanner.losses.holds(), scanner.state().objects().len()), (0, 7));
        assert_eq!(scanner.state().files(), 7);
    }
}
