//! Files of the certificate authority.

use super::issuer::Issuer;
use anyhow::{Context, Result, bail};
use pilotfish_ca::{Authority, AuthorityPem, ExternalAuthority, RootState, Rotation, SelfSigned};
use pilotfish_identity::Pem;
use pilotfish_runtime::{RegularFile, RegularFileError};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Size limit of a file in bytes.
const LARGEST: u64 = 1 << 20;
/// Name of the file with key and certificate of a self-signed authority, in one, so that they are created
/// together.
const SELF_SIGNED: &str = "ca.pem";
/// Extension of the file that becomes the one of a self-signed authority. A crash may leave it; the next
/// process that takes the lock removes it.
const UNFINISHED: &str = "new";
/// Extension of the file whose lock a process takes to create or replace the one of a self-signed authority.
const LOCK: &str = "lock";
/// Names of certificate, key, chain and roots, as Istio's plug-in CA has them.
const ISTIO: [&str; 4] = ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"];
/// Names as cert-manager has them; the chain follows the certificate.
const CERT_MANAGER: [&str; 4] = ["tls.crt", "tls.key", "", "ca.crt"];

/// Lists of revoked certificates, beside the files of either form.
const REVOCATIONS: &str = "ca-crl.pem";

/// Names of files with a key.
const KEYS: [&str; 2] = [ISTIO[1], CERT_MANAGER[1]];
/// Permissions that the file of a created key may have.
const OWNER_ONLY: u32 = 0o700;
/// Permissions that the file of a plug-in key may have: Kubernetes gives files of a volume to the group of a
/// process that is not root.
const OWNER_AND_GROUP: u32 = 0o750;

/// Files of an authority.
#[derive(Clone, Debug)]
pub(super) enum AuthorityFiles {
    /// A file with key and certificate that this process created.
    Single(PathBuf),
    /// A folder with files of Istio's or cert-manager's names.
    Folder(PathBuf),
    /// A file with the roots of an external signer.
    Roots(PathBuf),
}

/// Key and certificates of an authority. Without `Debug`, because they include a private key.
#[derive(PartialEq, Eq)]
pub(super) struct AuthorityTexts {
    /// The certificate that signs; without a key, the roots.
    certificate: Text,
    /// `None` if an external signer has it.
    key: Option<Text>,
    chain: Option<Text>,
    roots: Option<Text>,
    /// Lists of revoked certificates.
    revocations: Option<Text>,
    rotation: Option<Rotation>,
}

/// One of the texts, with the path of its file or the entry of its Secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

impl Text {
    fn pem(&self) -> Pem<'_> {
        Pem { origin: &self.path, text: &self.bytes }
    }
}

impl AuthorityFiles {
    /// Returns the file of a self-signed authority in this folder.
    pub(super) fn kept_in(folder: &Path) -> Self {
        Self::Single(folder.join(SELF_SIGNED))
    }

    /// Returns the file of a self-signed authority in this folder, and creates both if they do not exist.
    ///
    /// # Errors
    /// When they cannot be created.
    pub(super) fn self_signed(folder: &Path, now: SystemTime) -> Result<Self> {
        let at = || folder.display().to_string();
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(at)?;
        let path = folder.join(SELF_SIGNED);
        let at = || path.display().to_string();
        let is_complete =
            || Ok::<_, io::Error>(path.try_exists()? && !path.with_extension(UNFINISHED).try_exists()?);
        if is_complete().with_context(at)? {
            return Ok(Self::Single(path));
        }
        let _lock = lock(&path)?;
        // Another process may have been faster.
        if !path.try_exists().with_context(at)? {
            let made = SelfSigned::create(now)?;
            put(&path, format!("{}{}", made.certificate, made.key).as_bytes()).with_context(at)?;
        }
        Ok(Self::Single(path))
    }

