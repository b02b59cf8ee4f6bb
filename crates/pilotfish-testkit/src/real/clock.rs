//! Clocks that are wrong.

use super::Tool;
use std::path::PathBuf;
use tempfile::TempDir;

/// A wrong clock for a program, by an offset that can change while the program runs. Only the time of day: that
/// which counts since the start of the machine stays true, as it does when a clock is set.
pub struct WrongClock {
    folder: TempDir,
    library: PathBuf,
}

impl WrongClock {
    /// A clock that is wrong by so many seconds. `None` where the library is missing and is not required.
    ///
    /// # Panics
    /// When it is missing in CI.
    #[must_use]
    pub fn new(seconds: i64) -> Option<Self> {
        let library = Tool::Faketime.find()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let this = Self { folder, library };
        this.set(seconds);
        Some(this)
    }

    /// From now on it is wrong by so many seconds.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn set(&self, seconds: i64) {
        // In one step: the program reads the file each time that it reads the clock.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{seconds:+}\n")).expect("the folder can be written");
        std::fs::rename(&new, self.file()).expect("the folder can be written");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// The environment that gives a program this clock.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [
            ("LD_PRELOAD", self.library.to_string_lossy().into_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().to_string_lossy().into_owned()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_DISABLE_SHM", "1".into()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).into()
    }
}
