//! Files of a plan: those that `serve` would read.

use pilotfish_api::v1::PlanFile;
use pilotfish_cli::{CliError, one_line};
use pilotfish_config::Limits;
use pilotfish_files::{OnceError, STANDARD_INPUT, read_once};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Limit of a running control plane on the bytes of all files together.
const LARGEST: u64 = 4 << 20;

/// Reads files and folders, and standard input for `-`.
///
/// # Errors
/// When one of them cannot be read, or all together are too large.
pub(super) fn of_paths(paths: &[PathBuf]) -> Result<Vec<PlanFile>, CliError> {
    let mut files = Vec::new();
    let mut left = LARGEST;
    for path in paths {
        let read = match is_standard_input(path) {
            true => vec![PlanFile {
                name: STANDARD_INPUT.to_owned(),
                text: standard_input(left)?.ok_or_else(too_large)?,
            }],
            false => read(path, left)?,
        };
        for file in read {
            left = left.saturating_sub(file.text.len() as u64);
            files.push(file);
        }
    }
    Ok(files)
}

/// Reads all files of a folder, however large.
///
/// # Errors
/// When one of them cannot be read.
pub(super) fn of_folder(folder: &Path) -> Result<Vec<PlanFile>, CliError> {
    read(folder, u64::MAX)
}

fn read(path: &Path, limit: u64) -> Result<Vec<PlanFile>, CliError> {
    let read =
        read_once(&[path.to_owned()], Limits::default().file_bytes, limit).map_err(|error| match error {
            OnceError::TooLarge { .. } => too_large(),
            OnceError::Unreadable { .. } => CliError::new(one_line(&error.to_string()))
                .hint("nothing is planned with a part of the files"),
        })?;
    Ok(read
        .into_iter()
        .map(|read| PlanFile { name: read.path.display().to_string(), text: read.text })
        .collect())
}

/// True for the path that means standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads standard input; `None` if it has more bytes than the limit.
///
/// # Errors
/// When it cannot be read.
pub(super) fn standard_input(limit: u64) -> Result<Option<String>, CliError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(limit.saturating_add(1)).read_to_string(&mut text);
    let bytes = read.map_err(|error| {
        CliError::new(format!("{STANDARD_INPUT}: {error}")).hint("it is YAML or JSON in UTF-8")
    })?;
    Ok((bytes as u64 <= limit).then_some(text))
}

fn too_large() -> CliError {
    CliError::new(format!("the files are larger than {} MiB together", LARGEST >> 20))
        .hint("plan the files that change, not all of them")
}
