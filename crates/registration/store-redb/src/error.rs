//! Errors of opening the store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Error of opening the store. Each message says what can be done.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory or the file cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file is open in another process.
    #[error(
        "{} is open in another process: one Pilotfish writes to a data directory; give this one another \
         --data-dir, or let several share an etcd",
        path.display()
    )]
    InUse { path: PathBuf },
    /// The file is damaged or not a Pilotfish store.
    #[error(
        "{} is damaged: {why}. {}. To go on, bring back a backup, or remove the file and start with an empty \
         store: clients whose renewals find nothing register again",
        path.display(),
        kept(copy)
    )]
    Corrupt {
        path: PathBuf,
        /// Description of the damage.
        why: String,
        /// Path of the kept copy, or the reason that there is none.
        copy: Result<PathBuf, String>,
    },
    /// The file is older than the acknowledged revision.
    #[error(
        "{} is at revision {found}, and revision {acknowledged} was acknowledged (registrations.revision): \
         its newest changes are damaged, or an older file took its place. {}. To go on, bring back the newer \
         file. To go on without the changes since, remove registrations.revision; clients whose renewals \
         find nothing register again",
        path.display(),
        kept(copy)
    )]
    RolledBack {
        /// The file of records.
        path: PathBuf,
        /// Revision of the file.
        found: u64,
        /// Last acknowledged revision, from `registrations.revision`.
        acknowledged: u64,
        /// Path of the kept copy, or the reason that there is none.
        copy: Result<PathBuf, String>,
    },
    /// The file has an unknown format.
    #[error(
        "{} has format {found} and this version knows format {known}: start the version that wrote it, or \
         remove the file and start with an empty store",
        path.display()
    )]
    Format {
        path: PathBuf,
        /// Format of the file.
        found: u64,
        /// Format that this version supports.
        known: u64,
    },
}

/// Returns the error of a damaged file, and keeps a copy of it.
pub(crate) fn corrupt(path: &Path, why: String) -> OpenError {
    OpenError::Corrupt { path: path.to_owned(), why, copy: keep_copy(path) }
}

/// Keeps a copy of a file, once: repeated restarts must not fill the disk.
pub(crate) fn keep_copy(path: &Path) -> Result<PathBuf, String> {
    let copy = copy_of(path);
    match fs::exists(&copy) {
        Ok(true) => Ok(copy),
        _ => fs::copy(path, &copy).map(|_| copy).map_err(|error| error.to_string()),
    }
}

/// Returns the path of the copy: `registrations.redb.corrupt`.
pub(crate) fn copy_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".corrupt");
    name.into()
}

fn kept(copy: &Result<PathBuf, String>) -> String {
    match copy {
        Ok(path) => format!("A copy is kept in {}", path.display()),
        Err(why) => format!("No copy could be made ({why})"),
    }
}
