//! The removal log, of fixed size: reserved space for removals while the store cannot be written.

use crate::OpenError;
use crate::codec::{decode_key, encode_key};
use crate::error::corrupt;
use crate::file::Contents;
use crate::fixed::FixedFile;
use crate::interner::Interner;
use pilotfish_registration::InstanceKey;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Name of the log in the data directory.
pub(crate) const REMOVALS_FILE: &str = "registrations.removals";
/// Size of the file in bytes: some ten thousand removals.
const BYTES: usize = 1 << 20;
const MAGIC: &[u8; 8] = b"PFREMOV1";
/// Size of the header, which has its own sector: magic, generation, checksum.
const HEADER: usize = 512;

/// Durable removals that are not in the store yet.
#[derive(Debug)]
pub(crate) struct RemovalLog {
    file: FixedFile,
    /// Entries of earlier generations are ignored.
    generation: u64,
    end: usize,
    pending: BTreeMap<InstanceKey, Removal>,
}

/// A removal of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Revision of the removed record.
    pub(crate) before: u64,
    /// Revision of the removal.
    pub(crate) revision: u64,
}

impl RemovalLog {
    /// Opens the log, or creates a missing one.
    pub(crate) fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join(REMOVALS_FILE);
        let at = |source| OpenError::Io { path: path.clone(), source };
        let Some((file, content)) = FixedFile::open(&path).map_err(at)? else {
            return Self::create(directory).map_err(at);
        };
        let damaged = || corrupt(&path, "its beginning is not that of a log of removals".to_owned());
        let generation = generation(&content).ok_or_else(damaged)?;
        let mut log = Self { file, generation, end: HEADER, pending: BTreeMap::new() };
        let mut interner = Interner::default();
        while let Some((key, removal, end)) = entry(&content, log.end, generation) {
            let key = decode_key(key, &mut interner).map_err(|why| corrupt(&path, why))?;
            log.pending.insert(key, removal);
            log.end = end;
        }
        Ok(log)
    }

    /// Creates an empty log, replacing that of a previous store.
    pub(crate) fn create(directory: &Path) -> io::Result<Self> {
        let mut content = header(1).to_vec();
        content.resize(BYTES, 0);
        let file = FixedFile::create(&directory.join(REMOVALS_FILE), &content)?;
        Ok(Self { file, generation: 1, end: HEADER, pending: BTreeMap::new() })
    }

    /// Appends removals durably. If it fails, none of them may be acknowledged.
    pub(crate) fn append(&mut self, removals: BTreeMap<InstanceKey, Removal>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (key, removal) in &removals {
            write_entry(&mut bytes, self.generation, &encode_key(key), *removal);
        }
        if self.end + bytes.len() > BYTES {
            let why = format!("{} is full", self.file.path().display());
            return Err(io::Error::new(ErrorKind::StorageFull, why));
        }
        self.file.write_at(&bytes, self.end as u64)?;
        self.file.sync()?;
        self.end += bytes.len();
        self.pending.extend(removals);
        Ok(())
    }

    /// Clears the log once the store has the removals.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if self.end == HEADER {
            return Ok(());
        }
        self.pending.clear();
        self.file.write_at(&header(self.generation + 1), 0)?;
        self.file.sync()?;
        self.generation += 1;
        self.end = HEADER;
        Ok(())
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = (&InstanceKey, &Removal)> {
        self.pending.iter()
    }

    /// True if the record of this revision was removed.
    pub(crate) fn has(&self, key: &InstanceKey, revision: u64) -> bool {
        self.pending.get(key).is_some_and(|removal| removal.before == revision)
    }

    /// Removes the logged removals from a store's contents.
    pub(crate) fn apply(&self, contents: &mut Contents) {
        if !self.pending.is_empty() {
            contents.records.retain(|record| !self.has(&record.instance.key, record.revision));
            let last = self.pending.values().map(|removal| removal.revision).max();
            contents.revision = contents.revision.max(last.unwrap_or_default());
        }
    }
}

