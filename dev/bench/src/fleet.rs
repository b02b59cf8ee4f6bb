//! N concurrent proxies, and the latency of the last of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::net::TcpSocket;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::messages::{DELTA_PATH, Kind, Node, Struct, Value};
use crate::session::Session;

/// Timeout of a connection: all are opened at once.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Minimum pause before the next attempt.
const AGAIN: Duration = Duration::from_millis(100);

/// N streams of N proxies on N connections.
pub struct Fleet {
    shared: Arc<Shared>,
    began: Instant,
    // Dropping it ends the streams.
    _streams: JoinSet<()>,
}

struct Shared {
    streams: usize,
    synced: AtomicUsize,
    all_synced: Notify,
    received: AtomicU64,
    pending: Vec<AtomicUsize>,
    round: RwLock<Option<Arc<Round>>>,
    /// True during a round: costs one relaxed load for each message of the initial sync.
    in_round: AtomicBool,
    ended: Mutex<BTreeMap<String, usize>>,
}

struct Round {
    number: usize,
    began: Instant,
    needle: Vec<u8>,
    latencies: Mutex<Vec<Duration>>,
    wanted: usize,
    done: Notify,
}

/// Results of the initial sync.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    /// Time from the first connection to the last synced stream.
    pub wall: Duration,
    /// Bytes of messages that all streams received.
    pub bytes: u64,
}

/// Propagation of one change to the streams.
#[derive(Clone, Debug)]
pub struct Reached {
    /// Time from before the trigger to the last stream.
    pub last: Duration,
    /// Time from before the trigger to each stream.
    pub all: Vec<Duration>,
    /// Bytes of messages that all streams received in the round.
    pub bytes: u64,
}

/// Node of proxy `index`, as sent by Istio's agent.
#[must_use]
pub fn node(index: usize, namespace: &str) -> Node {
    let ip = format!("172.{}.{}.{}", 16 + index / 62_500, index / 250 % 250, 1 + index % 250);
    let pod = format!("client-{index}");
    let text = |value: &str| Value { kind: Some(Kind::Text(value.to_owned())) };
    let labels = Struct { fields: BTreeMap::from([("app".to_owned(), text("client"))]) };
    let mut fields: BTreeMap<String, Value> = [
        ("CLUSTER_ID", "Kubernetes"),
        ("MESH_ID", "cluster.local"),
        ("INSTANCE_IPS", &ip),
        ("INTERCEPTION_MODE", "REDIRECT"),
        ("ISTIO_VERSION", "1.29.1"),
        ("NAME", &pod),
        ("NAMESPACE", namespace),
        ("SERVICE_ACCOUNT", "default"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), text(value)))
    .collect();
    fields.insert("LABELS".to_owned(), Value { kind: Some(Kind::Struct(labels)) });
    Node {
        id: format!("sidecar~{ip}~{pod}.{namespace}~{namespace}.svc.cluster.local"),
        cluster: format!("client.{namespace}"),
        metadata: Some(Struct { fields }),
        locality: None,
        user_agent_name: "envoy".into(),
    }
}

impl Fleet {
    /// Opens one stream for each node, all at once.
    #[must_use]
    pub fn start(target: SocketAddr, nodes: Vec<Node>) -> Self {
        let shared = Arc::new(Shared {
            streams: nodes.len(),
            synced: AtomicUsize::new(0),
            all_synced: Notify::new(),
            received: AtomicU64::new(0),
            pending: nodes.iter().map(|_| AtomicUsize::new(1)).collect(),
            round: RwLock::new(None),
            in_round: AtomicBool::new(false),
            ended: Mutex::default(),
        });
        let began = Instant::now();
        let mut streams = JoinSet::new();
        for (index, node) in nodes.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            streams.spawn(async move {
                let end = match stream(&shared, index, target, node).await {
                    Ok(()) => "the server ended the stream".to_owned(),
                    Err(error) => format!("{error:#}"),
                };
                *shared.ended.lock().entry(end).or_default() += 1;
                // Waiting tasks check the errors.
                shared.all_synced.notify_one();
                if let Some(round) = shared.round.read().as_ref() {
                    round.done.notify_one();
                }
            });
        }
        Self { shared, began, _streams: streams }
    }

    /// Waits until every stream has all subscribed resources.
    ///
    /// # Errors
    /// If a stream ended, or on a timeout; the message has the number of missing streams.
    pub async fn synced(&self, limit: Duration) -> Result<Synced> {
        let all = async {
            while self.shared.synced.load(Ordering::Acquire) < self.shared.streams {
                self.shared.check()?;
                self.shared.all_synced.notified().await;
            }
            Ok::<_, anyhow::Error>(())
        };
        match tokio::time::timeout_at((self.began + limit).into(), all).await {
            Ok(result) => result?,
            Err(_) => {
                let missing: usize = self.shared.pending.iter().map(|p| p.load(Ordering::Relaxed)).sum();
                bail!(
                    "only {} of {} streams are in sync after {limit:?}; {missing} answers are missing",
                    self.shared.synced.load(Ordering::Relaxed),
                    self.shared.streams
                );
            }
        }
        Ok(Synced { wall: self.began.elapsed(), bytes: self.shared.received.load(Ordering::Relaxed) })
    }

    /// Bytes of all messages that all streams have received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Fails once a stream has ended.
    ///
    /// # Errors
    /// The reasons.
    pub fn check(&self) -> Result<()> {
        self.shared.check()
    }

    /// Triggers one change and waits until `wanted` streams have received `needle`.
    ///
    /// # Errors
    /// If the trigger fails, a stream ended, or on a timeout.
    pub async fn round(
        &self,
        number: usize,
        needle: &str,
        wanted: usize,
        trigger: impl Future<Output = Result<()>>,
        limit: Duration,
    ) -> Result<Reached> {
        let before = self.shared.received.load(Ordering::Relaxed);
        let round = Arc::new(Round {
            number,
            began: Instant::now(),
            needle: needle.as_bytes().to_vec(),
            latencies: Mutex::new(Vec::with_capacity(wanted)),
            wanted,
            done: Notify::new(),
        });
        *self.shared.round.write() = Some(Arc::clone(&round));
        self.shared.in_round.store(true, Ordering::Release);
        trigger.await.context("the trigger failed")?;
        let done = async {
            while round.latencies.lock().len() < wanted {
                self.shared.check()?;
                round.done.notified().await;
            }
            Ok::<_, anyhow::Error>(())
        };
        let ended = tokio::time::timeout(limit, done).await;
        *self.shared.round.write() = None;
        let all = std::mem::take(&mut *round.latencies.lock());
        match ended {
            Ok(result) => result?,
            Err(_) => bail!("only {} of {wanted} streams have {needle} after {limit:?}", all.len()),
        }
        let bytes = self.shared.received.load(Ordering::Relaxed) - before;
        Ok(Reached { last: all.iter().max().copied().unwrap_or_default(), all, bytes })
    }
}

