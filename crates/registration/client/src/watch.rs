//! A watch of instances.

use crate::connection::Stub;
use crate::{Client, Error, Record};
use pilotfish_registration_api::v1::watch_event::Change as Event;
use pilotfish_registration_api::v1::{WatchRequest, WatchResponse};
use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tonic::{Code, Streaming};

/// Backoff after a failed connection.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(5));

/// The name of an instance: namespace, service and id.
type Key = (String, String, String);

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// An instance was added or changed.
    Updated(Box<Record>),
    /// An instance was removed.
    Removed { namespace: String, service: String, id: String },
    /// All existing instances have been returned.
    Synced,
}

/// Watches instances. Resumes at the next server when a connection ends, and returns only the changes since
/// then.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    namespace: String,
    service: String,
    stream: Option<(usize, Streaming<WatchResponse>)>,
    /// Revision and epoch to resume from.
    resume: Option<(u64, u64)>,
    /// Returned instances with their revisions, to find the differences after a new full list.
    told: BTreeMap<Key, Record>,
    /// Known instances that an unfinished full list has not contained yet.
    unnamed: Option<BTreeMap<Key, Record>>,
    was_synced: bool,
    pending: VecDeque<Change>,
    backoff: Backoff,
}

impl Watch {
    pub(crate) fn new(client: Client, namespace: String, service: String) -> Self {
        Self {
            client,
            namespace,
            service,
            stream: None,
            resume: None,
            told: BTreeMap::new(),
            unnamed: None,
            was_synced: false,
            pending: VecDeque::new(),
            backoff: Backoff::new(RETRY, Jitter::default()),
        }
    }

    /// Returns the next change. Unreachable servers are retried. Cancel-safe.
    ///
    /// # Errors
    /// When the server refuses the watch: missing identity or permission.
    pub async fn next(&mut self) -> Result<Change, Error> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(change);
            }
            let failed = match &mut self.stream {
                None => self.open().await.err(),
                Some((server, stream)) => {
                    let server = *server;
                    match stream.message().await {
                        Ok(Some(message)) => {
                            self.backoff.reset();
                            self.take(message);
                            None
                        }
                        Ok(None) => Some((server, Error::Unavailable("the stream ended".to_owned()))),
                        Err(status) => Some((server, self.failure(status))),
                    }
                }
            };
            if let Some((server, error)) = failed {
                self.stream = None;
                if !error.is_transient() {
                    return Err(error);
                }
                tracing::debug!(%error, "a watch of registrations ended; resuming it at another server");
                self.client.servers.leave(server);
                tokio::time::sleep(self.backoff.wait()).await;
            }
        }
    }

    /// A compacted revision is no failure: the watch restarts with a full list.
    fn failure(&mut self, status: tonic::Status) -> Error {
        if status.code() == Code::OutOfRange {
            self.resume = None;
            return Error::Unavailable(status.message().to_owned());
        }
        status.into()
    }

    async fn open(&mut self) -> Result<(), (usize, Error)> {
        let (server, mut stub): (usize, Stub) = self.client.servers.stub().await?;
        let request = WatchRequest {
            namespace: self.namespace.clone(),
            service: self.service.clone(),
            resume_revision: self.resume.map(|(revision, _)| revision),
            resume_epoch: self.resume.map(|(_, epoch)| epoch),
        };
        let stream = stub.watch(request).await.map_err(|status| (server, self.failure(status)))?;
        // An incomplete full list starts over.
        self.unnamed = None;
        self.stream = Some((server, stream.into_inner()));
        Ok(())
    }

    fn take(&mut self, message: WatchResponse) {
        if message.snapshot && self.unnamed.is_none() {
            self.unnamed = Some(self.told.clone());
        }
        for event in message.events {
            match event.change {
                Some(Event::Updated(record)) => self.updated(record),
                Some(Event::Removed(key)) => self.removed((key.namespace, key.service, key.id)),
                None => {}
            }
        }
        if message.partial {
            return;
        }
        for key in self.unnamed.take().unwrap_or_default().into_keys() {
            self.removed(key);
        }
        self.resume = Some((message.revision, message.epoch));
        if !std::mem::replace(&mut self.was_synced, true) {
            self.pending.push_back(Change::Synced);
        }
    }

    fn updated(&mut self, record: Record) {
        let key = key(&record);
        if let Some(unnamed) = &mut self.unnamed {
            unnamed.remove(&key);
        }
        if self.told.get(&key) != Some(&record) {
            self.told.insert(key, record.clone());
            self.pending.push_back(Change::Updated(Box::new(record)));
        }
    }

    fn removed(&mut self, key: Key) {
        if self.told.remove(&key).is_some() {
            let (namespace, service, id) = key;
            self.pending.push_back(Change::Removed { namespace, service, id });
        }
    }
}

