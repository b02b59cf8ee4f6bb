//! Files of fixed size that are written in place: their space is reserved even if the disk is full.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file of fixed size that is written in place.
#[derive(Debug)]
pub(crate) struct FixedFile {
    path: PathBuf,
    file: File,
}

impl FixedFile {
    /// Opens and reads the file; `None` if it does not exist.
    pub(crate) fn open(path: &Path) -> io::Result<Option<(Self, Vec<u8>)>> {
        let content = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            content => content?,
        };
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Some((Self { path: path.to_owned(), file }, content)))
    }

    /// Creates the file with this content, or no file at all.
    pub(crate) fn create(path: &Path, content: &[u8]) -> io::Result<Self> {
        let new = path.with_extension("new");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let made = file.write_all_at(content, 0).and_then(|()| file.sync_all());
        let made = made.and_then(|()| fs::rename(&new, path)).and_then(|()| sync_folder(path));
        if let Err(error) = made {
            // An unfinished file would waste space on a full disk. The first error is returned.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes in place. The write survives a crash of the process, and a power failure once it is
    /// [synced](Self::sync).
    pub(crate) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Syncs the directory of a file, which makes its name durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
