//! A secret in a file that is replaced from time to time: a token, a password, a certificate or a key.

use crate::{FileReader, Health, RegularFileError, error_chain, read_regular_file};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

/// Default maximum size of the content in bytes.
const LIMIT: u64 = 64 << 10;

/// The content of a [`SecretFile`]. Cheap to clone; never printed by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// The content as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The content as text; `None` if it is not UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// Error of reading a secret file.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The file cannot be read.
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: io::Error },
    /// The path is a folder, a pipe or a device.
    #[error("{path} is {kind}, not a regular file")]
    NotAFile {
        /// Path of the file.
        path: PathBuf,
        /// Kind of the file, with article.
        kind: &'static str,
    },
    /// The file is empty or has only a line break: usually it is being written.
    #[error("{0} is empty")]
    Empty(PathBuf),
    /// The file is larger than the limit.
    #[error("{path} is larger than {limit} bytes")]
    TooLarge { path: PathBuf, limit: u64 },
}

/// Reads a secret from a file, and reads it again on demand.
///
/// The content is compared, not the time of the file or its inode: mounts of Kubernetes swap links, and
/// notifications fail there. One line break at the end is not part of the secret, as editors and `echo` leave
/// it. The last good content stays in force while the file is unreadable, empty or too large.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    limit: u64,
    keep_line_break: bool,
    content: Option<Secret>,
}

impl SecretFile {
    /// Names the file without reading it.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), limit: LIMIT, keep_line_break: false, content: None }
    }

    /// Sets the maximum size of the content, instead of 64 KiB.
    #[must_use]
    pub fn with_limit(self, bytes: u64) -> Self {
        Self { limit: bytes, ..self }
    }

    /// Keeps a line break at the end as part of the content.
    #[must_use]
    pub fn with_line_break(self) -> Self {
        Self { keep_line_break: true, ..self }
    }

    /// Returns the last good content; `None` before the first.
    #[must_use]
    pub fn content(&self) -> Option<&Secret> {
        self.content.as_ref()
    }

    /// Reads the file; blocks. Returns true if the content changed.
    ///
    /// # Errors
    /// When the file cannot be used. The last good content stays.
    pub fn read(&mut self) -> Result<bool, SecretFileError> {
        let read = read_limited(&self.path, self.limit)?;
        self.accept(read)
    }

    fn accept(&mut self, mut read: Vec<u8>) -> Result<bool, SecretFileError> {
        if !self.keep_line_break && read.last() == Some(&b'\n') {
            read.pop();
            if read.last() == Some(&b'\r') {
                read.pop();
            }
        }
        if read.is_empty() {
            return Err(SecretFileError::Empty(self.path.clone()));
        }
        let changed = self.content.as_ref().is_none_or(|content| content.as_bytes() != read);
        if changed {
            self.content = Some(Secret(read.into()));
        }
        Ok(changed)
    }

    /// Polls the file with this interval, starting now, until no receiver is left. Returns a receiver of the
    /// state, and the polling future, which must be run by a task with an owner.
    ///
    /// Receivers are woken when the content changes and when a failure begins or ends, both of which are
    /// logged.
    pub fn follow(
        self,
        every: Duration,
    ) -> (watch::Receiver<SecretState>, impl Future<Output = ()> + Send + 'static) {
        let state = SecretState { content: self.content.clone(), health: Health::default() };
        let (sender, receiver) = watch::channel(state);
        (receiver, self.publish(every, sender))
    }

    async fn publish(mut self, every: Duration, sender: watch::Sender<SecretState>) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reader = FileReader::default();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = sender.closed() => return,
            }
            let (path, limit) = (self.path.clone(), self.limit);
            let read = reader.run(move || read_limited(&path, limit)).await;
            let read =
                read.unwrap_or_else(|source| Err(SecretFileError::Read { path: self.path.clone(), source }));
            let result = read.and_then(|read| self.accept(read));
            sender.send_if_modified(|state| state.take(&self, &result));
        }
    }
}

/// State of a secret file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretState {
    /// The last good content; `None` before there was one.
    pub content: Option<Secret>,
    /// Failing while the file cannot be read.
    pub health: Health,
}

impl SecretState {
    /// Applies a read. Returns true if receivers must be notified.
    fn take(&mut self, file: &SecretFile, result: &Result<bool, SecretFileError>) -> bool {
        let path = file.path.display();
        match result {
            Ok(changed) => {
                let first = self.health.synced();
                if *changed && !first {
                    tracing::info!(%path, "read the changed content of a file");
                }
                let recovered = self.health.recovered().is_some();
                if recovered {
                    tracing::info!(%path, "a file can be read again");
                }
                self.content.clone_from(&file.content);
                *changed || first || recovered
            }
            Err(error) => {
                let reason = error_chain(error);
                let begins = self.health.failed(reason.as_str(), SystemTime::now());
                if begins {
                    let kept = self.content.is_some();
                    tracing::warn!(reason, kept, "cannot use a secret file");
                }
                begins
            }
        }
    }
}

