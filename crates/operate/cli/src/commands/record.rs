//! `pilotfish record`.

use crate::client::Connection;
use crate::error::CliError;
use crate::output::say;
use clap::Args;
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish record defect.jsonl                 what is kept: the oldest revision, and each change
                                                since
  pilotfish record defect.jsonl --from 41
  pilotfish record - | zstd > defect.jsonl.zst
  pilotfish replay defect.jsonl                 in a fresh control plane: does every proxy get the
                                                same?

A record has services, endpoints, workloads and configuration of all namespaces, and the nodes of
connected proxies. Secrets are left out, and values of env in WasmPlugins and TrafficExtensions
are redacted; what an EnvoyFilter holds is not. Only its owner can read the file. Attach it only
where it may be seen.";

/// File mode of a record, which has the configuration of all namespaces.
const PRIVATE: u32 = 0o600;

/// Arguments of `pilotfish record`.
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
        write_private(&self.file, &record)
            .map_err(|error| CliError::new(format!("{}: {error}", self.file.display())))?;
        let kib = record.len().div_ceil(1 << 10);
        // On stderr: stdout may be the record itself.
        say(&format!("{}: {kib} KiB, without Secrets", self.file.display()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a file that only its owner can read, also if it exists with wider permissions.
pub(super) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)?;
    // The mode applies to new files only. Pipes and devices keep theirs.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_readable_by_their_owner_only() {
        let folder = std::env::temp_dir().join(format!("pilotfish-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (new, old) = (folder.join("new"), folder.join("old"));
        std::fs::write(&old, "longer than before").unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
        for path in [&new, &old] {
            write_private(path, b"record").unwrap();
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, PRIVATE);
            assert_eq!(std::fs::read(path).unwrap(), b"record");
        }
        std::fs::remove_dir_all(&folder).unwrap();
        write_private(Path::new("/dev/null"), b"record").unwrap();
    }
}
