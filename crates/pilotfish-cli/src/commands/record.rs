//! `pilotfish record`.

use crate::client::Connection;
use crate::error::CliError;
use crate::output::say;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish record defect.jsonl                 what is kept: the oldest revision, and each change since
  pilotfish record defect.jsonl --from 41
  pilotfish record - | zstd > defect.jsonl.zst
  pilotfish replay defect.jsonl                 in a fresh control plane: does every proxy get the same?

A record has services, endpoints, workloads and configuration of all namespaces, and the nodes of connected proxies. Secrets are left out; what
an EnvoyFilter holds is not. Attach it to a report only where that may be seen.";

/// Writes a record.
#[derive(Args, Clone, Debug)]
pub struct Record {
    /// The file; `-` for stdout
    file: PathBuf,
    /// The revision that it begins with; without it, the oldest that is kept
    #[arg(long, value_name = "REVISION")]
    from: Option<u64>,
    #[command(flatten)]
    connection: Connection,
}

impl Record {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let from = self.from.map(|revision| revision.to_string());
        let query: Vec<_> = from.as_deref().map(|revision| ("from", revision)).into_iter().collect();
        let record = self.connection.client().get_bytes("record", &query).await?;
        if self.file.as_os_str() == "-" {
            std::io::stdout().lock().write_all(&record)?;
            return Ok(ExitCode::SUCCESS);
        }
        std::fs::write(&self.file, &record)
            .map_err(|error| CliError::new(format!("{}: {error}", self.file.display())))?;
        let kib = record.len().div_ceil(1 << 10);
        // The file is what was asked for; this is for people.
        say(&format!("{}: {kib} KiB, without Secrets", self.file.display()));
        Ok(ExitCode::SUCCESS)
    }
}
