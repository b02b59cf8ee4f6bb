//! The token of the console API: from a file that is read again, from the environment, or that of a user,
//! requested from the server.

use crate::codes::{Failure, FailureClass};
use parking_lot::Mutex;
use pilotfish_runtime::{FileReader, SecretFile};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Intervals of reading a file again, and of requesting the operator's token again.
const REREAD: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// Source of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenSource {
    /// Requests are sent without a token.
    #[default]
    None,
    /// A token that never changes.
    Text(Arc<str>),
    /// A file, whose content may be replaced.
    File(PathBuf),
}

/// Token of requests. The debug output omits it.
pub struct Credentials {
    source: TokenSource,
    /// Id of a user whose token is requested with the token of the source.
    pub(crate) operator: Option<String>,
    state: Mutex<State>,
    reader: FileReader,
}

#[derive(Default)]
struct State {
    file: Option<(Arc<Mutex<SecretFile>>, Option<Instant>)>,
    text: Option<Arc<str>>,
    operator: Option<(Arc<str>, Instant)>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("operator", &self.operator).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Creates the credentials; a file is not read before the first request.
    #[must_use]
    pub fn new(source: TokenSource, operator: Option<String>) -> Self {
        let mut state = State::default();
        match &source {
            TokenSource::None => {}
            TokenSource::Text(text) => state.text = Some(text.clone()),
            TokenSource::File(path) => state.file = Some((Arc::new(Mutex::new(SecretFile::new(path))), None)),
        }
        Self { source, operator, state: Mutex::new(state), reader: FileReader::default() }
    }

    /// Returns the token of the source. While a file cannot be read, its last good token is returned.
    pub(crate) async fn token(&self, fresh: bool) -> Result<Option<Arc<str>>, Failure> {
        let file = {
            let state = self.state.lock();
            match &state.file {
                Some((_, Some(at))) if !fresh && at.elapsed() < REREAD => return Ok(state.text.clone()),
                Some((file, _)) => file.clone(),
                None => return Ok(state.text.clone()),
            }
        };
        let read = self.reader.run(move || {
            let mut file = file.lock();
            let result = file.read().map(drop);
            (result, file.content().and_then(|content| content.as_str().map(Arc::<str>::from)))
        });
        let (result, text) = read.await.map_err(|error| Failure::new(FailureClass::Transient, error))?;
        let text = text.filter(|text| !text.contains(char::is_control));
        let mut state = self.state.lock();
        match (result, text) {
            (result, Some(text)) => {
                if let Err(error) = result {
                    tracing::warn!(%error, "cannot read the token file; the last good token stays in use");
                }
                if let Some((_, at)) = &mut state.file {
                    *at = Some(Instant::now());
                }
                state.text = Some(text);
                Ok(state.text.clone())
            }
            (Err(error), None) => Err(Failure::new(FailureClass::Denied, error)),
            (Ok(()), None) => {
                Err(Failure::new(FailureClass::Denied, format_args!("{:?} holds no token", self.source)))
            }
        }
    }

    /// Returns the operator's token if it was requested recently.
    pub(crate) fn operator_token(&self) -> Option<Arc<str>> {
        let state = self.state.lock();
        state.operator.as_ref().filter(|(_, at)| at.elapsed() < ASK_AGAIN).map(|(token, _)| token.clone())
    }

    pub(crate) fn set_operator_token(&self, token: Option<Arc<str>>) {
        self.state.lock().operator = token.map(|token| (token, Instant::now()));
    }
}
