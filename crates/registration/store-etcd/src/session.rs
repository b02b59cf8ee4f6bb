//! One session with one etcd server, shared by all callers.

use crate::keep_alive::{KeepAlives, Lost};
use pilotfish_etcd_client::{CallError, Client};
use std::sync::Arc;
use tokio::sync::watch;

/// A client of one server, and the reason for its end.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) keep_alives: KeepAlives,
    lost: Lost,
}

impl Session {
    pub(crate) fn new(client: Client) -> Self {
        let lost = Lost(watch::Sender::new(None));
        Self { keep_alives: KeepAlives::new(&client, lost.clone()), client, lost }
    }

    /// Ends the session if the error will affect other calls, too. Returns the error as a text.
    pub(crate) fn failed(&self, error: &CallError) -> String {
        if error.is_fatal() {
            self.lost.lose(error.to_string());
        }
        error.to_string()
    }

    /// Marks the session as lost.
    pub(crate) fn lose(&self, reason: impl Into<Arc<str>>) {
        self.lost.lose(reason);
    }

    /// Resolves with the reason once the session is lost.
    pub(crate) async fn lost(&self) -> Arc<str> {
        let mut lost = self.lost.0.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_else(|| "unknown".into()),
            Err(_) => "the session was closed".into(),
        }
    }
}
