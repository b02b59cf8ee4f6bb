//! The data directory: opens the file of records and the two files beside it.

use crate::error::{copy_of, keep_copy};
use crate::file::{Contents, Opened, RecordFile};
use crate::fixed::sync_folder;
use crate::removals::RemovalLog;
use crate::revision::{REVISION_FILE, RevisionFile};
use crate::{FILE_NAME, OpenError};
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Added to the revision if the acknowledged one is unknown, so that no revision is used twice.
const REVISION_GAP: u64 = 1_000_000;

/// An open data directory, locked against other processes.
pub(crate) struct Folder {
    pub(crate) file: RecordFile,
    pub(crate) contents: Contents,
    pub(crate) revision: RevisionFile,
    pub(crate) removals: RemovalLog,
}

impl Folder {
    /// Opens a directory, which is created if missing, and reads its files.
    pub(crate) fn open(directory: &Path) -> Result<Self, OpenError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at(directory))?;
        let path = directory.join(FILE_NAME);
        // The name of a new directory must be as durable as the files in it.
        sync_folder(&path).map_err(at(directory))?;
        let marked = RevisionFile::open(directory)?;
        let is_new = !fs::exists(&path).map_err(at(&path))?;
        if is_new {
            // Removals of a previous store do not apply to a new one; its revisions continue.
            RemovalLog::create(directory).map_err(at(directory))?;
            RecordFile::create(&path, marked.as_ref().map_or(0, |(_, revision)| *revision))?;
        }
        let acknowledged = marked.as_ref().map(|(_, revision)| *revision);
        let (file, mut contents) = open_records(&path, acknowledged, |contents| {
            RemovalLog::open(directory).map(|removals| removals.apply(contents))
        })?;
        let removals = RemovalLog::open(directory)?;
        let revision = match marked {
            Some((revision, _)) => revision,
            None => {
                if !is_new {
                    contents.revision += REVISION_GAP;
                    file.raise_revision(contents.revision)?;
                }
                RevisionFile::create(directory, contents.revision)?
            }
        };
        Ok(Self { file, contents, revision, removals })
    }
}

/// Opens the file of records again after an error.
pub(crate) fn reopen(
    directory: &Path,
    acknowledged: u64,
    removals: &RemovalLog,
) -> Result<(RecordFile, Contents), OpenError> {
    open_records(&directory.join(FILE_NAME), Some(acknowledged), |contents| {
        removals.apply(contents);
        Ok(())
    })
}

/// Opens the file, and checks that it has the acknowledged revision.
fn open_records(
    path: &Path,
    acknowledged: Option<u64>,
    apply: impl Fn(&mut Contents) -> Result<(), OpenError>,
) -> Result<(RecordFile, Contents), OpenError> {
    let rolled_back = |found, acknowledged, copy: Result<PathBuf, String>| {
        Err(OpenError::RolledBack { path: path.to_owned(), found, acknowledged, copy })
    };
    let (opened, copy) = match RecordFile::open(path, false)? {
        Opened::Verified(file, contents) => (Opened::Verified(file, contents), None),
        Opened::Unverified => {
            // A commit interrupted by a power failure was not acknowledged; only the revision file
            // distinguishes it from damage.
            if acknowledged.is_none() {
                let why = format!(
                    "its newest commit does not verify, and without {REVISION_FILE} nobody knows what it held"
                );
                return Err(crate::error::corrupt(path, why));
            }
            let is_kept_already = fs::exists(copy_of(path)).unwrap_or(true);
            let copy = keep_copy(path);
            (RecordFile::open(path, true)?, Some((copy, is_kept_already)))
        }
    };
    let Opened::Verified(file, mut contents) = opened else {
        return Err(crate::error::corrupt(path, "no commit of it verifies".to_owned()));
    };
    apply(&mut contents)?;
    if let Some(acknowledged) = acknowledged.filter(|acknowledged| contents.revision < *acknowledged) {
        let copy = copy.map_or_else(|| keep_copy(path), |(copy, _)| copy);
        return rolled_back(contents.revision, acknowledged, copy);
    }
    if let Some((copy, is_kept_already)) = copy {
        tracing::warn!(
            file = %path.display(),
            revision = contents.revision,
            "dropping an incomplete commit that was not acknowledged"
        );
        if let (Ok(copy), false) = (copy, is_kept_already) {
            // The file has all acknowledged data, so the copy is not needed.
            fs::remove_file(&copy).map_err(|source| OpenError::Io { path: copy, source })?;
        }
    }
    Ok((file, contents))
}
