//! State of the files, and the events that follow from a change of one: the pure part of the file source.

use crate::objects::Objects;
use crate::path::FilePath;
use pilotfish_config::{
    Effective, FieldPath, Limits, MeshFile, ObjectCheck, Problem, ProblemReport, ReadFile, Rejected,
    Severity, SourceEvent, SourceProblems, read_checked, read_mesh_file,
};
use pilotfish_model::{Object, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Role of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileRole {
    /// Mesh config or mesh networks.
    Mesh(MeshFile),
    /// Objects, several documents, lists.
    Objects,
}

/// Result of reading a path.
#[derive(Debug)]
pub enum FileContent {
    /// The bytes of the file.
    Bytes(Vec<u8>),
    /// The file, already read.
    Read(ReadFile),
    /// There is no such file (any more).
    Absent,
    /// The file exists and cannot be read. Holds the reason, in one line.
    Unreadable(String),
}

/// A file that is new, changed or gone.
#[derive(Debug)]
pub struct FileChange {
    /// Path of the file. Of two files with the same object, the one with the smaller path is in force.
    pub path: FilePath,
    /// Name of the file in messages.
    pub name: Arc<str>,
    pub role: FileRole,
    /// Result of reading it.
    pub content: FileContent,
}

/// The objects of all files, with last good versions and problems.
///
/// Where several files (or places in one file) have an object of the same key, the first by path, then by
/// line, is in force.
#[derive(Debug, Default)]
pub struct FileState {
    limits: Limits,
    checks: Vec<ObjectCheck>,
    files: BTreeMap<FilePath, FileEntry>,
    /// The files that have an object of the key, sorted: nearly always one.
    holders: BTreeMap<ObjectKey, Vec<FilePath>>,
    /// The objects that several files have.
    contested: BTreeSet<ObjectKey>,
    /// The files with reports.
    with_reports: BTreeSet<FilePath>,
    ignored: BTreeMap<String, usize>,
    /// The objects in force, as last sent in events.
    in_force: BTreeMap<ObjectKey, Object>,
}

/// A changed file before it is in force.
#[derive(Debug)]
pub(super) struct PreparedFile {
    pub(super) path: FilePath,
    /// `None` if there is no such file.
    entry: Option<FileEntry>,
}

impl PreparedFile {
    pub(super) fn is_absent(&self) -> bool {
        self.entry.is_none()
    }
}

#[derive(Debug, Default)]
struct FileEntry {
    /// The file's objects: as written, in their last good version, or in their closed form.
    objects: Objects,
    /// Keys of objects that were never good: `objects` has their closed form.
    closed: BTreeSet<ObjectKey>,
    reports: Vec<ProblemReport>,
    ignored: BTreeMap<String, usize>,
}

impl FileState {
    /// A state without files.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds checks of each object.
    #[must_use]
    pub fn with_checks(self, checks: Vec<ObjectCheck>) -> Self {
        Self { checks, ..self }
    }

    /// Applies changed files, and returns the changed objects, by key.
    pub fn apply(&mut self, changes: Vec<FileChange>) -> Vec<SourceEvent> {
        let mut touched = BTreeSet::new();
        for change in changes {
            let file = self.prepare(change);
            self.put(file, &mut touched);
        }
        self.update_all(touched)
    }

    /// Reads a changed file, and completes it with last good versions.
    pub(super) fn prepare(&self, change: FileChange) -> PreparedFile {
        let path = change.path.clone();
        let none = FileEntry::default();
        let entry = self.entry(change, self.files.get(&path).unwrap_or(&none));
        PreparedFile { path, entry }
    }

    /// Puts prepared files, each of another path, in force, and returns the changed objects, by key.
    pub(super) fn commit(&mut self, files: impl IntoIterator<Item = PreparedFile>) -> Vec<SourceEvent> {
        let mut touched = BTreeSet::new();
        files.into_iter().for_each(|file| self.put(file, &mut touched));
        self.update_all(touched)
    }

    fn put(&mut self, file: PreparedFile, touched: &mut BTreeSet<ObjectKey>) {
        let PreparedFile { path, entry: after } = file;
        let before = self.files.remove(&path).unwrap_or_default();
        for key in before.objects.keys() {
            if !after.as_ref().is_some_and(|after| after.objects.contains(key)) {
                self.release(key, &path);
            }
            touched.insert(key.clone());
        }
        self.with_reports.remove(&path);
        count(&mut self.ignored, &before.ignored, usize::saturating_sub);
        let Some(after) = after else { return };
        for key in after.objects.keys() {
            let holders = self.holders.entry(key.clone()).or_default();
            if let Err(place) = holders.binary_search(&path) {
                holders.reserve_exact(1);
                holders.insert(place, path.clone());
            }
            touched.insert(key.clone());
        }
        count(&mut self.ignored, &after.ignored, usize::saturating_add);
        if !after.reports.is_empty() {
            self.with_reports.insert(path.clone());
        }
        self.files.insert(path, after);
    }

    /// Reads the bytes of a file for its role.
    #[must_use]
    pub fn read(&self, name: &str, role: FileRole, bytes: &[u8]) -> ReadFile {
        match role {
            FileRole::Objects => read_checked(name, bytes, &self.limits, &self.checks),
            FileRole::Mesh(which) => read_mesh_file(which, name, bytes, &self.limits),
        }
    }

    /// Current problems of all files.
    #[must_use]
    pub fn problems(&self) -> SourceProblems {
        let with_reports = self.with_reports.iter().filter_map(|path| self.files.get(path));
        let mut reports: Vec<_> = with_reports.flat_map(|entry| entry.reports.iter().cloned()).collect();
        reports.extend(self.contested.iter().flat_map(|key| self.duplicates(key)));
        reports.sort_by(|a, b| (&a.file, a.document, a.line).cmp(&(&b.file, b.document, b.line)));
        SourceProblems { reports, ignored: self.ignored.clone() }
    }

    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The objects in force, by key.
    #[must_use]
    pub fn objects(&self) -> &BTreeMap<ObjectKey, Object> {
        &self.in_force
    }

    /// True if the object in force under the key is the closed form of an object that cannot be used.
    #[must_use]
    pub fn is_closed(&self, key: &ObjectKey) -> bool {
        let holder = self.holders.get(key).and_then(|holders| holders.first());
        holder.and_then(|path| self.files.get(path)).is_some_and(|entry| entry.closed.contains(key))
    }

    /// Objects that no file has any more once these files are in force. `held` names objects that other files
    /// lost and still keep in force.
    pub(super) fn lost<'a>(
        &'a self,
        files: impl Iterator<Item = &'a PreparedFile> + Clone,
        held: &'a BTreeMap<FilePath, BTreeSet<ObjectKey>>,
    ) -> BTreeSet<ObjectKey> {
        let mut holders: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
        let dropped = files.clone().flat_map(|file| self.dropped(file)).chain(held.values().flatten());
        for key in dropped {
            let left = holders.entry(key).or_insert_with(|| self.holders.get(key).map_or(0, Vec::len));
            *left = left.saturating_sub(1);
        }
        for file in files {
            let before = self.files.get(&file.path);
            let after = file.entry.iter().flat_map(|entry| entry.objects.keys());
            for key in after.filter(|key| !before.is_some_and(|before| before.objects.contains(key))) {
                holders.entry(key).and_modify(|left| *left += 1);
            }
        }
        holders.into_iter().filter(|(_, left)| *left == 0).map(|(key, _)| key.clone()).collect()
    }

    /// Objects of the file in force that the prepared one lacks.
    pub(super) fn dropped<'a>(&'a self, file: &'a PreparedFile) -> impl Iterator<Item = &'a ObjectKey> {
        let before = self.files.get(&file.path).into_iter().flat_map(|before| before.objects.keys());
        before.filter(|key| !file.entry.as_ref().is_some_and(|entry| entry.objects.contains(key)))
    }

    /// Lets a prepared file keep those of its objects that are among `lost`; returns their keys.
    pub(super) fn keep(&self, file: &mut PreparedFile, lost: &BTreeSet<ObjectKey>) -> BTreeSet<ObjectKey> {
        let kept: BTreeSet<ObjectKey> =
            self.dropped(file).filter(|key| lost.contains(*key)).cloned().collect();
        let Some(before) = self.files.get(&file.path).filter(|_| !kept.is_empty()) else { return kept };
        let entry = file.entry.get_or_insert_default();
        let mut objects = entry.objects.to_map();
        objects.extend(kept.iter().filter_map(|key| Some((key.clone(), before.objects.get(key)?.clone()))));
        entry.objects = objects.into();
        entry.closed.extend(before.closed.intersection(&kept).cloned());
        kept
    }

    fn entry(&self, change: FileChange, before: &FileEntry) -> Option<FileEntry> {
        let FileChange { name, role, content, .. } = change;
        let read = match (content, role) {
            (FileContent::Absent, FileRole::Objects) => return None,
            // The operator configured this file, so a missing one does not reset the mesh to defaults.
            (FileContent::Absent, FileRole::Mesh(_)) => {
                return Some(unreadable_entry(&name, role, "there is no such file", before));
            }
            (FileContent::Unreadable(reason), _) => {
                return Some(unreadable_entry(&name, role, &reason, before));
            }
            (FileContent::Bytes(bytes), role) => self.read(&name, role, &bytes),
            (FileContent::Read(read), _) => read,
        };
        let mut entry = read_entry(&name, read, before);
        limit_reports(&mut entry.reports, self.limits.problems, &name);
        Some(entry)
    }

    fn release(&mut self, key: &ObjectKey, path: &FilePath) {
        if let Some(holders) = self.holders.get_mut(key) {
            holders.retain(|holder| holder != path);
            if holders.is_empty() {
                self.holders.remove(key);
            }
        }
    }

    fn update_all(&mut self, keys: BTreeSet<ObjectKey>) -> Vec<SourceEvent> {
        keys.into_iter().filter_map(|key| self.update(key)).collect()
    }

    /// Puts the first holder's object in force, and returns the difference.
    fn update(&mut self, key: ObjectKey) -> Option<SourceEvent> {
        let holders = self.holders.get(&key);
        if holders.is_some_and(|holders| holders.len() > 1) {
            self.contested.insert(key.clone());
        } else {
            self.contested.remove(&key);
        }
        let first = holders.and_then(|holders| holders.first());
        let object = first.and_then(|path| self.object_of(path, &key)).cloned();
        let Some(object) = object else {
            return self.in_force.remove(&key).map(|_| SourceEvent::Delete(key));
        };
        let before = self.in_force.insert(key, object.clone());
        (before.as_ref() != Some(&object)).then_some(SourceEvent::Apply(object))
    }

    fn object_of(&self, path: &FilePath, key: &ObjectKey) -> Option<&Object> {
        self.files.get(path)?.objects.get(key)
    }

    /// Warnings for all files but the first that have the object.
    fn duplicates(&self, key: &ObjectKey) -> Vec<ProblemReport> {
        let Some(holders) = self.holders.get(key) else { return Vec::new() };
        let mut objects = holders.iter().filter_map(|path| self.object_of(path, key));
        let Some(winner) = objects.next() else { return Vec::new() };
        objects.map(|object| duplicate(key, object, winner)).collect()
    }
}

