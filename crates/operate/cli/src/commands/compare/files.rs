//! Dumps of proxies in a folder.

use super::Dump;
use crate::commands::record::write_private;
use crate::error::CliError;
use pilotfish_compare::{Held, held, node, subscribed, to_dump};
use pilotfish_runtime::{RegularFileError, read_regular_file};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Maximum size of a dump.
pub(super) const DUMP_BYTES: u64 = 256 << 20;

/// JSON files of a folder, by name.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let wrong = |error: std::io::Error| CliError::new(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(super) fn read(file: &Path) -> Result<Dump, String> {
    let bytes = bounded(file, DUMP_BYTES)?;
    let dump: Value = serde_json::from_slice(&bytes).map_err(|error| format!("no JSON: {error}"))?;
    if dump.get("configs").is_none() {
        return Err("no dump of an Envoy: it has no configs".into());
    }
    let node =
        node(&dump).ok_or("it has no bootstrap with the node of the proxy: dump it without a filter")?;
    let held = held(&dump);
    let has = |kind: &str| held.keys().any(|(its, _)| *its == kind);
    let is_eds = |held: &Held| held.resource.get("type").is_some_and(|ty| ty == "EDS");
    if !has("endpoints") && held.values().any(is_eds) {
        return Err("it has no endpoints: dump it with ?include_eds".into());
    }
    Ok(Dump { names: subscribed(&dump), proxy: super::name_of(&node), node, held })
}

/// Content of a regular file, up to a limit: pipes and devices have no end.
pub(super) fn bounded(file: &Path, most: u64) -> Result<Vec<u8>, String> {
    read_regular_file(file, most).map_err(|error| match error {
        RegularFileError::NotRegular(_) => "no regular file".into(),
        RegularFileError::TooLarge { limit } => format!("larger than {} MiB", limit >> 20),
        RegularFileError::Io(error) => error.to_string(),
    })
}

pub(super) fn save(folder: &Path, dump: &Dump) -> Result<(), CliError> {
    let resources =
        dump.held.iter().map(|((kind, name), held)| (*kind, name.as_str(), held.latest().clone()));
    let text = to_dump(&dump.node, &dump.names, resources).to_string();
    // A name that comes from a dump leads out of no folder.
    let file = folder.join(dump.proxy.replace(['/', '\\'], "_") + ".json");
    let written = std::fs::create_dir_all(folder).and_then(|()| write_private(&file, text.as_bytes()));
    written.map_err(|error| CliError::new(format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_their_limit_and_devices_not_at_all() {
        let folder = std::env::temp_dir().join(format!("pilotfish-compare-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.json");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(bounded(&file, 5), Ok(b"12345".to_vec()));
        assert_eq!(bounded(&file, 4), Err("larger than 0 MiB".to_owned()));
        assert_eq!(bounded(Path::new("/dev/zero"), 5), Err("no regular file".to_owned()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
