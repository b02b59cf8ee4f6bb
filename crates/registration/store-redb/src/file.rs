//! The database file: opening, reading and transactions.

use crate::OpenError;
use crate::codec::{decode, decode_key, encode, encode_key};
use crate::error::corrupt;
use crate::fixed::sync_folder;
use crate::interner::Interner;
use pilotfish_registration::{InstanceKey, Record};
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageBackend as _,
    StorageError, Table, TableDefinition, TableError, WriteTransaction,
};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

/// Format of written files. A file with another format is not modified.
const FORMAT: u64 = 1;
/// Size of the page cache, which also holds uncommitted pages.
const CACHE_BYTES: usize = 32 << 20;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const FORMAT_NUMBER: &str = "format";
const REVISION_NUMBER: &str = "revision";

/// An open file, locked against other processes.
pub(crate) struct RecordFile {
    path: PathBuf,
    database: Database,
}

/// Result of opening a file.
pub(crate) enum Opened {
    Verified(RecordFile, Contents),
    /// The newest commit is invalid. The file was not modified.
    Unverified,
}

/// Progress values of a repair that drops the newest commit; otherwise a repair goes from 0 to 0.6.
const FALLS_BACK: std::ops::Range<f64> = 0.1..0.5;

/// All content of a file.
pub(crate) struct Contents {
    pub(crate) revision: u64,
    pub(crate) records: Vec<Arc<Record>>,
}

/// Error of a file or disk.
#[derive(Debug)]
pub(crate) enum FileError {
    /// The disk or a quota is full.
    Full(String),
    /// An IO error or another error of redb.
    Other(String),
}

/// Error of reading an open file.
enum ReadError {
    Disk(redb::Error),
    Damaged(String),
}

impl From<redb::Error> for ReadError {
    fn from(error: redb::Error) -> Self {
        Self::Disk(error)
    }
}

/// Tables of a write transaction.
pub(crate) struct Transaction<'txn> {
    records: Table<'txn, &'static [u8], &'static [u8]>,
    numbers: Table<'txn, &'static str, u64>,
    interner: Interner,
}