fn count(
    total: &mut BTreeMap<String, usize>,
    of_file: &BTreeMap<String, usize>,
    change: fn(usize, usize) -> usize,
) {
    for (kind, number) in of_file {
        let sum = total.entry(kind.clone()).or_default();
        *sum = change(*sum, *number);
        if *sum == 0 {
            total.remove(kind);
        }
    }
}

/// Returns the entry of a file that could not be read: its objects stay as they were.
fn unreadable_entry(file: &Arc<str>, role: FileRole, reason: &str, before: &FileEntry) -> FileEntry {
    let object = match role {
        FileRole::Objects => None,
        FileRole::Mesh(which) => Some(which.key()),
    };
    let problem = Problem::error(FieldPath::default(), format!("cannot be read: {reason}"));
    let effective = if before.objects.is_empty() { Effective::Dropped } else { Effective::LastGood };
    let report = ProblemReport { object, effective, ..ProblemReport::new(file, 0, &problem) };
    FileEntry {
        objects: before.objects.to_map().into(),
        closed: before.closed.clone(),
        reports: vec![report],
        ignored: before.ignored.clone(),
    }
}

/// Returns the entry of a file after it was read. Broken objects are replaced by their last good version, or
/// by their closed form if they have none and are of a kind that restricts access.
fn read_entry(file: &Arc<str>, read: ReadFile, before: &FileEntry) -> FileEntry {
    let mut objects: BTreeMap<ObjectKey, Object> = BTreeMap::new();
    let unserved = read.unserved.iter();
    let mut reports: Vec<ProblemReport> =
        unserved.map(|(document, problem)| ProblemReport::new(file, *document, problem)).collect();
    for item in read.objects {
        let key = item.object.key().clone();
        let revision: Option<Arc<str>> = item.object.meta.revision().map(Arc::from);
        reports.extend(item.warnings.iter().map(|problem| ProblemReport {
            object: Some(key.clone()),
            revision: revision.clone(),
            ..ProblemReport::new(file, item.document, problem)
        }));
        if let Some(first) = objects.get(&key) {
            reports.push(ProblemReport { document: item.document, ..duplicate(&key, &item.object, first) });
        } else {
            objects.insert(key, item.object);
        }
    }
    // A broken part without a known object may have been any object that is missing now.
    let uncertain = read.incomplete || read.rejected.iter().any(|rejected| rejected.key.is_none());
    let missing = |key: &ObjectKey| !objects.contains_key(key);
    let broken: BTreeMap<&ObjectKey, Option<&str>> = read
        .rejected
        .iter()
        .filter_map(|rejected| Some((rejected.key.as_ref()?, rejected.revision.as_deref())))
        .collect();
    let mut kept = before.objects.to_map();
    kept.retain(|key, object| {
        // An earlier version of another revision is no version of the present object.
        let is_version = |revision: &Option<&str>| object.meta.revision() == *revision;
        missing(key) && broken.get(key).map_or(uncertain, is_version)
    });
    let fresh = closed_objects(&read.rejected, |key| {
        missing(key) && (!kept.contains_key(key) || before.closed.contains(key))
    });
    kept.extend(fresh.iter().map(|(key, object)| (key.clone(), object.clone())));
    let stays_closed = |key: &&ObjectKey| fresh.contains_key(key) || before.closed.contains(key);
    let closed: BTreeSet<ObjectKey> = kept.keys().filter(stays_closed).cloned().collect();
    for rejected in &read.rejected {
        let effective = match &rejected.key {
            Some(key) => {
                let is_closed = closed.contains(key);
                Effective::of_refused(kept.contains_key(key) && !is_closed, is_closed)
            }
            None => Effective::of_refused(!kept.is_empty(), false),
        };
        reports.extend(rejected.problems.iter().map(|problem| ProblemReport {
            object: rejected.key.clone(),
            revision: rejected.revision.clone(),
            line: problem.line.unwrap_or(rejected.line),
            effective: if problem.is_error() { effective } else { Effective::Written },
            ..ProblemReport::new(file, rejected.document, problem)
        }));
    }
    reports.sort_by_key(|report| (report.document, report.line));
    objects.extend(kept);
    FileEntry { objects: objects.into(), closed, reports, ignored: read.ignored }
}

