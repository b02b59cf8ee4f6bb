//! Probing of silent watches: a watch without events looks like a dead server.

use crate::proto::{WatchAsk, WatchProgress, WatchRequest, WatchResponse};
use crate::{WatchStream, reason};
use pilotfish_runtime::SessionError;
use std::time::Duration;
use tokio::time::timeout;

impl WatchStream {
    /// Returns the next response; `None` at the end of the stream. A server that is silent for `quiet` is
    /// probed, and must respond within the same time. `requested` is called for the probe.
    ///
    /// # Errors
    /// When the server ends the watch with an error, or does not respond to the probe.
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
