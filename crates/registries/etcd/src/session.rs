//! One session: log in, read all keys at one revision, watch later changes.

use crate::keyspace::{Difference, Keyspace, Snapshot};
use pilotfish_etcd_client::proto::{Event, EventType, Header, WatchCreate};
use pilotfish_etcd_client::{CallError, Client, Servers, Step, Watch, end_of, first_of};
use pilotfish_registry::MAX_INSTANCES;
use pilotfish_session::{CatalogWriter, Product, SessionError};
use std::convert::Infallible;
use std::time::Duration;

/// Maximum size of all keys and values of a full read in bytes.
const MAX_BYTES: usize = 1 << 30;
/// Silence after which the server is probed.
const QUIET: Duration = Duration::from_secs(10);
/// Maximum number of consecutive full reads caused by compaction.
const REREADS: u32 = 5;

/// The etcd product: the servers of one cluster, and the keys that were read.
pub(crate) struct Etcd {
    servers: Servers,
    keys: Keyspace,
}

impl Product for Etcd {
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let (client, mut header) = self.first_read(catalog).await?;
        let mut rereads = 0;
        loop {
            let followed = self.follow(&client, header, catalog).await;
            // The next session uses another server.
            let followed = followed.inspect_err(|_| self.servers.skip())?;
            rereads = if followed.had_events { 0 } else { rereads + 1 };
            if rereads > REREADS {
                return Err(SessionError::new("etcd compacts faster than its keys can be read"));
            }
            tracing::info!("etcd compacted revisions that were not read yet; reading all keys again");
            header = self.read_all(&client, catalog).await?;
        }
    }
}

/// End of a watch: the next revision was compacted.
struct Compacted {
    had_events: bool,
}

impl Etcd {
    pub(crate) const fn new(servers: Servers, keys: Keyspace) -> Self {
        Self { servers, keys }
    }

    /// Reads everything from the first server that can; tries each server once.
    async fn first_read(&mut self, catalog: &mut CatalogWriter) -> Result<(Client, Header), SessionError> {
        let mut failures = Vec::new();
        for _ in 0..self.servers.len() {
            let server = self.servers.current()?.clone();
            match self.read_from_current(catalog).await {
                Ok(read) => return Ok(read),
                Err(error) => failures.push(error.context(server)),
            }
            self.servers.skip();
        }
        let texts: Vec<String> = failures.iter().map(SessionError::to_string).collect();
        Err(SessionError::new(texts.join("; ")))
    }

    async fn read_from_current(
        &mut self,
        catalog: &mut CatalogWriter,
    ) -> Result<(Client, Header), SessionError> {
        let client = self.servers.client(|| catalog.requested()).await?;
        let header = self.read_all(&client, catalog).await?;
        Ok((client, header))
    }

    /// Reads all keys at one revision. If that revision is compacted meanwhile, starts again with a newer
    /// one.
    async fn read_all(
        &mut self,
        client: &Client,
        catalog: &mut CatalogWriter,
    ) -> Result<Header, SessionError> {
        for _ in 0..REREADS {
            match self.read_once(client, catalog).await {
                Ok((header, snapshot)) => {
                    let difference = self.keys.replace(snapshot);
                    for (key, problem) in &difference.problems {
                        catalog.note(key, problem.clone());
                    }
                    catalog.replace(difference.set);
                    return Ok(header);
                }
                Err(CallError::Compacted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(SessionError::new("etcd compacts faster than its keys can be read"))
    }

    async fn read_once(
        &self,
        client: &Client,
        catalog: &CatalogWriter,
    ) -> Result<(Header, Snapshot), CallError> {
        let (mut snapshot, mut bytes) = (Snapshot::default(), 0);
        let visit = |pair: &pilotfish_etcd_client::proto::KeyValue| {
            bytes += pair.key.len() + pair.value.len();
            self.keys.read(&mut snapshot, &pair.key, &pair.value);
            if snapshot.len() > MAX_INSTANCES || bytes > MAX_BYTES {
                return Err(format!(
                    "the prefix has more than {MAX_INSTANCES} instances or {} MiB; \
                     a narrower prefix has less",
                    MAX_BYTES >> 20
                ));
            }
            Ok(())
        };
        let header = client.read_prefix(self.keys.prefix().as_bytes(), || catalog.requested(), visit).await?;
        Ok((header, snapshot))
    }

    /// Watches changes after a read, until a revision is compacted.
    async fn follow(
        &mut self,
        client: &Client,
        read: Header,
        catalog: &mut CatalogWriter,
    ) -> Result<Compacted, SessionError> {
        let prefix = self.keys.prefix().as_bytes();
        let create = WatchCreate {
            key: first_of(prefix),
            range_end: end_of(prefix),
            start_revision: read.revision.saturating_add(1),
            fragment: true,
        };
        catalog.requested();
        let mut stream = client.watch(create).await?;
        let mut watch = Watch::new(read);
        let mut had_events = false;
        while let Some(answer) = stream.next(QUIET, || catalog.requested()).await? {
            match watch.take(answer)? {
                Step::Answered if watch.is_created() => catalog.answered(),
                Step::Answered => {}
                Step::Compacted => return Ok(Compacted { had_events }),
                Step::Events(events) => {
                    had_events = true;
                    self.apply(&events, catalog);
                }
            }
        }
        Err(SessionError::new("etcd ended the watch"))
    }

    fn apply(&mut self, events: &[Event], catalog: &mut CatalogWriter) {
        let pairs = events.iter().filter_map(|event| {
            let pair = event.kv.as_ref()?;
            let value = (event.r#type == EventType::Put as i32).then_some(&*pair.value);
            Some((&*pair.key, value))
        });
        let Difference { set, removed, problems } = self.keys.apply(pairs);
        for (key, problem) in problems {
            catalog.note(&key, problem);
        }
        catalog.apply(set, removed);
    }
}
