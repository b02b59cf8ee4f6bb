//! Reads of files that other programs provide. A pipe, device or socket is an error and never blocks.

#[cfg(target_os = "linux")]
use rustix::fs::FsWord;
use rustix::fs::OFlags;
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Error of reading a regular file.
#[derive(Debug, thiserror::Error)]
pub enum RegularFileError {
    /// The file cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not a regular file; the text names its kind.
    #[error("is {0}, not a regular file")]
    NotRegular(&'static str),
    /// Larger than the limit.
    #[error("is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
}

impl RegularFileError {
    /// True if the path does not exist, or is a dangling link.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<RegularFileError> for io::Error {
    fn from(error: RegularFileError) -> Self {
        match error {
            RegularFileError::Io(error) => error,
            other => Self::new(io::ErrorKind::InvalidInput, other.to_string()),
        }
    }
}

/// An open regular file. Its type was checked on the descriptor, so it cannot be replaced by another kind.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    meta: Metadata,
}

impl RegularFile {
    /// Opens a regular file, or a link to one. Never blocks on a pipe.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> Result<Self, RegularFileError> {
        // Checked by path first, because opening some devices has side effects; the check of the descriptor
        // decides.
        check_type(fs::metadata(path)?.file_type())?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let meta = file.metadata()?;
        check_type(meta.file_type())?;
        if is_of_kernel(&file)? {
            return Err(RegularFileError::NotRegular("a file of the kernel"));
        }
        Ok(Self { file, meta })
    }

    /// Returns the metadata at the time of opening.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.meta
    }

    /// Reads the complete content.
    ///
    /// # Errors
    /// When it has more than `limit` bytes, or cannot be read.
    pub fn read(self, limit: u64) -> Result<Vec<u8>, RegularFileError> {
        let mut content = Vec::new();
        if self.meta.len() <= limit {
            self.file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
        }
        if self.meta.len().max(content.len() as u64) > limit {
            return Err(RegularFileError::TooLarge { limit });
        }
        Ok(content)
    }
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// When it is not a regular file, is larger, or cannot be read.
pub fn read_regular_file(path: &Path, limit: u64) -> Result<Vec<u8>, RegularFileError> {
    RegularFile::open(path)?.read(limit)
}

/// Reads a regular file of at most `limit` bytes of UTF-8.
///
/// # Errors
/// When it is not a regular file, is larger, is not UTF-8, or cannot be read.
pub fn read_regular_text(path: &Path, limit: u64) -> Result<String, RegularFileError> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8");
    Ok(String::from_utf8(read_regular_file(path, limit)?).map_err(invalid)?)
}

/// # Errors
/// When it is not the type of a regular file.
pub fn check_type(file_type: FileType) -> Result<(), RegularFileError> {
    let what = match () {
        () if file_type.is_file() => return Ok(()),
        () if file_type.is_dir() => "a folder",
        () if file_type.is_fifo() => "a pipe",
        () if file_type.is_socket() => "a socket",
        () if file_type.is_char_device() || file_type.is_block_device() => "a device",
        () => "something else",
    };
    Err(RegularFileError::NotRegular(what))
}

/// True for kernel file systems, whose files look regular but are generated on read: `/proc/kmsg` blocks
/// until the next message.
#[cfg(target_os = "linux")]
fn is_of_kernel(file: &File) -> io::Result<bool> {
    // proc, sysfs, debugfs, tracefs, securityfs, cgroup and cgroup2.
    const KERNEL: [FsWord; 7] =
        [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x7363_6673, 0x0027_e0eb, 0x6367_7270];
    Ok(KERNEL.contains(&rustix::fs::fstatfs(file)?.f_type))
}

#[cfg(not(target_os = "linux"))]
fn is_of_kernel(_: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mknodat};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    const LIMIT: u64 = 1 << 20;

    /// Reads on another thread: an implementation that waits fails instead of never ending.
    fn read(path: &Path) -> Result<Vec<u8>, String> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let path = path.to_owned();
        std::thread::spawn(move || sender.send(read_regular_file(&path, LIMIT)));
        let read = receiver.recv_timeout(Duration::from_secs(20)).expect("reading does not wait");
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once_and_by_links_too() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        symlink(at("pipe"), at("to-pipe")).unwrap();
        symlink("to-pipe", at("to-link")).unwrap();
        let cases = [
            (at("pipe"), "a pipe"),
            (at("to-pipe"), "a pipe"),
            (at("to-link"), "a pipe"),
            (at("socket"), "a socket"),
            ("/dev/zero".into(), "a device"),
            (folder.path().to_owned(), "a folder"),
            ("/proc/self/status".into(), "a file of the kernel"),
            ("/proc/self/mountinfo".into(), "a file of the kernel"),
        ];
        for (path, kind) in cases {
            assert_eq!(read(&path), Err(format!("is {kind}, not a regular file")), "{path:?}");
        }
        // A writer at the other end changes nothing.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let _writer = OpenOptions::new().read(true).write(true).custom_flags(flags).open(at("pipe")).unwrap();
        assert_eq!(read(&at("to-pipe")), Err("is a pipe, not a regular file".to_owned()));
        assert!(read_regular_file(&at("nothing"), LIMIT).is_err_and(|error| error.is_absent()));
    }

    #[test]
    fn regular_files_are_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        symlink("file", &link).unwrap();
        for size in [0, 1, 9, 10] {
            fs::write(&path, vec![b'x'; size]).unwrap();
            for path in [&path, &link] {
                assert_eq!(read_regular_file(path, 10).unwrap().len(), size);
            }
        }
        fs::write(&path, [b'x'; 11]).unwrap();
        let large = read_regular_text(&path, 10).unwrap_err();
        assert_eq!(large.to_string(), "is larger than 10 bytes");
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_regular_text(&path, 10).unwrap_err().to_string(), "is not UTF-8");
    }
}
