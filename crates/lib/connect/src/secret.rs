//! A token or password, from a file or from the environment.

use parking_lot::Mutex;
use pilotfish_runtime::{FileReader, OptionValues, Secret, SecretFile, SecretFileError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum time between two reads of a file.
const REREAD: Duration = Duration::from_secs(5);

/// Error of reading a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read or has no secret.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// The secret is not valid in a header.
    #[error("the secret is not UTF-8, or holds characters that no header may have")]
    NotText,
    /// The blocking read failed.
    #[error("the file was not read: {0}")]
    Task(#[from] std::io::Error),
}

/// A secret from a file, which is read again on use when the last read is 5 s old, or from the environment.
#[derive(Clone, Debug)]
pub struct SecretOption {
    source: Source,
    reader: FileReader,
}

#[derive(Clone, Debug)]
enum Source {
    None,
    Text(Arc<str>),
    File(Arc<Mutex<(SecretFile, Option<Instant>)>>),
}

impl SecretOption {
    /// Takes the option `NAMEFile`; without it, the environment variable counts, if one
    /// is named.
    pub fn take(options: &mut OptionValues, name: &str, variable: Option<&str>) -> Self {
        let file = options.take(&format!("{name}File"));
        let text = variable.and_then(|variable| std::env::var(variable).ok()).filter(|text| !text.is_empty());
        let source = match (file, text) {
            (Some(file), _) => Source::File(Arc::new(Mutex::new((SecretFile::new(file), None)))),
            (None, Some(text)) => Source::Text(text.into()),
            (None, None) => Source::None,
        };
        Self { source, reader: FileReader::default() }
    }

    /// True if a file or an environment variable provides the secret.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        !matches!(self.source, Source::None)
    }

    /// Returns the current secret; `None` if none is configured. While the file cannot be read, the last good
    /// secret is returned.
    ///
    /// # Errors
    /// When the file has not been read successfully yet, or the secret is not text.
    pub async fn read(&self) -> Result<Option<Arc<str>>, SecretError> {
        let file = match &self.source {
            Source::None => return Ok(None),
            Source::Text(text) => return Ok(Some(text.clone())),
            Source::File(file) => file.clone(),
        };
        let secret = self.reader.run(move || reread(&file)).await??;
        let text = secret.as_str().filter(|text| !text.contains(char::is_control));
        text.map(|text| Some(text.into())).ok_or(SecretError::NotText)
    }
}

fn reread(file: &Mutex<(SecretFile, Option<Instant>)>) -> Result<Secret, SecretFileError> {
    let (file, at) = &mut *file.lock();
    let now = Instant::now();
    if at.is_none_or(|at| now.saturating_duration_since(at) >= REREAD) {
        *at = Some(now);
        match (file.read(), file.content()) {
            (Ok(_), _) => {}
            (Err(error), Some(_)) => {
                tracing::warn!(%error, "cannot read a secret file; the last good secret stays in use")
            }
            (Err(error), None) => {
                *at = None;
                return Err(error);
            }
        }
    }
    // A successful read has set the content.
    Ok(file.content().cloned().unwrap_or_else(|| unreachable!("the file was read")))
}