/// Closed forms of the refused objects without a last good version.
fn closed_objects(rejected: &[Rejected], is_new: impl Fn(&ObjectKey) -> bool) -> BTreeMap<ObjectKey, Object> {
    let closed = rejected.iter().filter_map(|rejected| rejected.closed.as_ref());
    closed
        .filter(|object| is_new(object.key()))
        .map(|object| (object.key().clone(), object.clone()))
        .collect()
}

fn duplicate(key: &ObjectKey, object: &Object, winner: &Object) -> ProblemReport {
    let (file, line) = place(&object.meta.origin);
    ProblemReport {
        severity: Severity::Warning,
        file: file.into(),
        document: 0,
        line,
        object: Some(key.clone()),
        revision: object.meta.revision().map(Arc::from),
        path: String::new(),
        message: format!("is also at {}, which counts; this one is not applied", winner.meta.origin),
        count: None,
        hint: None,
        effective: Effective::Dropped,
    }
}

/// Splits an origin such as `shop.yaml:12` into file and line; the line is 0 if it has none.
fn place(origin: &str) -> (&str, u32) {
    let split = origin.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
    split.unwrap_or((origin, 0))
}

fn limit_reports(reports: &mut Vec<ProblemReport>, most: usize, file: &Arc<str>) {
    let more = reports.len().saturating_sub(most);
    if more > 0 {
        // Errors are worth more than warnings; within each the order stays.
        reports.sort_by_key(|report| report.severity);
        reports.truncate(most);
        let problems = if more == 1 { "problem" } else { "problems" };
        let text = format!("{more} more {problems} in this file");
        let problem = Problem::warning(FieldPath::default(), text);
        reports.push(ProblemReport::new(file, 0, &problem));
    }
}