impl RecordFile {
    /// Creates a new file with a revision, or no file at all.
    pub(crate) fn create(path: &Path, revision: u64) -> Result<(), OpenError> {
        let at = |source| OpenError::Io { path: path.to_owned(), source };
        let new = path.with_extension("redb.new");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&new).map_err(at)?;
        let backend = FileBackend::new(file).map_err(|error| open_error(path, error))?;
        // Discards the rest of an earlier attempt.
        backend.set_len(0).map_err(at)?;
        let database =
            Builder::new().create_with_backend(backend).map_err(|error| open_error(path, error))?;
        let file = Self { path: path.to_owned(), database };
        file.initialize(revision).map_err(|error| file.open_error(error.into()))?;
        drop(file);
        fs::rename(&new, path).and_then(|()| sync_folder(path)).map_err(at)
    }

    /// Opens and reads an existing file. With `may_fall_back`, an invalid newest commit is dropped; otherwise
    /// [`Opened::Unverified`] is returned, and the file is not modified.
    pub(crate) fn open(path: &Path, may_fall_back: bool) -> Result<Opened, OpenError> {
        let at = |source| OpenError::Io { path: path.to_owned(), source };
        if fs::metadata(path).map_err(at)?.len() == 0 {
            return Err(corrupt(path, "it has no bytes".to_owned()));
        }
        // redb may panic on a damaged file.
        let opened = catch_unwind(AssertUnwindSafe(|| match may_fall_back || header_verifies(path)? {
            true => Self::read(path, may_fall_back),
            false => Ok(Opened::Unverified),
        }));
        opened.unwrap_or_else(|panic| Err(corrupt(path, panic_message(&*panic))))
    }

    fn read(path: &Path, may_fall_back: bool) -> Result<Opened, OpenError> {
        let at = |source| OpenError::Io { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(at)?;
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
        if !may_fall_back {
            // redb reports this progress before it drops the newest commit.
            builder.set_repair_callback(|repair| {
                if FALLS_BACK.contains(&repair.progress()) {
                    repair.abort();
                }
            });
        }
        let backend = FileBackend::new(file).map_err(|error| open_error(path, error))?;
        let database = match builder.create_with_backend(backend) {
            Err(DatabaseError::RepairAborted) => return Ok(Opened::Unverified),
            database => database.map_err(|error| open_error(path, error))?,
        };
        let file = Self { path: path.to_owned(), database };
        file.check_format()?;
        let contents = file.contents().map_err(|error| file.open_error(error))?;
        Ok(Opened::Verified(file, contents))
    }

    /// Raises the revision without a change.
    pub(crate) fn raise_revision(&self, revision: u64) -> Result<(), OpenError> {
        let raised = self.transact(|transaction| Ok((transaction.set_revision(revision)?, true)));
        raised.map_err(|error| match error {
            FileError::Full(why) | FileError::Other(why) => {
                OpenError::Io { path: self.path.clone(), source: io::Error::other(why) }
            }
        })
    }

    fn check_format(&self) -> Result<(), OpenError> {
        let broken = |error: redb::Error| self.open_error(error.into());
        match self.number(FORMAT_NUMBER).map_err(broken)? {
            Some(FORMAT) => Ok(()),
            Some(found) => Err(OpenError::Format { path: self.path.clone(), found, known: FORMAT }),
            None => Err(corrupt(&self.path, "it says no format".to_owned())),
        }
    }

    /// Distinguishes disk errors from damage.
    fn open_error(&self, error: ReadError) -> OpenError {
        let path = self.path.clone();
        match error {
            ReadError::Disk(redb::Error::Io(source)) if !is_damage(&source) => OpenError::Io { path, source },
            ReadError::Disk(error) => corrupt(&path, error.to_string()),
            ReadError::Damaged(why) => corrupt(&path, why),
        }
    }

    fn initialize(&self, revision: u64) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(RECORDS)?;
        {
            let mut numbers = transaction.open_table(NUMBERS)?;
            numbers.insert(FORMAT_NUMBER, FORMAT)?;
            numbers.insert(REVISION_NUMBER, revision)?;
        }
        Ok(transaction.commit()?)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, redb::Error> {
        let numbers = match self.database.begin_read()?.open_table(NUMBERS) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            numbers => numbers?,
        };
        Ok(numbers.get(name)?.map(|number| number.value()))
    }

    fn contents(&self) -> Result<Contents, ReadError> {
        let revision = self.number(REVISION_NUMBER)?.unwrap_or_default();
        let mut interner = Interner::default();
        let mut records = Vec::new();
        let table = self.database.begin_read().map_err(redb::Error::from)?;
        let table = table.open_table(RECORDS).map_err(redb::Error::from)?;
        for entry in table.iter().map_err(redb::Error::from)? {
            let (key, value) = entry.map_err(redb::Error::from)?;
            let key = decode_key(key.value(), &mut interner).map_err(ReadError::Damaged)?;
            let record = decode(key, value.value(), &mut interner).map_err(ReadError::Damaged)?;
            if record.revision > revision {
                let key = &record.instance.key;
                return Err(ReadError::Damaged(format!("the record of {key} is newer than the file")));
            }
            records.push(Arc::new(record));
        }
        Ok(Contents { revision, records })
    }

    /// Returns the record of a key.
    pub(crate) fn get(&self, key: &InstanceKey) -> Result<Option<Record>, FileError> {
        let run = || {
            let records =
                self.database.begin_read().map_err(disk_error)?.open_table(RECORDS).map_err(disk_error)?;
            let Some(stored) = records.get(encode_key(key).as_slice()).map_err(disk_error)? else {
                return Ok(None);
            };
            decode(key.clone(), stored.value(), &mut Interner::default()).map(Some).map_err(FileError::Other)
        };
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Err(FileError::Other(panic_message(&*panic))))
    }

    /// Runs a transaction, and commits it durably if its closure reports a change. After any error the file
    /// must be opened again.
    pub(crate) fn transact<T>(
        &self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<(T, bool), FileError>,
    ) -> Result<T, FileError> {
        let run = || {
            let transaction = self.database.begin_write().map_err(disk_error)?;
            let (answer, has_changed) = Transaction::run(&transaction, change)?;
            match has_changed {
                true => transaction.commit().map_err(disk_error)?,
                false => transaction.abort().map_err(disk_error)?,
            }
            Ok(answer)
        };
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Err(FileError::Other(panic_message(&*panic))))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Transaction<'_> {
    fn run<T>(
        transaction: &WriteTransaction,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let mut tables = Transaction {
            records: transaction.open_table(RECORDS).map_err(disk_error)?,
            numbers: transaction.open_table(NUMBERS).map_err(disk_error)?,
            interner: Interner::default(),
        };
        change(&mut tables)
    }

    pub(crate) fn get(&mut self, key: &InstanceKey) -> Result<Option<Record>, FileError> {
        let Some(stored) = self.records.get(encode_key(key).as_slice()).map_err(disk_error)? else {
            return Ok(None);
        };
        decode(key.clone(), stored.value(), &mut self.interner).map(Some).map_err(FileError::Other)
    }

    pub(crate) fn put(&mut self, record: &Record) -> Result<(), FileError> {
        let key = encode_key(&record.instance.key);
        self.records.insert(key.as_slice(), encode(record).as_slice()).map_err(disk_error)?;
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &InstanceKey) -> Result<(), FileError> {
        self.records.remove(encode_key(key).as_slice()).map_err(disk_error)?;
        Ok(())
    }

    pub(crate) fn set_revision(&mut self, revision: u64) -> Result<(), FileError> {
        self.numbers.insert(REVISION_NUMBER, revision).map_err(disk_error)?;
        Ok(())
    }
}