    /// Reads the files; blocks.
    ///
    /// # Errors
    /// When one cannot be read, or others may read the key.
    pub(super) fn read(&self) -> Result<AuthorityTexts> {
        match self {
            Self::Single(path) => Ok(AuthorityTexts::of_state(path, read_state(path)?)),
            Self::Roots(path) => {
                let found = read(path)?.with_context(|| format!("{} is missing", path.display()))?;
                Ok(AuthorityTexts {
                    certificate: found.0,
                    key: None,
                    chain: None,
                    roots: None,
                    revocations: None,
                    rotation: None,
                })
            }
            Self::Folder(folder) => AuthorityTexts::of(&folder.display().to_string(), |name| {
                let path = folder.join(name);
                if KEYS.contains(&name) {
                    return read_key(&path, OWNER_AND_GROUP);
                }
                Ok(read(&path)?.map(|(text, _)| text))
            }),
        }
    }
}

impl AuthorityTexts {
    /// Reads the texts under the names of Istio's plug-in CA, or else of cert-manager. `read` returns `None`
    /// for a missing one; an empty one counts as missing.
    ///
    /// # Errors
    /// When one cannot be read, or a needed one is missing.
    pub(super) fn of(origin: &str, read: impl Fn(&str) -> Result<Option<Text>>) -> Result<Self> {
        // An empty list is one that is being written, and must not end all revocations.
        let revocations = read(REVOCATIONS)?;
        let read = |name: &str| match name {
            "" => Ok(None),
            name => Ok::<_, anyhow::Error>(read(name)?.filter(|text| !text.bytes.is_empty())),
        };
        let names = if read(ISTIO[0])?.is_some() { ISTIO } else { CERT_MANAGER };
        let [certificate, key, chain, roots] = names;
        let needed = |name: &str| {
            read(name)?.with_context(|| {
                let ([certificate, key, ..], [other, other_key, ..]) = (ISTIO, CERT_MANAGER);
                format!("{origin}: neither {certificate} and {key} nor {other} and {other_key}")
            })
        };
        Ok(Self {
            certificate: needed(certificate)?,
            key: Some(needed(key)?),
            chain: read(chain)?,
            roots: read(roots)?,
            revocations,
            rotation: None,
        })
    }

    /// Returns the texts of a self-signed authority.
    fn of_state(path: &Path, state: RootState) -> Self {
        let text = |text: String| Text { path: path.display().to_string(), bytes: text.into_bytes() };
        let RootState { certificate, key, roots, rotation } = state;
        let (certificate, key, roots) = (text(certificate), Some(text(key)), Some(text(roots)));
        Self { certificate, key, chain: None, roots, revocations: None, rotation }
    }

    /// Returns the texts with the rotation that is under way.
    pub(super) fn with_rotation(self, rotation: Option<Rotation>) -> Self {
        Self { rotation, ..self }
    }

    /// Keeps the lists of revoked certificates of the texts before if these have none, and returns the path
    /// of the kept lists: their removal must not make revoked certificates valid.
    pub(super) fn keep_revocations(&mut self, before: &Self) -> Option<&str> {
        if self.revocations.is_some() {
            return None;
        }
        self.revocations.clone_from(&before.revocations);
        self.revocations.as_ref().map(|lists| lists.path.as_str())
    }

    /// Removes kept lists of revoked certificates if the authority of these texts cannot be used with them,
    /// and has nothing in common with the one in force, whose certificates they revoke. True if it did.
    pub(super) fn end_revocations(&mut self, in_force: &Issuer, now: SystemTime) -> bool {
        if self.authority(now).is_ok() {
            return false;
        }
        let lists = self.revocations.take();
        let is_other = self.authority(now).is_ok_and(|authority| !authority.shares_key_with(in_force));
        if !is_other {
            self.revocations = lists;
        }
        is_other
    }

    /// Returns the rotation that is under way.
    pub(super) fn rotation(&self) -> Option<&Rotation> {
        self.rotation.as_ref()
    }

    /// Returns the file or Secret of the certificate that signs.
    pub(super) fn origin(&self) -> &str {
        &self.certificate.path
    }

