//! Consecutive sessions: enter, read everything or catch up, watch.

use crate::shared::Shared;
use crate::view::{Snapshot, unsigned};
use pilotfish_etcd_client::proto::{Header, PutRequest};
use pilotfish_etcd_client::{CallError, Client, Servers};
use pilotfish_registration::{StoreEvent, StoreEventSender};
use pilotfish_runtime::SessionError;
use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Timeout of a call. A write during a leader election takes about 2 s.
const CALL: Duration = Duration::from_secs(5);
/// Backoff after a failed session.
const RECONNECT: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(5));
/// TTL of the key of an open store in seconds.
const PRESENCE: i64 = 5;
/// Maximum number of consecutive full reads caused by compaction.
const REREADS: u32 = 5;
/// Maximum numbers of instances and bytes of a full read.
const MAX_INSTANCES: usize = 2_000_000;
const MAX_BYTES: usize = 4 << 30;

/// The task that runs sessions.
pub(crate) struct Runner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) events: StoreEventSender,
    /// Name of this open store.
    pub(crate) name: String,
    servers: Servers,
    /// Id of the cluster that was read.
    cluster: u64,
    /// True once the first event was sent.
    pub(crate) is_open: bool,
    /// True if the last published connection state is "disconnected".
    pub(crate) is_disconnected: bool,
    pub(crate) backoff: Backoff,
}

/// Reason for the end of a session.
pub(crate) enum End {
    /// The event receiver was dropped.
    Closed,
    /// The session with etcd failed; it is repeated.
    Failed(SessionError),
}

impl<E: Into<SessionError>> From<E> for End {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A store that has written its own key to etcd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// Cluster id and revision of the key's creation: only earlier changes may have been missed.
    pub(crate) header: Header,
    /// The lease of the store's own key.
    pub(crate) lease: i64,
}

impl Runner {
    pub(crate) fn new(shared: Arc<Shared>, servers: Servers, events: StoreEventSender) -> Self {
        let mut jitter = Jitter::default();
        let name = format!("{:016x}", jitter.bits());
        let backoff = Backoff::new(RECONNECT, jitter);
        Self { shared, events, name, servers, cluster: 0, is_open: false, is_disconnected: false, backoff }
    }

    /// Runs sessions until the event receiver is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let error = match Box::pin(self.session()).await {
                Ok(never) => match never {},
                Err(End::Closed) => return,
                Err(End::Failed(error)) => error,
            };
            let server = self.servers.current().map(ToString::to_string).unwrap_or_default();
            let error = error.context(server).to_string();
            self.shared.set_session(Err(error.as_str().into()));
            self.shared.view.lock().hold();
            if self.is_open && !self.is_disconnected {
                self.is_disconnected = true;
                if !self.events.send(vec![StoreEvent::Disconnected(error)]).await {
                    return;
                }
            } else {
                tracing::debug!(%error, "etcd cannot be reached");
            }
            self.servers.skip();
            sleep(self.backoff.wait()).await;
        }
    }

    async fn session(&mut self) -> Result<Infallible, End> {
        let client = self.servers.client(|| ()).await?.with_timeout(CALL);
        let entered = self.enter(&client).await?;
        let mut read = self.known(&entered);
        let mut rereads = 0;
        loop {
            let is_whole = read.is_none();
            let from = match read.take() {
                Some(known) => known,
                None => self.read_all(&client).await?,
            };
            self.cluster = from.cluster_id;
            let was_current = self.follow(&client, from, entered, is_whole).await?;
            rereads = if was_current { 0 } else { rereads + 1 };
            if rereads > REREADS {
                return Err(SessionError::new("etcd compacts faster than its keys can be read").into());
            }
            tracing::info!("etcd compacted revisions that were not read yet; reading all keys again");
        }
    }

    /// Returns the revision to catch up from. `None` if nothing was read yet, or etcd was restored or
    /// replaced.
    fn known(&self, entered: &Entered) -> Option<Header> {
        if !self.is_open {
            return None;
        }
        let (seen, now) = (self.shared.view.lock().revision(), entered.header);
        if self.cluster == now.cluster_id && unsigned(now.revision) > seen {
            let revision = i64::try_from(seen).unwrap_or(i64::MAX);
            return Some(Header { cluster_id: self.cluster, revision });
        }
        tracing::error!(
            seen,
            now = now.revision,
            "the etcd cluster was replaced or restored, or has lost its data; reading all keys again"
        );
        None
    }

    /// Writes the key of this open store, for etcd and other stores.
    async fn enter(&self, client: &Client) -> Result<Entered, End> {
        let lease = client.grant(PRESENCE).await?;
        let key = self.shared.keys.store(&self.name);
        let answer = client.put(PutRequest { key, value: bytes::Bytes::new(), lease }).await?;
        let header = answer.header.filter(|header| header.revision > 0);
        let header = header.ok_or_else(|| SessionError::new("it says no revision"))?;
        Ok(Entered { header, lease })
    }

    /// Reads all keys at one revision. If it is compacted meanwhile, starts again with a newer one.
    async fn read_all(&self, client: &Client) -> Result<Header, End> {
        for _ in 0..REREADS {
            let mut snapshot = Snapshot::default();
            let visit = |pair: &pilotfish_etcd_client::proto::KeyValue| {
                snapshot.take(&self.shared.keys, pair);
                if snapshot.len() > MAX_INSTANCES || snapshot.bytes() > MAX_BYTES {
                    let limit = MAX_BYTES >> 20;
                    return Err(format!(
                        "there are more than {MAX_INSTANCES} instances, or {limit} MiB of them"
                    ));
                }
                Ok(())
            };
            match client.read_prefix(self.shared.keys.prefix().as_bytes(), || (), visit).await {
                Ok(header) => {
                    self.shared.view.lock().replace(snapshot, unsigned(header.revision));
                    return Ok(header);
                }
                Err(CallError::Compacted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(SessionError::new("etcd compacts faster than its keys can be read").into())
    }
}
