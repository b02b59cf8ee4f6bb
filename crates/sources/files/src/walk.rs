//! Walking through folders, and reading files.

use crate::path::FilePath;
use crate::state::FileContent;
use pilotfish_runtime::{Heartbeat, RegularFile, RegularFileError, check_type};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Levels of folders below a PATH.
const DEPTH: usize = 32;

/// Metadata that reveal a changed file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    size: u64,
    modified: Option<SystemTime>,
    identity: (u64, u64),
    /// Time of the inode's last change: a file put in place by rename keeps its old modification time.
    changed: (i64, i64),
}

impl Signature {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self {
            size: meta.len(),
            modified: meta.modified().ok(),
            identity: identity(meta),
            changed: changed(meta),
        }
    }

    /// True if the file changed so recently that a further change might not alter its signature. File systems
    /// record times in ticks of some milliseconds, old ones in seconds.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let modified = self.modified.map(since).unwrap_or_default();
        let (seconds, nanos) = self.changed;
        let changed = Duration::new(
            u64::try_from(seconds).unwrap_or_default(),
            u32::try_from(nanos).unwrap_or_default(),
        );
        let whole_seconds = modified.subsec_nanos() == 0 && changed.subsec_nanos() == 0;
        let tick = if whole_seconds { Duration::from_secs(2) } else { Duration::from_millis(20) };
        since(now).saturating_sub(modified.max(changed)) < tick
    }

    /// Device and inode, which identify a file.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Time since the file was last written to; `None` if its modification time is in the future.
    pub(super) fn age(&self, now: SystemTime) -> Option<Duration> {
        self.modified.and_then(|modified| now.duration_since(modified).ok())
    }
}

/// Device and inode of the file or folder at a path; `None` if there is none.
pub(super) fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().as_ref().map(identity)
}

#[cfg(unix)]
fn identity(meta: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (meta.dev(), meta.ino())
}

#[cfg(unix)]
fn changed(meta: &Metadata) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt as _;
    (meta.ctime(), meta.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

#[cfg(not(unix))]
fn changed(_: &Metadata) -> (i64, i64) {
    (0, 0)
}

/// Result of walking through a folder.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The files to read.
    pub(super) files: BTreeMap<FilePath, Signature>,
    /// The folders that were walked through.
    pub(super) folders: BTreeSet<PathBuf>,
    /// Folders with targets of links to files.
    pub(super) link_folders: BTreeSet<PathBuf>,
    /// Links to files, with their targets.
    pub(super) links: BTreeMap<FilePath, PathBuf>,
    /// Folders and files that could not be read, and why.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
    /// Folders already walked through, by where they really are: links may lead in circles.
    seen: BTreeSet<PathBuf>,
}

/// True for a name with a leading dot. These belong to editors and volume mounts, and are skipped.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// True if the file name has the extension of YAML or JSON.
pub(super) fn is_config_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Walks through a folder. A link to a folder outside is not followed: anyone with write access could have
/// other parts of the machine read. Links to files, and links between folders inside (Kubernetes volumes),
/// are followed.
pub(super) fn walk(folder: &Path, found: &mut Found, alive: &Heartbeat) {
    match fs::canonicalize(folder) {
        Ok(root) => walk_level(&root, folder, found, alive, 0),
        Err(error) => found.unreadable(folder, &error),
    }
}

fn walk_level(root: &Path, folder: &Path, found: &mut Found, alive: &Heartbeat, depth: usize) {
    let real = match fs::canonicalize(folder) {
        Ok(real) => real,
        Err(error) => return found.unreadable(folder, &error),
    };
    if !real.starts_with(root) {
        let error =
            "a link to a folder outside of the one that is served: give that one as a path of its own";
        return found.unreadable(folder, &io::Error::other(error));
    }
    if depth > DEPTH || !found.seen.insert(real) {
        return;
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return found.unreadable(folder, &error),
    };
    found.folders.insert(folder.to_owned());
    for entry in entries {
        alive.beat(Instant::now());
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return found.unreadable(folder, &error),
        };
        if is_hidden(&entry.file_name()) {
            continue;
        }
        let path = entry.path();
        let is_folder = || entry.file_type().is_ok_and(|file_type| file_type.is_dir());
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => walk_level(root, &path, found, alive, depth + 1),
            Ok(meta) if meta.is_file() && is_config_file(&path) => {
                // The directory entry has the file type, which saves a `stat` of the link itself.
                let may_be_link = entry.file_type().map_or(true, |file_type| file_type.is_symlink());
                found.file(&path, &meta, may_be_link);
            }
            Ok(meta) if is_config_file(&path) => {
                if let Err(error) = check_type(meta.file_type()) {
                    found.unreadable(&path, &error.into());
                }
            }
            Ok(_) => {}
            // A dangling link, or a file that was removed meanwhile, counts as absent.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_config_file(&path) || is_folder() => found.unreadable(&path, &error),
            Err(_) => {}
        }
    }
}

impl Found {
    /// Records a file, and for a link the folder of its target.
    pub(super) fn file(&mut self, path: &Path, meta: &Metadata, may_be_link: bool) {
        self.files.insert(path.into(), Signature::of(meta));
        let is_link = may_be_link && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
        if let Some(real) = is_link.then(|| fs::canonicalize(path).ok()).flatten() {
            self.link_folders.extend(real.parent().map(Path::to_owned));
            self.links.insert(path.into(), real);
        }
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        self.unreadable.insert(path.to_owned(), error.to_string());
    }
}

/// Reads a file up to the limit.
pub(super) fn read_file(path: &Path, limit: u64) -> (FileContent, Option<Signature>) {
    let file = match RegularFile::open(path) {
        Ok(file) => file,
        Err(error) if error.is_absent() => return (FileContent::Absent, None),
        Err(error) => return (FileContent::Unreadable(error.to_string()), None),
    };
    let (size, signature) = (file.metadata().len(), Signature::of(file.metadata()));
    let content = match file.read(limit) {
        Ok(bytes) => FileContent::Bytes(bytes),
        Err(RegularFileError::TooLarge { limit }) => FileContent::Unreadable(format!(
            "it has {} MB, more than the limit of {} MB",
            size.max(limit) >> 20,
            limit >> 20
        )),
        Err(error) => FileContent::Unreadable(error.to_string()),
    };
    (content, Some(signature))
}
