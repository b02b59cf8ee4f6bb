//! One-time reading of files for commands, by the rules of the file source.

use crate::state::FileContent;
use crate::walk::{Found, read_file, walk};
use pilotfish_runtime::Heartbeat;
use std::path::{Path, PathBuf};

/// A file and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadText {
    pub path: PathBuf,
    pub text: String,
}

/// Errors of reading files once.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// A file or folder cannot be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Cause of the failure, in one line.
        reason: String,
    },
    /// The files are larger than the limit together.
    #[error("the files are larger than {} MiB together", limit >> 20)]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
}

/// Reads files, and the YAML and JSON files of folders, in the order of their paths, by the same walk as
/// `serve`. All of them have at most `limit` bytes together, each at most `file_bytes`.
///
/// # Errors
/// If one of them cannot be read: a result that depends on all of them must not be computed from some.
pub fn read_once(paths: &[PathBuf], file_bytes: u64, limit: u64) -> Result<Vec<ReadText>, OnceError> {
    let mut texts = Vec::new();
    let mut left = limit;
    for path in paths {
        let files = if path.is_dir() { of_folder(path)? } else { vec![path.clone()] };
        for path in files {
            // Checked before the file is read into memory.
            if std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() > left) {
                return Err(OnceError::TooLarge { limit });
            }
            let text = read(&path, file_bytes)?;
            left = left.saturating_sub(text.len() as u64);
            texts.push(ReadText { path, text });
        }
    }
    Ok(texts)
}

/// The files of a folder.
fn of_folder(folder: &Path) -> Result<Vec<PathBuf>, OnceError> {
    let mut found = Found::default();
    walk(folder, &mut found, &Heartbeat::paused());
    if let Some((path, reason)) = found.unreadable.into_iter().next() {
        return Err(OnceError::Unreadable { path, reason });
    }
    Ok(found.files.into_keys().map(|path| path.to_path_buf()).collect())
}

fn read(path: &Path, limit: u64) -> Result<String, OnceError> {
    let unreadable =
        |reason: &str| OnceError::Unreadable { path: path.to_owned(), reason: reason.to_owned() };
    match read_file(path, limit).0 {
        FileContent::Bytes(bytes) => String::from_utf8(bytes).map_err(|_| unreadable("it is no UTF-8")),
        FileContent::Absent => Err(unreadable("there is no such file")),
        FileContent::Unreadable(reason) => Err(unreadable(&reason)),
        // Only scanners read files into objects.
        FileContent::Read(_) => Err(unreadable("it cannot be read as a text")),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const LARGE: u64 = 1 << 20;

    /// Reads a folder with these files, which have their own names as texts.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    fn texts(path: &Path) -> Result<Vec<String>, String> {
        let read = read_once(&[path.to_owned()], LARGE, LARGE).map_err(|error| error.to_string())?;
        Ok(read.into_iter().map(|read| read.text).collect())
    }

    #[test]
    fn files_are_those_that_are_served() {
        let folder = folder(&["a.yaml", "b/c.yml", "d.YAML", "e.Json", ".hidden.yaml", "notes.txt"]);
        assert_eq!(texts(folder.path()).unwrap(), ["a.yaml", "b/c.yml", "d.YAML", "e.Json"]);
        // A file that is named is read whatever its name.
        assert_eq!(texts(&folder.path().join("notes.txt")).unwrap(), ["notes.txt"]);
    }

    #[test]
    fn links_in_a_circle_end_and_those_that_lead_out_are_refused() {
        let inner = folder(&["a.yaml", "b/c.yaml"]);
        symlink("..", inner.path().join("b/up")).unwrap();
        symlink(inner.path().join("b"), inner.path().join("again")).unwrap();
        let found = texts(inner.path()).unwrap();
        assert_eq!(found, ["a.yaml", "b/c.yaml"], "each folder is read once");
        let other = folder(&["secret.yaml"]);
        symlink(other.path(), inner.path().join("out")).unwrap();
        let error = texts(inner.path()).unwrap_err();
        assert!(error.contains("out: a link to a folder outside"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let circle = folder(&["a.yaml"]);
        symlink("b.yaml", circle.path().join("b.yaml")).unwrap();
        let error = texts(circle.path()).unwrap_err();
        assert!(error.contains("b.yaml: "), "{error}");
        let missing = texts(&circle.path().join("missing.yaml")).unwrap_err();
        assert!(missing.ends_with("missing.yaml: there is no such file"), "{missing}");
        let binary = folder(&[]);
        fs::write(binary.path().join("a.yaml"), [0xff]).unwrap();
        assert!(texts(binary.path()).unwrap_err().ends_with("it is no UTF-8"));
    }

    #[test]
    fn all_together_have_a_limit() {
        let folder = folder(&["a.yaml", "b.yaml"]);
        let paths = [folder.path().to_owned()];
        assert_eq!(read_once(&paths, LARGE, 12).unwrap().len(), 2);
        assert!(matches!(read_once(&paths, LARGE, 11), Err(OnceError::TooLarge { limit: 11 })));
        let error = read_once(&paths, 5, LARGE).unwrap_err().to_string();
        assert!(error.contains("a.yaml: ") && error.contains("more than the limit"), "{error}");
    }
}