fn key(record: &Record) -> Key {
    let instance = record.instance.clone().unwrap_or_default();
    (instance.namespace, instance.service, instance.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientOptions, Instance};
    use pilotfish_registration_api::v1::{InstanceKey, WatchEvent};

    fn watch() -> Watch {
        let client = Client::new(ClientOptions::new(["http://127.0.0.1:1"])).unwrap();
        client.watch("shop", "")
    }

    fn record(id: &str, revision: u64) -> Record {
        let instance = Instance {
            namespace: "shop".into(),
            service: "web".into(),
            id: id.into(),
            ..Instance::default()
        };
        Record { instance: Some(instance), revision, ..Record::default() }
    }

    fn tell(
        watch: &mut Watch,
        revision: u64,
        (snapshot, partial): (bool, bool),
        events: Vec<Event>,
    ) -> Vec<Change> {
        let events = events.into_iter().map(|change| WatchEvent { change: Some(change) }).collect();
        watch.take(WatchResponse { revision, epoch: 7, snapshot, partial, events });
        watch.pending.drain(..).collect()
    }

    fn updated(id: &str, revision: u64) -> Event {
        Event::Updated(record(id, revision))
    }

    fn removed(id: &str) -> Change {
        Change::Removed { namespace: "shop".into(), service: "web".into(), id: id.into() }
    }

    #[test]
    fn a_list_told_anew_tells_only_what_differs() {
        let mut watch = watch();
        let (part, end) = ((true, true), (true, false));
        assert_eq!(tell(&mut watch, 3, part, vec![updated("a", 1), updated("b", 1)]).len(), 2);
        assert_eq!(watch.resume, None, "not in the middle of a list");
        let last = tell(&mut watch, 3, end, vec![updated("c", 1)]);
        assert_eq!(last, [Change::Updated(Box::new(record("c", 1))), Change::Synced]);
        assert_eq!(watch.resume, Some((3, 7)));
        // Connected anew, from the beginning: a is as it was, b changed, c is gone.
        let told = tell(&mut watch, 6, part, vec![updated("a", 1), updated("b", 5)]);
        assert_eq!(told, [Change::Updated(Box::new(record("b", 5)))]);
        assert_eq!(tell(&mut watch, 6, end, vec![]), [removed("c")]);
        assert_eq!(tell(&mut watch, 9, (false, false), vec![]), []);
        assert_eq!(watch.resume, Some((9, 7)));
    }

    #[test]
    fn watch_that_is_out_of_range_starts_again_and_says_only_what_differs() {
        let mut watch = watch();
        tell(&mut watch, 9, (true, false), vec![updated("a", 1), updated("b", 9)]);
        assert_eq!(watch.resume, Some((9, 7)));
        let error = watch.failure(tonic::Status::out_of_range("the store was restored"));
        assert!(error.is_transient(), "it is tried again");
        assert_eq!(watch.resume, None);
        assert_eq!(tell(&mut watch, 3, (true, false), vec![updated("a", 1)]), [removed("b")]);
        assert_eq!(watch.resume, Some((3, 7)));
    }

    #[test]
    fn a_removal_is_told_once() {
        let mut watch = watch();
        tell(&mut watch, 2, (true, false), vec![updated("a", 2)]);
        let key = || InstanceKey { namespace: "shop".into(), service: "web".into(), id: "a".into() };
        let told = tell(&mut watch, 3, (false, false), vec![Event::Removed(key()), Event::Removed(key())]);
        assert_eq!(told, [removed("a")]);
    }
}
