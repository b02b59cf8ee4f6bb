//! Certificate files of a secure listener: polled, compared, and put in force if they are valid.

use crate::serve::ca::Ca;
use crate::settings::CertificateSource;
use anyhow::{Context, Result};
use pilotfish_identity::{Authorities, Pem, ServerCertificate};
use pilotfish_runtime::SecretFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size limit of a file in bytes. A bundle of all public authorities has a quarter of that.
const LARGEST: u64 = 1 << 20;

/// Paths of the files of a listener.
#[derive(Clone)]
pub(crate) struct Files {
    /// Paths of certificate chain and key.
    certificate: Option<(PathBuf, PathBuf)>,
    authorities: Vec<PathBuf>,
    /// Pilotfish's own authority, whose certificates clients may present.
    own: Option<Arc<Ca>>,
}

/// Contents of the files. Without `Debug`, because they include a private key.
#[derive(PartialEq, Eq)]
pub(super) struct Texts {
    certificate: Option<(Text, Text)>,
    authorities: Vec<Text>,
    revocations: Vec<Text>,
}

#[derive(PartialEq, Eq)]
struct Text {
    path: String,
    bytes: Vec<u8>,
}

impl Files {
    /// Returns the files of a listener.
    pub(crate) fn of(certificate: &CertificateSource, authorities: &[PathBuf]) -> Self {
        let certificate = match certificate {
            CertificateSource::Files { certificate, key } => Some((certificate.clone(), key.clone())),
            CertificateSource::Webhooks | CertificateSource::Authority => None,
        };
        Self { certificate, authorities: authorities.to_vec(), own: None }
    }

    /// Accepts certificates of Pilotfish's own authority as well.
    pub(crate) fn with_authority(self, own: Option<Arc<Ca>>) -> Self {
        Self { own, ..self }
    }

    pub(super) fn read(&self) -> Result<Texts> {
        let certificate = match &self.certificate {
            Some((certificate, key)) => Some((Text::read(certificate)?, Text::read(key)?)),
            None => None,
        };
        let authorities = self.authorities.iter().map(|path| Text::read(path));
        let mut authorities: Vec<Text> = authorities.collect::<Result<_>>()?;
        let mut revocations = Vec::new();
        if let Some(ca) = &self.own {
            let text =
                |text: String| Text { path: "the certificate authority".into(), bytes: text.into_bytes() };
            let (roots, revoked) = ca.trusted_pem();
            authorities.push(text(roots));
            revocations.extend(revoked.map(text));
        }
        Ok(Texts { certificate, authorities, revocations })
    }
}

impl Text {
    fn read(path: &Path) -> Result<Self> {
        let mut file = SecretFile::new(path).with_limit(LARGEST).with_line_break();
        file.read()?;
        let content = file.content().context("nothing was read")?;
        Ok(Self { path: path.display().to_string(), bytes: content.as_bytes().to_vec() })
    }

    fn pem(&self) -> Pem<'_> {
        Pem { origin: &self.path, text: &self.bytes }
    }
}

impl Texts {
    /// Converts the contents for TLS; `kept` is the certificate if no files are configured for it.
    pub(super) fn material(
        &self,
        kept: Option<&ServerCertificate>,
    ) -> Result<(ServerCertificate, Authorities)> {
        let certificate = match (&self.certificate, kept) {
            (Some((chain, key)), _) => ServerCertificate::from_pem(chain.pem(), key.pem())?,
            (None, Some(kept)) => kept.clone(),
            (None, None) => anyhow::bail!("no certificate for TLS"),
        };
        let authorities: Vec<_> = self.authorities.iter().map(Text::pem).collect();
        let revocations: Vec<_> = self.revocations.iter().map(Text::pem).collect();
        Ok((certificate, Authorities::from_pem(&authorities)?.with_revocations(&revocations)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.pem");
        assert!(Text::read(&path).err().unwrap().to_string().contains("large.pem"));
        std::fs::write(&path, "x").unwrap();
        assert_eq!(Text::read(&path).unwrap().bytes, b"x");
        std::fs::write(&path, vec![b'x'; LARGEST as usize + 1]).unwrap();
        assert!(Text::read(&path).err().unwrap().to_string().contains("larger than"));
    }
}
