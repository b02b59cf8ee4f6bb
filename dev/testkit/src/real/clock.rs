//! Wrong clocks.

use super::Tool;
use std::path::PathBuf;
use tempfile::TempDir;

/// A wrong clock for a program, with an offset that can change while the program runs. Affects the time of
/// day only, not the monotonic clock, like setting a clock.
pub struct WrongClock {
    folder: TempDir,
    library: PathBuf,
}

impl WrongClock {
    /// Creates a clock with an offset in seconds. `None` when the library is missing and is not required.
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

    /// Changes the offset.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn set(&self, seconds: i64) {
        // Replaced atomically: the program reads the file with each reading of the clock.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{seconds:+}\n")).expect("the folder can be written");
        std::fs::rename(&new, self.file()).expect("the folder can be written");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// Environment variables that give a program this clock.
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
