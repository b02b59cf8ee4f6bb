//! A watch without events is silent, as a dead server is.

use crate::proto::{WatchAsk, WatchProgress, WatchRequest, WatchResponse};
use crate::{WatchStream, reason};
use pilotfish_registry_client::SessionError;
use std::time::Duration;
use tokio::time::timeout;

impl WatchStream {
    /// The next answer; `None` at the end. A server that says nothing for `quiet` is asked whether it is there, and has as long to say so.
    /// `requested` is told of that.
    ///
    /// # Errors
    /// When the server ends the watch with an error, or is silent.
    pub async fn next(
        &mut self,
        quiet: Duration,
        requested: impl FnOnce() + Send,
    ) -> Result<Option<WatchResponse>, SessionError> {
        let answer = match timeout(quiet, self.answers.message()).await {
            Ok(answer) => answer,
            Err(_) => {
                requested();
                self.asks.try_send(WatchRequest { ask: Some(WatchAsk::Progress(WatchProgress {})) })?;
                let answered = timeout(quiet, self.answers.message()).await;
                answered
                    .map_err(|_| SessionError::new(format!("etcd is silent for {} s", 2 * quiet.as_secs())))?
            }
        };
        answer.map_err(|status| reason(&status))
    }
}