fn header(generation: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let fields = MAGIC.iter().copied().chain(generation.to_le_bytes());
    let fields: Vec<u8> = fields.collect();
    let check = xxh3_64(&fields).to_le_bytes();
    for (place, byte) in bytes.iter_mut().zip(fields.into_iter().chain(check)) {
        *place = byte;
    }
    bytes
}

fn generation(content: &[u8]) -> Option<u64> {
    let generation = number(content, 8)?;
    let is_ours = content.len() == BYTES && content.get(..24)? == header(generation).get(..24)?;
    is_ours.then_some(generation)
}

/// Appends an entry: generation, both revisions, length of the key, key, and a checksum of all.
fn write_entry(bytes: &mut Vec<u8>, generation: u64, key: &[u8], removal: Removal) {
    let start = bytes.len();
    for number in [generation, removal.before, removal.revision, key.len() as u64] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(key);
    let check = xxh3_64(bytes.get(start..).unwrap_or_default());
    bytes.extend(check.to_le_bytes());
}

/// Parses the entry at a position; also returns its end. Returns `None` if there is none of this generation:
/// a truncated entry was not acknowledged.
fn entry(content: &[u8], at: usize, generation: u64) -> Option<(&[u8], Removal, usize)> {
    let [of, before, revision, length] = [0, 8, 16, 24].map(|offset| number(content, at + offset));
    if of? != generation {
        return None;
    }
    let end = (at + 32).checked_add(usize::try_from(length?).ok()?)?;
    let key = content.get(at + 32..end)?;
    let is_whole = number(content, end)? == xxh3_64(content.get(at..end)?);
    is_whole.then_some((key, Removal { before: before?, revision: revision? }, end + 8))
}

fn number(content: &[u8], at: usize) -> Option<u64> {
    let bytes = content.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registration::testing::key;
    use std::fs;

    fn removal(revision: u64) -> Removal {
        Removal { before: revision - 1, revision }
    }

    fn keys(log: &RemovalLog) -> Vec<&str> {
        log.pending().map(|(key, _)| &*key.id).collect()
    }

    #[test]
    fn removals_outlive_the_process_until_they_are_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let open = || RemovalLog::open(directory.path()).unwrap();
        let mut log = open();
        log.append([(key("a"), removal(5)), (key("b"), removal(6))].into()).unwrap();
        log.append([(key("c"), removal(7))].into()).unwrap();
        let mut log = open();
        assert_eq!(keys(&log), ["a", "b", "c"]);
        assert!(log.has(&key("c"), 6) && !log.has(&key("c"), 7) && !log.has(&key("d"), 6));
        log.clear().unwrap();
        assert_eq!(keys(&log), [""; 0]);
        log.append([(key("d"), removal(9))].into()).unwrap();
        assert_eq!(keys(&open()), ["d"], "older entries behind it do not count");
    }

    #[test]
    fn full_log_refuses_and_keeps_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = RemovalLog::open(directory.path()).unwrap();
        let mut count = 0;
        let error = loop {
            match log.append([(key(&format!("{count:0250}")), removal(count + 1))].into()) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(RemovalLog::open(directory.path()).unwrap().pending().count() as u64, count);
        log.clear().unwrap();
        log.append([(key("a"), removal(1))].into()).unwrap();
    }

    /// Any flipped bit: an error, or a log without the entries behind it, never another removal.
    #[test]
    fn damaged_log_has_no_other_removals() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = RemovalLog::open(directory.path()).unwrap();
        log.append([(key("a"), removal(5)), (key("b"), removal(6))].into()).unwrap();
        let end = log.end;
        let path = directory.path().join(REMOVALS_FILE);
        let good = fs::read(&path).unwrap();
        for bit in (0..24 * 8).chain(HEADER * 8..end * 8) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bad).unwrap();
            match RemovalLog::open(directory.path()) {
                Ok(log) => assert!(bit >= HEADER * 8 && ["a"].starts_with(&keys(&log)), "bit {bit}"),
                Err(error) => {
                    assert!(error.to_string().contains(REMOVALS_FILE) && bit < HEADER * 8, "{error}")
                }
            }
        }
    }
}
