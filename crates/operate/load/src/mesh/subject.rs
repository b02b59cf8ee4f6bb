//! The measured server, and the way in which changes of the files reach it.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::folder::Prepared;
use crate::connection::Way;
use crate::server::{CpuTimes, memory_of};

pub struct Subject {
    /// Method to connect proxies to it.
    pub way: Way,
    /// Its process, if it is on this machine.
    pub pid: Option<u32>,
    /// Time from the start of the process until it was ready, if known.
    pub start: Option<Duration>,
    /// Way in which changes reach it.
    pub edits: Edits,
}

/// Way in which changes of the files reach the server.
#[derive(Clone)]
pub enum Edits {
    /// The server reads the directory.
    Files,
    /// Shell commands with `{}` for the file: one for new and changed objects, one for removed ones.
    Commands {
        /// Command for new and changed objects.
        apply: String,
        /// Command for removed objects.
        delete: String,
    },
    /// Changes are applied by an implementation of [`Apply`].
    Applied(Arc<dyn Apply>),
    /// No changes: only connections of proxies.
    None,
}

/// Future of a change.
pub type Applying<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Method to apply objects to a server, such as a client of an API server.
pub trait Apply: Send + Sync {
    /// Creates or replaces the objects of a YAML text.
    fn apply(&self, yaml: String) -> Applying<'_>;
    /// Deletes the objects of a YAML text.
    fn delete(&self, yaml: String) -> Applying<'_>;
}

impl Edits {
    /// True if changes reach the server at all.
    #[must_use]
    pub fn reach(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Makes a change.
    ///
    /// # Errors
    /// If the file cannot be replaced or the command fails.
    pub async fn make(&self, prepared: Prepared) -> Result<()> {
        match (self, prepared) {
            (Self::Commands { delete, .. }, Prepared::Remove(path)) => {
                run(delete, &path).await?;
                Prepared::Remove(path).commit()
            }
            (Self::Commands { apply, .. }, Prepared::Replace { new, path }) => {
                Prepared::Replace { new, path: path.clone() }.commit()?;
                run(apply, &path).await
            }
            (Self::Applied(to), Prepared::Remove(path)) => {
                to.delete(read(&path)?).await?;
                Prepared::Remove(path).commit()
            }
            (Self::Applied(to), Prepared::Replace { new, path }) => {
                Prepared::Replace { new, path: path.clone() }.commit()?;
                to.apply(read(&path)?).await
            }
            (Self::Files | Self::None, prepared) => prepared.commit(),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

async fn run(command: &str, file: &Path) -> Result<()> {
    let command = command.replace("{}", &file.display().to_string());
    let output = Command::new("sh").args(["-c", &command]).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("cannot run `{command}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{command}` failed: {}", said.trim());
    Ok(())
}

impl Subject {
    /// CPU time of the server so far; zero if its process is unknown.
    ///
    /// # Errors
    /// If it has ended.
    pub fn cpu(&self) -> Result<CpuTimes> {
        self.pid.map_or_else(|| Ok(CpuTimes::default()), |pid| CpuTimes::of(&pid.to_string()))
    }

    /// Current and peak resident memory in bytes; zero if its process is unknown.
    ///
    /// # Errors
    /// If it has ended.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.pid.map_or(Ok((0, 0)), memory_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_gets_the_file_of_a_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, new, copy) =
            (folder.path().join("a.yaml"), folder.path().join("a.new"), folder.path().join("copy"));
        std::fs::write(&new, "text").expect("written");
        let edits = Edits::Commands {
            apply: format!("cp {{}} {}", copy.display()),
            delete: format!("test -e {{}} && rm {}", copy.display()),
        };
        edits.make(Prepared::Replace { new, path: path.clone() }).await.expect("applied");
        assert_eq!(std::fs::read_to_string(&copy).expect("readable"), "text");
        edits.make(Prepared::Remove(path.clone())).await.expect("deleted");
        assert!(!copy.exists() && !path.exists());
        let edits = Edits::Commands { apply: String::new(), delete: "echo words >&2; false".into() };
        let error = edits.make(Prepared::Remove(path)).await.expect_err("it fails").to_string();
        assert!(error.contains("words"), "{error}");
    }
}
