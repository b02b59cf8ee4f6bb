//! `pilotfish replay`: replays a file of `pilotfish record` and prints the differences.

use anyhow::{Context, Result};
use clap::Args;
use pilotfish_cli::{Output, counted};
use pilotfish_control_plane::record::{Replayed, replay};
use std::fmt::Write;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `pilotfish replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// File that `pilotfish record` wrote
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

impl Replay {
    /// Replays the file and prints the differences.
    ///
    /// # Errors
    /// When the file cannot be read or replayed.
    pub fn run(&self) -> Result<ExitCode> {
        let file = File::open(&self.file).with_context(|| self.file.display().to_string())?;
        let replayed = replay(BufReader::new(file)).with_context(|| self.file.display().to_string())?;
        self.output.write(&replayed, |_| text(&replayed))?;
        Ok(if replayed.same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn text(replayed: &Replayed) -> String {
    let Replayed { version, from, to, publications, proxies, .. } = replayed;
    let mut out = format!(
        "revisions {from} to {to} of pilotfish {version}: {}, {}\n",
        counted(*publications, "publication"),
        counted(*proxies, "proxy")
    );
    // Writing to a string cannot fail.
    let _ = match replayed.differ.len() {
        0 => writeln!(out, "every proxy gets what it got then"),
        count => writeln!(out, "{count} times a proxy gets something else:"),
    };
    for difference in &replayed.differ {
        let (proxy, ty) = (&difference.proxy, &difference.resource_type);
        let _ = writeln!(
            out,
            "  {proxy} {ty}: {} recorded, {} step by step, {} from scratch",
            difference.recorded, difference.replayed, difference.from_scratch
        );
    }
    if replayed.left_out > 0 {
        let _ = writeln!(out, "{} Secrets and closed objects are left out of the record", replayed.left_out);
    }
    for unlike in &replayed.unlike_then {
        let _ = writeln!(out, "  {unlike} depends on them: what was sent was something else");
    }
    out
}
