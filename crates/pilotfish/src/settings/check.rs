//! Collects mistakes: a wrong value is replaced by its default, so that all mistakes are reported at once.

use super::CertificateSource;
use std::fmt;
use std::path::Path;

/// Everything that is wrong with the settings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistakes {
    /// Messages of the mistakes, without line breaks.
    pub(crate) lines: Vec<String>,
    /// Flags as they were probably meant.
    pub(crate) hints: Vec<String>,
}

impl From<Vec<String>> for Mistakes {
    fn from(lines: Vec<String>) -> Self {
        Self { lines, hints: Vec::new() }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.lines.len() == 1 { "setting is" } else { "settings are" };
        write!(f, "{} {plural} wrong:", self.lines.len())?;
        for mistake in &self.lines {
            write!(f, "\n  {mistake}")?;
        }
        for hint in &self.hints {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Only one of a certificate and its key is named, which was noted as a mistake.
pub(super) struct HalfNamed;

/// Collects mistakes while the groups are checked.
#[derive(Default)]
pub(super) struct Check {
    mistakes: Vec<String>,
    hints: Vec<String>,
}

impl Check {
    /// A mistake that names its flag itself.
    pub(super) fn mistake(&mut self, text: impl Into<String>) {
        self.mistakes.push(text.into());
    }

    /// A flag as it was probably meant.
    pub(super) fn hint(&mut self, flag: String) {
        self.hints.push(flag);
    }

    /// A flag whose value is wrong, and why.
    pub(super) fn wrong(&mut self, flag: &str, value: &str, why: &str) {
        self.mistakes.push(format!("{flag} {value:?}: {why}"));
    }

    /// Something that is named must be there.
    pub(super) fn exists(&mut self, flag: &str, path: &Path) {
        if let Err(error) = std::fs::metadata(path) {
            self.wrong(flag, &path.to_string_lossy(), &error.to_string());
        }
    }

    /// A certificate and its key, each with its flag: `None` where neither is named, and a mistake where one
    /// is missing.
    pub(super) fn certificate(
        &mut self,
        certificate: (&str, Option<&Path>),
        key: (&str, Option<&Path>),
    ) -> Result<Option<CertificateSource>, HalfNamed> {
        let (named, missing) = match (certificate.1, key.1) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => {
                let files = CertificateSource::Files { certificate: certificate.into(), key: key.into() };
                return Ok(Some(files));
            }
            (Some(path), None) => ((certificate.0, path), key.0),
            (None, Some(path)) => ((key.0, path), certificate.0),
        };
        self.wrong(named.0, &named.1.to_string_lossy(), &format!("it needs {missing}, too"));
        Err(HalfNamed)
    }

    /// The value of a flag; `None` where it was not given or is wrong, which then is a mistake.
    pub(super) fn parse<T>(
        &mut self,
        flag: &str,
        value: Option<&str>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = value?;
        parse(value).inspect_err(|why| self.wrong(flag, value, why)).ok()
    }

    /// # Errors
    /// All mistakes, where there are some.
    pub(super) fn finish<T>(self, checked: T) -> Result<T, Mistakes> {
        if self.mistakes.is_empty() {
            return Ok(checked);
        }
        Err(Mistakes { lines: self.mistakes, hints: self.hints })
    }
}
