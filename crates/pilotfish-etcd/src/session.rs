//! One session: log in, read all keys at one revision, follow what comes after it.

use crate::client::{CallError, Client, WatchStream, reason};
use crate::keyspace::{Difference, Keyspace, Snapshot};
use crate::proto::{
    Event, EventType, Header, RangeRequest, WatchAsk, WatchCreate, WatchProgress, WatchRequest,
};
use crate::watch::{Step, Watch};
use pilotfish_registry::MAX_INSTANCES;
use pilotfish_registry_client::{CatalogWriter, Connector, Product, SecretOption, Server, SessionError};
use pilotfish_source::Jitter;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How many keys are asked for at once. Fewer where they are so large that an answer has more than is taken.
const PAGE: i64 = 1_000;
/// How many bytes of keys and values a full read may have.
const MAX_BYTES: usize = 1 << 30;
/// After so long without a word, the server is asked whether it is there. A watch without events is silent, as a dead server is.
const QUIET: Duration = Duration::from_secs(10);
/// How long it may take to say so.
const ANSWER: Duration = Duration::from_secs(10);
/// How often in a row everything may have to be read again because it was compacted meanwhile.
const REREADS: u32 = 5;

/// The product: servers of one cluster, and what is known of its keys.
pub(crate) struct Etcd {
    servers: Vec<Server>,
    /// The server of the next session: another one after a failure.
    next: usize,
    connector: Connector,
    login: Option<Login>,
    keys: Keyspace,
}

/// Who reads.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: SecretOption,
}

impl Product for Etcd {
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let (mut client, mut header) = self.first_read(catalog).await?;
        let mut rereads = 0;
        loop {
            let followed = self.follow(&mut client, header, catalog).await;
            // The next session asks another server.
            let followed = followed.inspect_err(|_| self.next += 1)?;
            rereads = if followed.had_events { 0 } else { rereads + 1 };
            if rereads > REREADS {
                return Err(SessionError::new("etcd compacts faster than its keys can be read"));
            }
            tracing::info!("etcd compacted what had not been read; everything is read again");
            header = self.read_all(&mut client, catalog).await?;
        }
    }
}

/// How following ended: what should have come next was compacted.
struct Compacted {
    had_events: bool,
}

impl Etcd {
    pub(crate) fn new(
        servers: Vec<Server>,
        connector: Connector,
        login: Option<Login>,
        keys: Keyspace,
    ) -> Self {
        // Many processes that start at once do not all ask the first server.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to the number of servers"
        )]
        let next = (Jitter::default().fraction() * servers.len() as f64) as usize;
        Self { servers, next, connector, login, keys }
    }

    /// Reads everything from the first server that can, each tried once.
    async fn first_read(&mut self, catalog: &mut CatalogWriter) -> Result<(Client, Header), SessionError> {
        let mut failures = Vec::new();
        for _ in 0..self.servers.len() {
            let server = self.servers.get(self.next % self.servers.len()).cloned();
            let server = server.ok_or_else(|| SessionError::new("the address names no server"))?;
            match self.read_from(&server, catalog).await {
                Ok(read) => return Ok(read),
                Err(error) => failures.push(error.context(server)),
            }
            self.next += 1;
        }
        let texts: Vec<String> = failures.iter().map(SessionError::to_string).collect();
        Err(SessionError::new(texts.join("; ")))
    }

    async fn read_from(
        &mut self,
        server: &Server,
        catalog: &mut CatalogWriter,
    ) -> Result<(Client, Header), SessionError> {
        let mut client = Client::new(self.connector.clone(), server)?;
        if let Some(login) = &self.login {
            let password = login.password.read().await?.unwrap_or_default();
            catalog.requested();
            client.authenticate(&login.user, &password).await?;
        }
        let header = self.read_all(&mut client, catalog).await?;
        Ok((client, header))
    }

    /// Reads all keys as they are at one revision. Compaction may take that one away meanwhile: then those of a newer one are read.
    async fn read_all(
        &mut self,
        client: &mut Client,
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
        client: &mut Client,
        catalog: &CatalogWriter,
    ) -> Result<(Header, Snapshot), CallError> {
        let refused = |reason: String| CallError::Refused(SessionError::new(reason));
        let prefix = self.keys.prefix().as_bytes();
        let range_end = end_of(prefix);
        let (mut from, mut limit, mut bytes) = (first_of(prefix), PAGE, 0);
        let (mut snapshot, mut first) = (Snapshot::default(), Header::default());
        loop {
            let (key, range_end) = (from.clone(), range_end.clone());
            catalog.requested();
            let page =
                match client.range(RangeRequest { key, range_end, limit, revision: first.revision }).await {
                    Err(CallError::TooLarge) if limit > 1 => {
                        limit /= 8;
                        limit = limit.max(1);
                        continue;
                    }
                    page => page?,
                };
            if first.revision == 0 {
                first = page
                    .header
                    .filter(|header| header.revision > 0)
                    .ok_or_else(|| refused("it says no revision".to_owned()))?;
            }
            for pair in &page.kvs {
                bytes += pair.key.len() + pair.value.len();
                self.keys.read(&mut snapshot, &pair.key, &pair.value);
            }
            if snapshot.len() > MAX_INSTANCES || bytes > MAX_BYTES {
                return Err(refused(format!(
                    "the prefix has more than {MAX_INSTANCES} instances or {} MiB; a narrower prefix has less",
                    MAX_BYTES >> 20
                )));
            }
            match page.kvs.last() {
                Some(last) if page.more => from = [&*last.key, &[0]].concat(),
                None if page.more => {
                    return Err(refused("it says that there is more, and gives nothing".to_owned()));
                }
                _ => return Ok((first, snapshot)),
            }
        }
    }

    /// Follows the changes after a read until some are gone.
    async fn follow(
        &mut self,
        client: &mut Client,
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
        while let Some(answer) = next(&mut stream, catalog).await? {
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

/// The next answer of a watch; `None` at its end. A server that says nothing for a while is asked whether it is there.
async fn next(
    stream: &mut WatchStream,
    catalog: &CatalogWriter,
) -> Result<Option<crate::proto::WatchResponse>, SessionError> {
    let quiet = timeout_at(Instant::now() + QUIET, stream.answers.message()).await;
    let answer = match quiet {
        Ok(answer) => answer,
        Err(_) => {
            catalog.requested();
            let ask = WatchRequest { ask: Some(WatchAsk::Progress(WatchProgress {})) };
            stream.asks.try_send(ask)?;
            let answered = timeout_at(Instant::now() + ANSWER, stream.answers.message()).await;
            answered.map_err(|_| {
                SessionError::new(format!("etcd is silent for {} s", (QUIET + ANSWER).as_secs()))
            })?
        }
    };
    answer.map_err(|status| reason(&status))
}

/// The first key of a prefix. Without a prefix it is the first of all: the empty key is none.
fn first_of(prefix: &[u8]) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.to_vec() }
}

/// The first key after those of a prefix: the prefix with its last byte one higher, and `\0` where no byte can be, as without a prefix.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    match prefix.iter().rposition(|byte| *byte < u8::MAX) {
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        }
        None => vec![0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_the_keys_of_a_prefix() {
        for (prefix, first, end) in
            [("/services/", "/services/", &b"/services0"[..]), ("", "\0", b"\0"), ("a", "a", b"b")]
        {
            assert_eq!(
                (first_of(prefix.as_bytes()), end_of(prefix.as_bytes())),
                (first.into(), end.to_vec())
            );
        }
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
    }
}
