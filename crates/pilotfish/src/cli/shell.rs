//! Completion scripts for shells, and manual pages.

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;

/// Prints a script by which a shell completes commands and options.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// Shell to complete commands for
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub(crate) fn run(self, command: &mut Command, out: &mut impl Write) -> Result<()> {
        // The generator panics if it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "pilotfish", &mut script);
        Ok(out.write_all(&script)?)
    }
}

/// Writes manual pages into a folder.
#[derive(Args, Clone, Debug)]
pub(crate) struct Man {
    /// The folder: one page for each command
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, command: Command) -> Result<()> {
        let shown = self.folder.display();
        std::fs::create_dir_all(&self.folder).with_context(|| format!("{shown} cannot be made"))?;
        clap_mangen::generate_to(command, &self.folder)
            .with_context(|| format!("the pages cannot be written to {shown}"))
    }
}