/// True if the newest commit in the header is valid; all other checksums depend on it. redb itself would
/// silently use the previous one.
fn header_verifies(path: &Path) -> Result<bool, OpenError> {
    let mut header = [0; HEADER_BYTES];
    match File::open(path).and_then(|file| file.read_exact_at(&mut header, 0)) {
        Ok(()) => Ok(newest_commit_verifies(&header)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(corrupt(path, "it is too short".to_owned()))
        }
        Err(source) => Err(OpenError::Io { path: path.to_owned(), source }),
    }
}

/// Size of redb's header in bytes.
const HEADER_BYTES: usize = 320;

/// Checks the header of redb's file format 3: the lowest bit of a byte selects one of two commits, each with
/// a number and a checksum.
fn newest_commit_verifies(header: &[u8; HEADER_BYTES]) -> bool {
    const CHOICE: usize = 9;
    const COMMITS: [usize; 2] = [64, 192];
    const NUMBER: usize = 104;
    const CHECKSUM: usize = 112;
    let number = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let is_whole = |at: usize| {
        let stored =
            header.get(at + CHECKSUM..at + CHECKSUM + 16)?.try_into().ok().map(u128::from_le_bytes)?;
        Some(xxh3_128(header.get(at..at + CHECKSUM)?) == stored)
    };
    let [first, second] = COMMITS;
    let (newest, before) = if header[CHOICE] & 1 == 0 { (first, second) } else { (second, first) };
    is_whole(newest) == Some(true) && number(newest + NUMBER) >= number(before + NUMBER)
}

fn open_error(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => OpenError::InUse { path },
        DatabaseError::UpgradeRequired(found) => {
            OpenError::Format { path, found: found.into(), known: FORMAT }
        }
        DatabaseError::Storage(StorageError::Io(source)) if !is_damage(&source) => {
            OpenError::Io { path, source }
        }
        error => corrupt(&path, error.to_string()),
    }
}

/// True if the error means a damaged file and not a disk error.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

fn disk_error(error: impl Into<redb::Error>) -> FileError {
    let error = error.into();
    let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    match &error {
        redb::Error::Io(source) if full.contains(&source.kind()) => FileError::Full(source.to_string()),
        _ => FileError::Other(error.to_string()),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it cannot be read".to_owned())
}
