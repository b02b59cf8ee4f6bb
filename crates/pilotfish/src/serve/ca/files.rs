//! Files of the certificate authority.

use anyhow::{Context, Result, bail};
use pilotfish_ca::{Authority, AuthorityPem, SelfSigned};
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
/// Names of certificate, key, chain and roots, as Istio's plug-in CA has them.
const ISTIO: [&str; 4] = ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"];
/// Names as cert-manager has them; the chain follows the certificate.
const CERT_MANAGER: [&str; 4] = ["tls.crt", "tls.key", "", "ca.crt"];

/// Files of an authority.
#[derive(Clone, Debug)]
pub(super) enum AuthorityFiles {
    /// A file with key and certificate that this process created.
    Single(PathBuf),
    /// A folder with files of Istio's or cert-manager's names.
    Folder(PathBuf),
}

/// Contents of the files. Without `Debug`, because they include a private key.
#[derive(PartialEq, Eq)]
pub(super) struct AuthorityTexts {
    certificate: Text,
    key: Text,
    chain: Option<Text>,
    roots: Option<Text>,
}

#[derive(Clone, PartialEq, Eq)]
struct Text {
    path: String,
    bytes: Vec<u8>,
}

impl Text {
    fn pem(&self) -> Pem<'_> {
        Pem { origin: &self.path, text: &self.bytes }
    }
}

impl AuthorityFiles {
    /// Returns the file of a self-signed authority in this folder, and creates both if they do not exist.
    ///
    /// # Errors
    /// When they cannot be created.
    pub(super) fn self_signed(folder: &Path, now: SystemTime) -> Result<Self> {
        let at = || folder.display().to_string();
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(at)?;
        let path = folder.join(SELF_SIGNED);
        if !path.try_exists().with_context(|| path.display().to_string())? {
            let made = SelfSigned::create(now)?;
            let text = format!("{}{}", made.certificate, made.key);
            create(&path, text.as_bytes()).with_context(|| path.display().to_string())?;
        }
        Ok(Self::Single(path))
    }

    /// Reads the files; blocks.
    ///
    /// # Errors
    /// When one cannot be read, or others may read the key that this process created.
    pub(super) fn read(&self) -> Result<AuthorityTexts> {
        let folder = match self {
            Self::Single(path) => {
                let (text, mode) = read(path)?.with_context(|| format!("{} is missing", path.display()))?;
                if mode & 0o077 != 0 {
                    let path = path.display();
                    bail!(
                        "{path} holds the key of the certificate authority, and others may read it: \
                         chmod 600 {path}"
                    );
                }
                return Ok(AuthorityTexts { certificate: text.clone(), key: text, chain: None, roots: None });
            }
            Self::Folder(folder) => folder,
        };
        let names = match read(&folder.join(ISTIO[0]))? {
            Some(_) => ISTIO,
            None => CERT_MANAGER,
        };
        let [certificate, key, chain, roots] = names;
        let optional = |name: &str| match name {
            "" => Ok(None),
            name => Ok::<_, anyhow::Error>(read(&folder.join(name))?.map(|(text, _)| text)),
        };
        let needed = |name: &str| {
            optional(name)?.with_context(|| {
                format!(
                    "{}: neither {} and {} nor {} and {}",
                    folder.display(),
                    ISTIO[0],
                    ISTIO[1],
                    CERT_MANAGER[0],
                    CERT_MANAGER[1]
                )
            })
        };
        Ok(AuthorityTexts {
            certificate: needed(certificate)?,
            key: needed(key)?,
            chain: optional(chain)?,
            roots: optional(roots)?,
        })
    }
}

impl AuthorityTexts {
    /// Returns the authority of these texts.
    ///
    /// # Errors
    /// When they cannot be used.
    pub(super) fn authority(&self, now: SystemTime) -> Result<Authority> {
        let texts = AuthorityPem {
            certificate: self.certificate.pem(),
            key: self.key.pem(),
            chain: self.chain.as_ref().map(Text::pem),
            roots: self.roots.as_ref().map(Text::pem),
        };
        Ok(Authority::from_pem(&texts, now)?)
    }
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

/// Creates a file for this user only, complete or not at all. If another process was faster, its file stays.
fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    let linked = match fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    };
    fs::remove_file(&new)?;
    linked?;
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::File::open(folder)?.sync_all()
}
