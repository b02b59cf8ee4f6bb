//! A watch that goes on when a connection or a server does not.

use crate::client::RegistrationClient;
use crate::error::ClientError;
use crate::keeper::seed;
use pilotfish_registration_api::v1::{self, watch_event};
use pilotfish_source::{Backoff, BackoffPolicy, Jitter};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tonic::{Code, Streaming};

const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(10));

type Key = (String, String, String);

/// Which instances are watched. Empty texts: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchFilter {
    /// The namespace.
    pub namespace: String,
    /// The service.
    pub service: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// An instance is there, or has changed.
    Updated(v1::Record),
    /// An instance is gone.
    Removed(v1::InstanceKey),
    /// Everything that there was at the beginning has been told. Comes once.
    Synced,
}

/// A watch. It remembers the names of what it has told, so that it can tell what went while it was not connected.
pub struct InstanceWatch {
    client: RegistrationClient,
    filter: WatchFilter,
    stream: Option<Streaming<v1::WatchResponse>>,
    resume: Option<(u64, u64)>,
    /// The instances that were told.
    known: BTreeSet<Key>,
    /// Those of the snapshot that is being told.
    snapshot: Option<BTreeSet<Key>>,
    ready: VecDeque<Change>,
    is_synced: bool,
    backoff: Backoff,
}

impl RegistrationClient {
    /// Watches instances: what there is, [`Change::Synced`], and then what changes.
    #[must_use]
    pub fn watch(&self, filter: WatchFilter) -> InstanceWatch {
        InstanceWatch {
            client: self.clone(),
            filter,
            stream: None,
            resume: None,
            known: BTreeSet::new(),
            snapshot: None,
            ready: VecDeque::new(),
            is_synced: false,
            backoff: Backoff::new(BACKOFF, Jitter::seeded(seed())),
        }
    }
}

impl InstanceWatch {
    /// Waits for the next change. Where servers cannot answer, it connects again and resumes.
    ///
    /// # Errors
    /// When a server says that the client may not watch. Asking again tries again.
    pub async fn next(&mut self) -> Result<Change, ClientError> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            let Some(stream) = &mut self.stream else {
                self.connect().await?;
                continue;
            };
            match stream.message().await {
                Ok(Some(response)) => {
                    self.backoff.reset();
                    self.take(response);
                }
                Ok(None) => self.stream = None,
                Err(status) => {
                    self.stream = None;
                    self.after(ClientError::of(&status)).await?;
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        self.snapshot = None;
        let request = v1::WatchRequest {
            namespace: self.filter.namespace.clone(),
            service: self.filter.service.clone(),
            resume_revision: self.resume.map(|(revision, _)| revision),
            resume_epoch: self.resume.map(|(_, epoch)| epoch),
        };
        match self.client.watch_once(request).await {
            Ok(stream) => {
                self.stream = Some(stream);
                Ok(())
            }
            Err(error) => self.after(error).await,
        }
    }

    /// What to do after an error: begin anew, wait, or give it to the application.
    async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        if error.code() == Some(Code::OutOfRange) {
            self.resume = None;
            return Ok(());
        }
        if !error.is_temporary() {
            return Err(error);
        }
        self.client.give_up_server();
        tracing::debug!(%error, "the watch of registrations broke off: connecting again");
        tokio::time::sleep(self.backoff.wait()).await;
        Ok(())
    }

    fn take(&mut self, response: v1::WatchResponse) {
        let v1::WatchResponse { revision, epoch, snapshot, partial, events } = response;
        for change in events.into_iter().filter_map(|event| event.change) {
            match change {
                watch_event::Change::Updated(record) => {
                    if let Some(key) = record.instance.as_ref().map(key_of) {
                        if snapshot {
                            self.snapshot.get_or_insert_default().insert(key.clone());
                        }
                        self.known.insert(key);
                        self.ready.push_back(Change::Updated(record));
                    }
                }
                watch_event::Change::Removed(key) => {
                    self.known.remove(&(key.namespace.clone(), key.service.clone(), key.id.clone()));
                    self.ready.push_back(Change::Removed(key));
                }
            }
        }
        if !partial {
            if snapshot {
                self.end_snapshot();
            }
            self.resume = Some((revision, epoch));
        }
    }

    /// What is in no part of a snapshot is gone.
    fn end_snapshot(&mut self) {
        let told = self.snapshot.take().unwrap_or_default();
        for (namespace, service, id) in std::mem::replace(&mut self.known, told.clone()).into_iter() {
            if !told.contains(&(namespace.clone(), service.clone(), id.clone())) {
                self.ready.push_back(Change::Removed(v1::InstanceKey { namespace, service, id }));
            }
        }
        if !std::mem::replace(&mut self.is_synced, true) {
            self.ready.push_back(Change::Synced);
        }
    }
}

fn key_of(instance: &v1::Instance) -> Key {
    (instance.namespace.clone(), instance.service.clone(), instance.id.clone())
}
