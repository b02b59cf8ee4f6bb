//! The revision file: the revision that the store must have when it is opened again.

use crate::OpenError;
use crate::error::corrupt;
use crate::fixed::FixedFile;
use std::io;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Name of the file in the data directory.
pub(crate) const REVISION_FILE: &str = "registrations.revision";

/// The highest acknowledged revision. It is written after each commit and never exceeds the store's.
#[derive(Debug)]
pub(crate) struct RevisionFile {
    file: FixedFile,
    is_synced: bool,
}

impl RevisionFile {
    /// Opens and reads the file; `None` for a new store, or one of a version without this file.
    pub(crate) fn open(directory: &Path) -> Result<Option<(Self, u64)>, OpenError> {
        let path = directory.join(REVISION_FILE);
        let opened = FixedFile::open(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
        let Some((file, content)) = opened else { return Ok(None) };
        match decode(&content) {
            Some(revision) => Ok(Some((Self { file, is_synced: true }, revision))),
            None => Err(corrupt(&path, "it holds no revision with its checksum".to_owned())),
        }
    }

    pub(crate) fn create(directory: &Path, revision: u64) -> Result<Self, OpenError> {
        let path = directory.join(REVISION_FILE);
        let file = FixedFile::create(&path, encode(revision).as_bytes())
            .map_err(|source| OpenError::Io { path, source })?;
        Ok(Self { file, is_synced: true })
    }

    /// Writes a revision whose commit is durable.
    pub(crate) fn set(&mut self, revision: u64) -> io::Result<()> {
        self.is_synced = false;
        self.file.write_at(encode(revision).as_bytes(), 0)
    }

    /// Syncs the written revision, for power failures.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync()?;
            self.is_synced = true;
        }
        Ok(())
    }
}

/// Encodes a revision as one line of fixed length.
fn encode(revision: u64) -> String {
    let text = format!("revision {revision:020}");
    format!("{text} {:016x}\n", xxh3_64(text.as_bytes()))
}

fn decode(content: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(content).ok()?;
    let number = text.strip_prefix("revision ")?.get(..20)?;
    let revision = number.parse().ok()?;
    (text == encode(revision)).then_some(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_line_with_any_flipped_bit_is_refused() {
        for revision in [0, 1, 4_711, u64::MAX] {
            let line = encode(revision);
            assert_eq!(decode(line.as_bytes()), Some(revision));
            for bit in 0..line.len() * 8 {
                let mut bad = line.clone().into_bytes();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&bad), None, "bit {bit}");
            }
            assert_eq!(decode(&line.as_bytes()[..line.len() - 1]), None);
        }
    }
}
