//! Folder with the certificate of a workload, its key and the roots.
//!
//! ```text
//! DIR/cert-chain.pem ─▶ ..data/cert-chain.pem      links that stay
//! DIR/..data         ─▶ ..certificates-17/         replaced by renaming, so that all files change at once
//! ```

use anyhow::{Context, Result};
use pilotfish_ca::{IssuedCertificate, WorkloadKey};
use pilotfish_identity::WorkloadId;
use pilotfish_runtime::read_regular_file;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const CHAIN: &str = "cert-chain.pem";
const KEY: &str = "key.pem";
const ROOTS: &str = "root-cert.pem";
/// Link to the folder of the version in force.
const CURRENT: &str = "..data";
/// Start of the names of versions.
const VERSION: &str = "..certificates-";
/// Size limit of a file in bytes.
const LARGEST: u64 = 1 << 20;

/// An output folder, locked for this process.
#[derive(Debug)]
pub(super) struct OutputFolder {
    path: PathBuf,
    /// The open folder, which has the lock.
    lock: File,
}

/// A certificate that an earlier run obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) certificate: IssuedCertificate,
    pub(super) obtained: SystemTime,
}

impl OutputFolder {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// # Errors
    /// When it cannot be created, or another process uses it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let at = || format!("--output-dir {}", path.display());
        DirBuilder::new().recursive(true).mode(0o755).create(path).with_context(at)?;
        let lock = File::open(path).with_context(at)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), lock }),
            Err(Errno::WOULDBLOCK) => {
                Err(anyhow::anyhow!("another process writes certificates to this folder").context(at()))
            }
            Err(error) => Err(error).with_context(at),
        }
    }

    /// Returns the certificate in the folder; `None` if there is none yet.
    ///
    /// # Errors
    /// When it cannot be read or used, for this identity.
    pub(super) fn kept(&self, identity: Option<WorkloadId<'_>>, now: SystemTime) -> Result<Option<Kept>> {
        let Some(version) = self.version()? else { return Ok(None) };
        let read = |name: &str| {
            let path = version.join(name);
            let bytes = read_regular_file(&path, LARGEST).with_context(|| path.display().to_string())?;
            String::from_utf8(bytes).with_context(|| path.display().to_string())
        };
        let key =
            WorkloadKey::from_pem(&read(KEY)?).with_context(|| version.join(KEY).display().to_string())?;
        let certificate = key.accept_pem(&read(CHAIN)?, &read(ROOTS)?, identity, now)?;
        let obtained = fs::metadata(version.join(CHAIN))?.modified()?;
        Ok(Some(Kept { certificate, obtained }))
    }

    /// Puts a key and its certificate in the place of those before. The version before remains until the next
    /// one, for readers that have begun to read it.
    ///
    /// # Errors
    /// When the folder cannot be written. The version before stays in force.
    pub(super) fn replace(&self, key: &WorkloadKey, certificate: &IssuedCertificate) -> io::Result<()> {
        let before = self.version()?;
        let number = 1 + self.versions()?.iter().filter_map(|path| number(path)).max().unwrap_or_default();
        let name = format!("{VERSION}{number}");
        let version = self.path.join(&name);
        DirBuilder::new().mode(0o755).create(&version)?;
        let written = write_version(&version, key, certificate).and_then(|()| self.link(CURRENT, &name));
        if let Err(error) = written {
            // A folder that cannot be removed now is removed with the next version.
            let _ = fs::remove_dir_all(&version);
            return Err(error);
        }
        for name in [CHAIN, KEY, ROOTS] {
            let target = format!("{CURRENT}/{name}");
            if fs::read_link(self.path.join(name)).ok().as_deref() != Some(Path::new(&target)) {
                self.link(name, &target)?;
            }
        }
        self.lock.sync_all()?;
        for old in self.versions()? {
            if old != version && Some(&old) != before.as_ref() {
                fs::remove_dir_all(old)?;
            }
        }
        Ok(())
    }

    /// Returns the folder of the version in force.
    fn version(&self) -> io::Result<Option<PathBuf>> {
        match fs::read_link(self.path.join(CURRENT)) {
            Ok(name) => Ok(Some(self.path.join(name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the folders of all versions.
    fn versions(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.path)?.map(|entry| entry.map(|entry| entry.path()));
        let all: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
        Ok(all.into_iter().filter(|path| number(path).is_some()).collect())
    }

    /// Replaces a file by a link to another one.
    fn link(&self, name: &str, target: &str) -> io::Result<()> {
        let new = self.path.join(format!("..new-{name}"));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(target, &new)?,
        }
        fs::rename(&new, self.path.join(name))
    }
}

/// Returns the number of a version.
fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(VERSION)?.parse().ok()
}

fn write_version(version: &Path, key: &WorkloadKey, certificate: &IssuedCertificate) -> io::Result<()> {
    let write = |name: &str, mode: u32, text: &str| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(version.join(name))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write(KEY, 0o600, &key.to_pem())?;
    write(CHAIN, 0o644, &certificate.chain)?;
    write(ROOTS, 0o644, &certificate.roots)?;
    File::open(version)?.sync_all()
}

#[cfg(test)]
mod tests;
