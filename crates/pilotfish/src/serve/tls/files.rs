//! Certificate files of a secure listener: polled, compared, and put in force if they are valid.

use crate::settings::CertificateSource;
use anyhow::{Context, Result};
use pilotfish_identity::{Authorities, Pem, ServerCertificate};
use pilotfish_runtime::SecretFile;
use std::path::{Path, PathBuf};

/// Size limit of a file in bytes. A bundle of all public authorities has a quarter of that.
const LARGEST: u64 = 1 << 20;

/// Paths of the files of a listener.
#[derive(Clone)]
pub(crate) struct Files {
    /// Paths of certificate chain and key.
    certificate: Option<(PathBuf, PathBuf)>,
    authorities: Vec<PathBuf>,
}

/// Contents of the files. Without `Debug`, because they include a private key.
#[derive(PartialEq, Eq)]
pub(super) struct Texts {
    certificate: Option<(Text, Text)>,
    authorities: Vec<Text>,
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
            CertificateSource::Webhooks => None,
        };
        Self { certificate, authorities: authorities.to_vec() }
    }

    pub(super) fn read(&self) -> Result<Texts> {
        let certificate = match &self.certificate {
            Some((certificate, key)) => Some((Text::read(certificate)?, Text::read(key)?)),
            None => None,
        };
        let authorities = self.authorities.iter().map(|path| Text::read(path));
        Ok(Texts { certificate, authorities: authorities.collect::<Result<_>>()? })
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
        Ok((certificate, Authorities::from_pem(&authorities)?))
    }
}

/// Result of a poll of the files.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing changed, or nothing must be reported yet.
    Unchanged,
    /// New contents are in force.
    Reloaded,
    /// The files cannot be used, with the reason.
    Failed(String),
}

/// State of the files across polls.
pub(super) struct State {
    in_force: Texts,
    /// Set if the files could not be used at the last poll; inside, the reason if it was reported.
    failure: Option<Option<String>>,
}

impl State {
    /// Returns the state with contents in force.
    pub(super) fn new(in_force: Texts) -> Self {
        Self { in_force, failure: None }
    }

    /// True if the files could not be used for two polls, which is longer than it takes to write them.
    pub(super) fn is_failing(&self) -> bool {
        matches!(self.failure, Some(Some(_)))
    }

    /// Compares the contents read with those in force. A failure is reported only if it lasts until the next
    /// poll, because certificate and key do not match while they are written one after the other.
    pub(super) fn step(
        &mut self,
        read: Result<Texts, String>,
        put_in_force: impl FnOnce(&Texts) -> Result<()>,
    ) -> Outcome {
        let texts = match read {
            Ok(texts) if self.in_force == texts => {
                self.failure = None;
                return Outcome::Unchanged;
            }
            Ok(texts) => texts,
            Err(reason) => return self.fail(reason),
        };
        match put_in_force(&texts) {
            Ok(()) => {
                *self = Self::new(texts);
                Outcome::Reloaded
            }
            Err(error) => self.fail(format!("{error:#}")),
        }
    }

    fn fail(&mut self, reason: String) -> Outcome {
        let Some(reported) = &mut self.failure else {
            self.failure = Some(None);
            return Outcome::Unchanged;
        };
        if reported.as_ref() == Some(&reason) {
            return Outcome::Unchanged;
        }
        *reported = Some(reason.clone());
        Outcome::Failed(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Result<Texts, String> {
        let text = Text { path: "a".into(), bytes: text.into() };
        Ok(Texts { certificate: None, authorities: vec![text] })
    }

    #[test]
    fn changes_are_put_in_force_once_and_a_lasting_failure_is_reported_once() {
        let mut state = State::new(texts("one").ok().unwrap());
        let steps = [
            (texts("one"), Ok(()), Outcome::Unchanged, 0),
            (texts("two"), Ok(()), Outcome::Reloaded, 1),
            (texts("two"), Ok(()), Outcome::Unchanged, 0),
            // For a moment, the parts do not fit.
            (texts("half"), Err("odd"), Outcome::Unchanged, 1),
            (texts("three"), Ok(()), Outcome::Reloaded, 1),
            // Broken for longer.
            (texts("bad"), Err("odd"), Outcome::Unchanged, 1),
            (texts("bad"), Err("odd"), Outcome::Failed("odd".into()), 1),
            (texts("bad"), Err("odd"), Outcome::Unchanged, 1),
            (Err("gone".into()), Ok(()), Outcome::Failed("gone".into()), 0),
            (Err("gone".into()), Ok(()), Outcome::Unchanged, 0),
            // As before: nothing to reload, and no failure any more.
            (texts("three"), Ok(()), Outcome::Unchanged, 0),
            (texts("bad"), Err("odd"), Outcome::Unchanged, 1),
            (texts("four"), Ok(()), Outcome::Reloaded, 1),
        ];
        for (index, (read, good, outcome, tried)) in steps.into_iter().enumerate() {
            let mut tries = 0;
            let found = state.step(read, |_| {
                tries += 1;
                good.map_err(|reason: &str| anyhow::anyhow!(reason.to_owned()))
            });
            assert_eq!((found, tries), (outcome, tried), "step {index}");
        }
        assert!(!state.is_failing());
    }

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