/// Reads at most `limit` bytes of a regular file.
fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>, SecretFileError> {
    let path = || path.to_owned();
    read_regular_file(&path(), limit).map_err(|error| match error {
        RegularFileError::Io(source) => SecretFileError::Read { path: path(), source },
        RegularFileError::NotRegular(kind) => SecretFileError::NotAFile { path: path(), kind },
        RegularFileError::TooLarge { limit } => SecretFileError::TooLarge { path: path(), limit },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    const EVERY: Duration = Duration::from_secs(2);

    fn folder() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        (folder, path)
    }

    fn text(file: &SecretFile) -> Option<&str> {
        file.content()?.as_str()
    }

    #[test]
    fn one_line_break_at_the_end_is_not_part_of_the_secret() {
        let (_folder, path) = folder();
        let cases =
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a ", " a "), ("a\nb", "a\nb")];
        for (written, expected) in cases {
            fs::write(&path, written).unwrap();
            let mut file = SecretFile::new(&path);
            assert!(file.read().unwrap());
            assert_eq!(text(&file), Some(expected), "{written:?}");
            let mut whole = SecretFile::new(&path).with_line_break();
            assert!(whole.read().unwrap());
            assert_eq!(text(&whole), Some(written));
        }
    }

    #[test]
    fn only_another_content_is_a_change() {
        let (_folder, path) = folder();
        let mut file = SecretFile::new(&path);
        fs::write(&path, "old").unwrap();
        assert!(file.read().unwrap());
        fs::write(&path, "old\n").unwrap();
        assert!(!file.read().unwrap());
        fs::write(&path, "new").unwrap();
        assert!(file.read().unwrap());
        assert_eq!(text(&file), Some("new"));
    }

    #[test]
    fn what_cannot_be_used_leaves_the_last_good_content() {
        let (folder, path) = folder();
        let mut file = SecretFile::new(&path).with_limit(4);
        assert!(matches!(file.read(), Err(SecretFileError::Read { .. })));
        assert_eq!(file.content(), None);
        fs::write(&path, "good").unwrap();
        assert!(file.read().unwrap());
        for (bad, reason) in [("", "is empty"), ("\n", "is empty"), ("worse", "is larger than 4 bytes")] {
            fs::write(&path, bad).unwrap();
            let error = file.read().unwrap_err().to_string();
            assert!(error.starts_with(&*path.to_string_lossy()) && error.ends_with(reason), "{error}");
            assert_eq!(text(&file), Some("good"));
        }
        let mut folder = SecretFile::new(folder.path());
        assert!(matches!(folder.read(), Err(SecretFileError::NotAFile { .. })));
    }

    #[test]
    fn a_link_that_is_swapped_is_a_change() {
        let (folder, path) = folder();
        for version in ["1", "2"] {
            fs::write(folder.path().join(version), version).unwrap();
        }
        let mut file = SecretFile::new(&path);
        for version in ["1", "2"] {
            let _ = fs::remove_file(&path);
            std::os::unix::fs::symlink(version, &path).unwrap();
            assert!(file.read().unwrap());
            assert_eq!(text(&file), Some(version));
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let (_folder, path) = folder();
        fs::write(&path, "hunter2").unwrap();
        let mut file = SecretFile::new(&path);
        file.read().unwrap();
        assert!(!format!("{file:?}").contains("hunter2"));
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_hear_of_changes_and_failures_only() {
        let (_folder, path) = folder();
        fs::write(&path, "old").unwrap();
        let (mut state, reading) = SecretFile::new(&path).follow(EVERY);
        let reading = tokio::spawn(reading);
        let get = |state: &SecretState| {
            let text = state.content.as_ref().and_then(Secret::as_str).map(str::to_owned);
            (text, state.health.is_failing())
        };
        state.changed().await.unwrap();
        assert_eq!(get(&state.borrow_and_update()), (Some("old".into()), false));
        tokio::time::sleep(EVERY * 3).await;
        assert!(!state.has_changed().unwrap());
        fs::write(&path, "new").unwrap();
        state.changed().await.unwrap();
        assert_eq!(get(&state.borrow_and_update()), (Some("new".into()), false));
        fs::remove_file(&path).unwrap();
        state.changed().await.unwrap();
        assert_eq!(get(&state.borrow_and_update()), (Some("new".into()), true));
        tokio::time::sleep(EVERY * 3).await;
        assert!(!state.has_changed().unwrap(), "a failure that lasts is reported once");
        fs::write(&path, "new").unwrap();
        state.changed().await.unwrap();
        assert_eq!(get(&state.borrow_and_update()), (Some("new".into()), false));
        drop(state);
        reading.await.unwrap();
    }
}