impl Shared {
    /// Fails once a stream has ended.
    fn check(&self) -> Result<()> {
        let ended = self.ended.lock();
        if ended.is_empty() {
            return Ok(());
        }
        let reasons: Vec<String> =
            ended.iter().take(5).map(|(why, count)| format!("{count} x {why}")).collect();
        bail!("streams ended: {}", reasons.join("; "))
    }

    /// Records the progress of a stream's initial sync.
    fn progress(&self, index: usize, session: &Session) {
        if let Some(pending) = self.pending.get(index) {
            pending.store(session.pending(), Ordering::Relaxed);
        }
        if session.synced() && self.synced.fetch_add(1, Ordering::AcqRel) + 1 == self.streams {
            self.all_synced.notify_one();
        }
    }

    /// Records a received message, before its processing.
    fn note(&self, message: &[u8], last_round: &mut usize) {
        self.received.fetch_add(message.len() as u64, Ordering::Relaxed);
        if !self.in_round.load(Ordering::Acquire) {
            return;
        }
        let Some(round) = self.round.read().clone() else { return };
        if round.number == *last_round || !contains(message, &round.needle) {
            return;
        }
        *last_round = round.number;
        let mut latencies = round.latencies.lock();
        latencies.push(round.began.elapsed());
        if latencies.len() == round.wanted {
            round.done.notify_one();
        }
    }
}

fn contains(message: &[u8], needle: &[u8]) -> bool {
    message.windows(needle.len().max(1)).any(|window| window == needle)
}

/// Number of streams per local address: a server limits those of one address.
const STREAMS_OF_ADDRESS: usize = 1_000;

/// Opens the stream of proxy `index`, with retries like Envoy's: with thousands of simultaneous clients, a
/// server delays or closes connections of unknown ones. Returns the stream with its first response, after
/// which the client is known.
async fn open(target: SocketAddr, index: usize, session: &Session) -> Result<(Connection, Bytes)> {
    let limit = Instant::now() + CONNECT_LIMIT;
    loop {
        match answered(target, index, session).await {
            Err(error) if Instant::now() > limit => return Err(error),
            Err(_) => tokio::time::sleep(AGAIN * (1 + u32::try_from(index % 10).unwrap_or(0))).await,
            opened => return opened,
        }
    }
}

async fn answered(target: SocketAddr, index: usize, session: &Session) -> Result<(Connection, Bytes)> {
    let mut connection = dial(target, index, session).await?;
    let first = connection.next().await?.context("the server ended the stream")?;
    Ok((connection, first))
}

/// Connects; on loopback from several local addresses, which all belong to the machine.
async fn dial(target: SocketAddr, index: usize, session: &Session) -> Result<Connection> {
    let SocketAddr::V4(address) = target else {
        return Connection::open(target, DELTA_PATH, session.start()).await;
    };
    let socket = TcpSocket::new_v4().context("cannot make a socket")?;
    if address.ip().is_loopback() {
        let host = u8::try_from(1 + index / STREAMS_OF_ADDRESS % 250).unwrap_or(1);
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).context("cannot bind")?;
    }
    let socket = socket.connect(target).await.context("cannot connect")?;
    socket.set_nodelay(true).context("cannot set TCP_NODELAY")?;
    Connection::over(socket, &target.to_string(), DELTA_PATH, &[], session.start()).await
}

/// Runs one stream until it ends.
async fn stream(shared: &Shared, index: usize, target: SocketAddr, node: Node) -> Result<()> {
    let mut session = Session::new(node);
    let (mut connection, first) = open(target, index, &session).await?;
    let (mut out, mut synced, mut last_round) = (Vec::new(), false, usize::MAX);
    let mut next = Some(first);
    while let Some(message) = next {
        shared.note(&message, &mut last_round);
        session.response(&message, &mut out).map_err(anyhow::Error::msg)?;
        for request in out.drain(..) {
            connection.send(&request)?;
        }
        if !synced {
            synced = session.synced();
            shared.progress(index, &session);
        }
        next = connection.next().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_differ() {
        let ids: std::collections::BTreeSet<String> = (0..2_000).map(|index| node(index, "a").id).collect();
        assert_eq!(ids.len(), 2_000);
    }

    #[test]
    fn a_needle_is_found_anywhere() {
        assert!(contains(b"abcdef", b"def"));
        assert!(!contains(b"abcdef", b"xyz"));
        assert!(!contains(b"ab", b"abc"));
    }
}
