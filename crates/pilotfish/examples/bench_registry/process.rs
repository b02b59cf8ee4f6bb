//! Servers of this workspace that run as processes of their own.

use anyhow::{Context, Result};
use pilotfish_testkit::real::Program;
use tempfile::TempDir;
use tokio::process::Command;

/// A running server. It ends when this is dropped.
pub(super) struct Process {
    _program: Program,
    _folder: TempDir,
}

impl Process {
    /// Runs a command that is given a folder of its own.
    pub(super) fn start(command: impl FnOnce(&TempDir) -> Result<Command>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = Program::start(&mut command(&folder)?, folder.path().join("log"));
        Ok(Self { _program: program, _folder: folder })
    }

    /// Runs a stand-in of the testkit, which `cargo xtask bench` builds beside this example.
    pub(super) fn stand_in(name: &str, arguments: &[String]) -> Result<Self> {
        let examples = std::env::current_exe()?;
        let folder = examples.ancestors().nth(2).context("no folder of executables")?;
        let path = folder.join(name);
        anyhow::ensure!(path.exists(), "{} is missing: `cargo xtask bench` builds it", path.display());
        Self::start(|_| {
            let mut command = Command::new(path);
            command.args(arguments);
            Ok(command)
        })
    }
}
