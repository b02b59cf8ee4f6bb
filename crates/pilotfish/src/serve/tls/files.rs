//! The files of a secure listener: read whole, compared, and put in force when they are good.

use crate::settings::{CertificateSource, TlsSettings};
use anyhow::{Context, Result, ensure};
use pilotfish_identity::{Authorities, Pem, ServerCertificate};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file, in bytes. A bundle of all public authorities has a quarter of that.
const LARGEST: u64 = 1 << 20;

/// Where they are.
#[derive(Clone)]
pub(super) struct Files {
    /// Chain and key.
    certificate: Option<(PathBuf, PathBuf)>,
    authorities: Vec<PathBuf>,
}

/// What is in them. It holds a key, so it is not shown.
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
    pub(super) fn of(settings: &TlsSettings) -> Self {
        let certificate = match &settings.certificate {
            CertificateSource::Files { certificate, key } => Some((certificate.clone(), key.clone())),
            CertificateSource::Webhooks => None,
        };
        Self { certificate, authorities: settings.authorities.clone() }
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
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).with_context(|| name.clone())?;
        file.take(LARGEST + 1).read_to_end(&mut bytes).with_context(|| name.clone())?;
        ensure!(bytes.len() as u64 <= LARGEST, "{name}: larger than {LARGEST} bytes");
        Ok(Self { path: name, bytes })
    }

    fn pem(&self) -> Pem<'_> {
        Pem { origin: &self.path, text: &self.bytes }
    }
}

impl Texts {
    /// As TLS takes it; `kept` is the certificate where no files are named for it.
    pub(super) fn material(
        &self,
        kept: Option<&ServerCertificate>,
    ) -> Result<(ServerCertificate, Authorities)> {
        let certificate = match (&self.certificate, kept) {
            (Some((chain, key)), _) => ServerCertificate::from_pem(chain.pem(), key.pem())?,
            (None, Some(kept)) => kept.clone(),
            (None, None) => anyhow::bail!("no certificate for xDS over TLS"),
        };
        let authorities: Vec<_> = self.authorities.iter().map(Text::pem).collect();
        Ok((certificate, Authorities::from_pem(&authorities)?))
    }
}

/// What is logged after a check of the files.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// New ones are in force.
    Renewed,
    /// They cannot be used, and why.
    Trouble(String),
}

/// What is known of the files.
pub(super) struct State {
    in_force: Texts,
    /// They could not be used at the last check; inside, what was logged about it.
    trouble: Option<Option<String>>,
}

impl State {
    /// Those are in force.
    pub(super) fn new(in_force: Texts) -> Self {
        Self { in_force, trouble: None }
    }

    /// Whether the files cannot be used, for longer than it takes to write them.
    pub(super) fn is_in_trouble(&self) -> bool {
        matches!(self.trouble, Some(Some(_)))
    }

    /// Checks the files. Trouble is logged when it persists at the next check: a writer of certificate and key one after the
    /// other has a pair that does not fit for a moment.
    pub(super) fn step(
        &mut self,
        read: Result<Texts, String>,
        put_in_force: impl FnOnce(&Texts) -> Result<()>,
    ) -> Told {
        let texts = match read {
            Ok(texts) if self.in_force == texts => {
                self.trouble = None;
                return Told::Nothing;
            }
            Ok(texts) => texts,
            Err(reason) => return self.fail(reason),
        };
        match put_in_force(&texts) {
            Ok(()) => {
                *self = Self::new(texts);
                Told::Renewed
            }
            Err(error) => self.fail(format!("{error:#}")),
        }
    }

    fn fail(&mut self, reason: String) -> Told {
        let Some(told) = &mut self.trouble else {
            self.trouble = Some(None);
            return Told::Nothing;
        };
        if told.as_ref() == Some(&reason) {
            return Told::Nothing;
        }
        *told = Some(reason.clone());
        Told::Trouble(reason)
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
    fn changes_are_put_in_force_once_and_lasting_trouble_is_told_once() {
        let mut state = State::new(texts("one").ok().unwrap());
        let steps = [
            (texts("one"), Ok(()), Told::Nothing, 0),
            (texts("two"), Ok(()), Told::Renewed, 1),
            (texts("two"), Ok(()), Told::Nothing, 0),
            // For a moment, the parts do not fit.
            (texts("half"), Err("odd"), Told::Nothing, 1),
            (texts("three"), Ok(()), Told::Renewed, 1),
            // Broken for longer.
            (texts("bad"), Err("odd"), Told::Nothing, 1),
            (texts("bad"), Err("odd"), Told::Trouble("odd".into()), 1),
            (texts("bad"), Err("odd"), Told::Nothing, 1),
            (Err("gone".into()), Ok(()), Told::Trouble("gone".into()), 0),
            (Err("gone".into()), Ok(()), Told::Nothing, 0),
            // As before: nothing to renew, and no trouble any more.
            (texts("three"), Ok(()), Told::Nothing, 0),
            (texts("bad"), Err("odd"), Told::Nothing, 1),
            (texts("four"), Ok(()), Told::Renewed, 1),
        ];
        for (index, (read, good, told, tried)) in steps.into_iter().enumerate() {
            let mut tries = 0;
            let found = state.step(read, |_| {
                tries += 1;
                good.map_err(|reason: &str| anyhow::anyhow!(reason.to_owned()))
            });
            assert_eq!((found, tries), (told, tried), "step {index}");
        }
        assert!(!state.is_in_trouble());
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