    /// Returns the authority of these texts.
    ///
    /// # Errors
    /// When they cannot be used.
    pub(super) fn authority(&self, now: SystemTime) -> Result<Issuer> {
        let Some(key) = &self.key else {
            return Ok(Issuer::External(ExternalAuthority::from_pem(self.certificate.pem(), now)?));
        };
        let texts = AuthorityPem {
            certificate: self.certificate.pem(),
            key: key.pem(),
            chain: self.chain.as_ref().map(Text::pem),
            roots: self.roots.as_ref().map(Text::pem),
        };
        let authority = Authority::from_pem(&texts, now)?;
        Ok(Issuer::Own(Box::new(match &self.revocations {
            Some(lists) => authority.with_revocations(lists.pem(), now)?,
            None => authority,
        })))
    }
}

/// Reads the state of a self-signed authority in this file.
///
/// # Errors
/// When it cannot be read.
pub(super) fn read_state(path: &Path) -> Result<RootState> {
    let text = read_key(path, OWNER_ONLY)?.with_context(|| format!("{} is missing", path.display()))?;
    let pem = str::from_utf8(&text.bytes).with_context(|| text.path.clone())?;
    RootState::from_pem(pem).map_err(anyhow::Error::msg).with_context(|| text.path.clone())
}

/// Replaces the file of a self-signed authority, if it still has the state `before`.
///
/// # Errors
/// When it cannot be written, or was changed.
pub(super) fn replace_state(path: &Path, before: &RootState, after: &RootState) -> Result<()> {
    let _lock = lock(path)?;
    if read_state(path)? != *before {
        bail!("{} was changed in the meantime", path.display());
    }
    put(path, after.to_pem().as_bytes()).with_context(|| path.display().to_string())
}

/// Reads the file of a key; `None` if it does not exist.
///
/// # Errors
/// When it cannot be read, or has other permissions than the allowed ones.
fn read_key(path: &Path, allowed: u32) -> Result<Option<Text>> {
    let Some((text, mode)) = read(path)? else { return Ok(None) };
    if mode & 0o777 & !allowed == 0 {
        return Ok(Some(text));
    }
    let path = path.display();
    let hint = match allowed {
        OWNER_ONLY => format!("chmod 600 {path}"),
        _ => format!("chmod 640 {path}, or defaultMode: 0440 of a volume"),
    };
    bail!(
        "{path} holds the key of the certificate authority, and others may read or write it (mode {:03o}): \
         {hint}",
        mode & 0o777
    )
}

/// Reads a file with its mode; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<(Text, u32)>> {
    let opened = RegularFile::open(path).and_then(|file| {
        let mode = file.metadata().mode();
        Ok((file.read(LARGEST)?, mode))
    });
    match opened {
        Ok((bytes, mode)) => Ok(Some((Text { path: path.display().to_string(), bytes }, mode))),
        Err(error) if error.is_absent() => Ok(None),
        Err(error @ RegularFileError::Io(_)) => Err(error).with_context(|| path.display().to_string()),
        Err(error) => bail!("{} {error}", path.display()),
    }
}

/// Takes the lock that processes need to create or replace a file, and removes what another one left when it
/// crashed with the lock. Blocks while another process has it. It ends with the file that is returned.
///
/// # Errors
/// When the lock's file cannot be created or locked.
fn lock(path: &Path) -> Result<fs::File> {
    let name = path.with_extension(LOCK);
    let at = || name.display().to_string();
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&name);
    let file = file.with_context(at)?;
    file.lock().with_context(at)?;
    let unfinished = path.with_extension(UNFINISHED);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| unfinished.display().to_string())
        }
        _ => Ok(file),
    }
}

/// Writes a file for this user only, complete or not at all, under its lock.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension(UNFINISHED);
    let written = write_new(&new, content).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // It holds a key. The first error is returned.
        let _ = fs::remove_file(&new);
    }
    written?;
    sync_folder(path)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::File::open(folder)?.sync_all()
}
