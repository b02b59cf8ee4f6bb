//! A token or password, by file or by environment.

use parking_lot::Mutex;
use pilotfish_registry::LiveSettings;
use pilotfish_source::{FileReader, Secret, SecretFile, SecretFileError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a file is read again at most.
const REREAD: Duration = Duration::from_secs(5);

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file gives none.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// It is no text.
    #[error("the secret is not UTF-8, or holds characters that no header may have")]
    NotText,
    /// The file system does not answer.
    #[error("the file was not read: {0}")]
    Task(#[from] std::io::Error),
}

/// A secret that an option names: in a file, which is read again when it is asked for and 5 s old, or in the environment.
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
    /// Takes the option `NAMEFile` out of the settings; without it, the environment variable counts, if one is named.
    pub fn take(settings: &mut LiveSettings, name: &str, variable: Option<&str>) -> Self {
        let file = settings.take(&format!("{name}File"));
        let text = variable.and_then(|variable| std::env::var(variable).ok()).filter(|text| !text.is_empty());
        let source = match (file, text) {
            (Some(file), _) => Source::File(Arc::new(Mutex::new((SecretFile::new(file), None)))),
            (None, Some(text)) => Source::Text(text.into()),
            (None, None) => Source::None,
        };
        Self { source, reader: FileReader::default() }
    }

    /// Whether there is one to read.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        !matches!(self.source, Source::None)
    }

    /// The secret of now; `None` when there is none to read. The last good one stays while the file cannot be read.
    ///
    /// # Errors
    /// When the file has never given one, or what it gives is no text.
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
                tracing::warn!(%error, "a secret cannot be read now; the last good one stays in force")
            }
            (Err(error), None) => {
                *at = None;
                return Err(error);
            }
        }
    }
    // A read that succeeded left a content.
    Ok(file.content().cloned().unwrap_or_else(|| unreachable!("the file was read")))
}
