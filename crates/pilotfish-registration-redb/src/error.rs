//! Why the store could not be opened.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why the store could not be opened. Each says what can be done.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory or the file cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it open.
    #[error(
        "{} is open in another process: one Pilotfish writes to a data directory; give this one another --data-dir, \
         or let several share an etcd",
        path.display()
    )]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// The file is damaged or was not written by us.
    #[error(
        "{} is damaged: {why}. {}. To go on, bring back a backup, or remove the file and start with an empty store: clients \
         whose renewals find nothing register again",
        path.display(),
        kept(copy)
    )]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// Where a copy of it is kept, or why there is none.
        copy: Result<PathBuf, String>,
    },
    /// The file is older than what was acknowledged.
    #[error(
        "{} is at revision {found}, and revision {acknowledged} was acknowledged (registrations.revision): its newest changes are \
         damaged, or an older file took its place. {}. To go on, bring back the newer file. To go on without the changes since, remove \
         registrations.revision; clients whose renewals find nothing register again",
        path.display(),
        kept(copy)
    )]
    RolledBack {
        /// The file of records.
        path: PathBuf,
        /// The revision that it has.
        found: u64,
        /// The one that was acknowledged.
        acknowledged: u64,
        /// Where a copy of it is kept, or why there is none.
        copy: Result<PathBuf, String>,
    },
    /// The file has a format that this version does not know.
    #[error(
        "{} has format {found} and this version knows format {known}: start the version that wrote it, or remove the file and \
         start with an empty store",
        path.display()
    )]
    Format {
        /// Which file.
        path: PathBuf,
        /// The format that it has.
        found: u64,
        /// The one that is known.
        known: u64,
    },
}

/// A damaged file, of which a copy is kept.
pub(crate) fn corrupt(path: &Path, why: String) -> OpenError {
    OpenError::Corrupt { path: path.to_owned(), why, copy: keep_copy(path) }
}

/// Keeps a copy of a file, once: who restarts again and again fills no disk.
pub(crate) fn keep_copy(path: &Path) -> Result<PathBuf, String> {
    let copy = copy_of(path);
    match fs::exists(&copy) {
        Ok(true) => Ok(copy),
        _ => fs::copy(path, &copy).map(|_| copy).map_err(|error| error.to_string()),
    }
}

/// The name of the copy: `registrations.redb.corrupt`.
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
