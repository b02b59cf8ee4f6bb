//! One session with one server of etcd, for everybody who calls it.

use crate::keep_alive::KeepAlives;
use pilotfish_etcd_client::{CallError, Client};
use std::sync::Arc;
use tokio::sync::watch;

/// One session: a client of one server, and whether it is of use still.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) keep_alives: KeepAlives,
    lost: Lost,
}

/// Why a session is of no use any more, once that is so.
#[derive(Clone, Debug)]
pub(crate) struct Lost(watch::Sender<Option<Arc<str>>>);

impl Session {
    pub(crate) fn new(client: Client) -> Self {
        let lost = Lost(watch::Sender::new(None));
        Self { keep_alives: KeepAlives::new(&client, lost.clone()), client, lost }
    }

    /// Ends the session, where a call failed in a way that others will too. Returns the error as a text.
    pub(crate) fn failed(&self, error: &CallError) -> String {
        if error.is_fatal() {
            self.lost.lose(error.to_string());
        }
        error.to_string()
    }

    /// Ends the session.
    pub(crate) fn lose(&self, reason: impl Into<Arc<str>>) {
        self.lost.lose(reason);
    }

    /// Resolves when the session is of no use any more, and says why.
    pub(crate) async fn lost(&self) -> Arc<str> {
        let mut lost = self.lost.0.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_else(|| "unknown".into()),
            Err(_) => "the session was closed".into(),
        }
    }
}

impl Lost {
    /// The first reason counts.
    pub(crate) fn lose(&self, reason: impl Into<Arc<str>>) {
        self.0.send_if_modified(|lost| {
            let is_first = lost.is_none();
            if is_first {
                *lost = Some(reason.into());
            }
            is_first
        });
    }
}
