//! An additional file beside those of the mesh.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// An additional file, which is removed on drop.
pub(crate) struct Extra(PathBuf);

impl Extra {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self(folder.join(name))
    }

    /// Replaces the file atomically.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        let new = self.0.with_extension("new");
        fs::write(&new, text).context("the folder cannot be written")?;
        fs::rename(&new, &self.0).context("the folder cannot be written")
    }
}

impl Drop for Extra {
    fn drop(&mut self) {
        // It may not have been written yet.
        let _ = fs::remove_file(self.0.with_extension("new"));
        let _ = fs::remove_file(&self.0);
    }
}
